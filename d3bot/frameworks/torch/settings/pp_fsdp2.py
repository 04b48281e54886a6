"""A pipeline whose stages are sharded: `fully_shard` in each, over a mesh of shards and stages."""

from dataclasses import replace

from d3bot.frameworks.base import Family
from d3bot.frameworks.torch.settings import pp_ddp

FAMILY = Family(
    framework="torch",
    name="pp_fsdp2",
    summary="copies of a pipeline: fully_shard in every stage",
    options=pp_ddp.OPTIONS,
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
    exact=pp_ddp.exact,
    context=lambda case, setting: pp_ddp.context(case, setting, "fsdp2"),
    standing=(),
    cost=1.8,
)
