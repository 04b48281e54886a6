"""HSDP: `fully_shard` on a mesh of two dimensions, replicas of a sharded copy."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.settings import fsdp2, precision
from d3bot.frameworks.torch.settings.common import (
    MICRO_BATCHES,
    PRECISION,
    RECIPE,
    data_parallel_obstacle,
    shards,
    world_of,
)
from d3bot.spec import Case, Setting


def _obstacle(case: Case, setting: Setting) -> str | None:
    return (
        fsdp2.reshard_obstacle(setting, int(FAMILY.value(setting, "shards")))
        or data_parallel_obstacle(case, setting)
        or precision.obstacle(case, setting)
        or fsdp2.unit_obstacle(case, setting)
    )


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    size = int(FAMILY.value(setting, "shards"))
    late = {"sync": "model.set_requires_all_reduce"} if setting.get("all_reduce_last") is True else {}
    return {**fsdp2.context(case, setting), "replicas": world_of(setting) // size, "shards": size, **late}


FAMILY = Family(
    framework="torch",
    name="hsdp",
    summary="fully_shard on a mesh of two dimensions: parameters sharded in a group of ranks, groups replicated",
    options=(
        Option("world", "number of ranks", choices=(4, 8)),
        Option("shards", "ranks over which one copy is sharded", 2, (2, 4)),
        *(option for option in fsdp2.FAMILY.options if option.name not in ("world", "shard_dim")),
        Option("all_reduce_last", "micro-batches before the last are reduced inside a copy only", False, (False, True)),
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over all ranks, of every replica, of their own "
        "shards' gradients.",
        source='"If 2D, then parameters are sharded across the 1st dim and replicated across the 0th dim (HSDP) with '
        '(Replicate(), Shard(0)) placement."; "set_requires_all_reduce: Sets if the module should all-reduce '
        "gradients. This can be used to implement gradient accumulation with only reduce-scatter but not "
        'all-reduce for HSDP." '
        "(torch.distributed.fsdp.fully_shard, 2.13)",
        reference="As fsdp2's: the ranks' shards one after the other in one process, each loss divided by the world "
        "size; with batch norm every rank keeps its own buffers." + RECIPE,
        exact="The first losses, but for attention in a unit of its own. All else: the noise bound.",
        breaks=("A batch with fewer rows than ranks.", *MICRO_BATCHES, *PRECISION),
    ),
    world=world_of,
    processes=world_of,
    parts=shards,
    obstacle=_obstacle,
    exact=fsdp2.exact,
    context=_context,
    rounding=precision.rounding,
    standing=("hsdp(world=4, all_reduce_last=true)",),
    files=(*fsdp2.FAMILY.files, "torch/distributed/device_mesh.py"),
    cost=1.8,
)
