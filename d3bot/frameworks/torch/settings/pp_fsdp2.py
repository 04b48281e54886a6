"""A pipeline whose stages are sharded: `fully_shard` in each, over a mesh of shards and stages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from d3bot.frameworks.base import Family
from d3bot.frameworks.torch.settings import fsdp2, pp, pp_ddp
from d3bot.frameworks.torch.settings.common import layer_units
from d3bot.spec import ArrayName, Case, Setting


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {**pp_ddp.context(case, setting, "fsdp2"), "layers_apart": bool(layer_units(case, setting))}


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    return not fsdp2.projects_apart(case, setting) and pp_ddp.exact(case, setting, name)


FAMILY = Family(
    framework="torch",
    name="pp_fsdp2",
    summary="copies of a pipeline: fully_shard in every stage",
    options=(*pp_ddp.OPTIONS, *(option for option in fsdp2.FAMILY.options if option.name == "wrap")),
    contract=replace(
        pp_ddp.CONTRACT,
        source=f'{pp_ddp.CONTRACT.source}; "fully_shard: Apply fully sharded data parallelism (FSDP) to module, where '
        'FSDP shards module parameters, gradients, and optimizer states across data parallel workers" '
        "(torch.distributed.fsdp.fully_shard, 2.13)",
    ),
    world=pp_ddp.FAMILY.world,
    processes=pp_ddp.FAMILY.processes,
    parts=pp_ddp.FAMILY.parts,
    obstacle=pp_ddp.obstacle,
    exact=_exact,
    context=_context,
    standing=(),
    files=(*pp.FAMILY.files, *fsdp2.FAMILY.files),
    cost=1.8,
)
