"""Three dimensions: replicas of a `fully_shard` copy of a tensor-parallel model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from d3bot.frameworks.base import Family, Option
from d3bot.frameworks.torch.settings import fsdp2, fsdp2_tp
from d3bot.spec import Case, Setting


def _obstacle(case: Case, setting: Setting) -> str | None:
    return fsdp2.reshard_obstacle(setting, 2) or fsdp2_tp.obstacle(case, setting)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {
        **fsdp2_tp.context(case, setting),
        "mesh_shape": "(2, SHARDS // 2, 2)",
        "mesh_names": '("replicate", "shard", "tensor")',
        "data_mesh": 'mesh["replicate", "shard"]',
    }


_PLAIN = fsdp2_tp.FAMILY

FAMILY = Family(
    framework="torch",
    name="hsdp_tp",
    summary="fully_shard with replicas over a tensor-parallel model: a 2 x 2 x 2 mesh",
    options=(
        Option("world", "number of ranks", choices=(8,)),
        *(option for option in _PLAIN.options if option.name not in ("world", "tensor")),
    ),
    contract=replace(
        _PLAIN.contract,
        source=f'{_PLAIN.contract.source}; "If 2D, then parameters are sharded across the 1st dim and replicated '
        'across the 0th dim (HSDP)" (torch.distributed.fsdp.fully_shard, 2.13)',
    ),
    world=_PLAIN.world,
    processes=_PLAIN.processes,
    parts=_PLAIN.parts,
    obstacle=_obstacle,
    exact=_PLAIN.exact,
    context=_context,
    standing=(),
    files=_PLAIN.files,
    cost=_PLAIN.cost,
)
