"""ZeroRedundancyOptimizer inside DistributedDataParallel: ZeRO stage 1."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.optimizer import optimizer_class, optimizer_options
from d3bot.frameworks.torch.settings import ddp
from d3bot.frameworks.torch.settings.common import (
    EXACT,
    GROUP,
    RECIPE,
    WORLD,
    data_parallel,
    exact_data_parallel,
    group_context,
    processes_of,
    shards,
    world_of,
)
from d3bot.spec import Case, Setting


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the promise of the sharded optimizer does not hold for this trial, or None."""
    joins = setting.get("join", "none") != "none"
    if joins and any(group.at > 0 for group in case.groups):
        return "a rank that has joined leaves the loop, and with it the call that adds a group on every rank"
    if joins and case.accumulate > 1:
        return "a rank that has joined shadows DDP and the optimizer in turns, not two reductions and then a step"
    return ddp.obstacle(case, setting)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    tail = setting.get("group") == "tail"
    options = ", parameters_as_bucket_view=True" if setting.get("parameters_as_bucket_view") is True else ""
    if tail:
        options += ", process_group=group"
    parameters = "groups" if case.groups else "model.parameters()"
    made = f"{parameters}, {optimizer_class(case.optimizer)}{options}{optimizer_options(case.optimizer)}"
    return {
        "zero": f"ZeroRedundancyOptimizer({made})",
        "arguments": ", process_group=group" if tail else "",
        **ddp.join_context(case, setting),
        **group_context(setting),
        **data_parallel(case, "rank0"),
    }


FAMILY = Family(
    framework="torch",
    name="zero1",
    summary="ZeroRedundancyOptimizer in DistributedDataParallel: optimizer states sharded, each parameter on one rank",
    options=(
        WORLD,
        Option("parameters_as_bucket_view", "parameters are views into the broadcast buckets", False, (False, True)),
        ddp.JOIN,
        GROUP,
    ),
    contract=Contract(
        promise="Gradients are those of data parallelism; each parameter takes the step of one process on its "
        "owner, with the options that the exposed param groups hold then, and every rank receives the result.",
        source='"The local optimizer instance in each rank is only responsible for updating approximately '
        "1 / world_size parameters and hence only needs to keep 1 / world_size optimizer states. After parameters are "
        "updated locally, each rank will broadcast its parameters to all other peers to keep all model replicas in the "
        'same state."; "process_group: torch.distributed ProcessGroup (default: dist.group.WORLD ...)" '
        '(torch.distributed.optim.ZeroRedundancyOptimizer, 2.13); "These hooks should shadow the collective '
        'communications of non-joined processes"; "their hooks are iterated over in the given order" '
        "(torch.distributed.algorithms.Join, 2.13)",
        reference="As ddp's: the ranks' shards one after the other in one process, each loss divided by the world "
        "size, and one plain optimizer. A rank that has joined adds nothing." + RECIPE,
        exact=EXACT,
        breaks=(*ddp.FAMILY.contract.breaks[:11], "join: a group that is added in mid-training; micro-batches."),
        excluded={
            **ddp.FAMILY.contract.excluded,
            "cast": "ZeroRedundancyOptimizer only supports using the same dense type for all parameters",
        },
    ),
    world=world_of,
    processes=processes_of,
    parts=shards,
    obstacle=obstacle,
    exact=exact_data_parallel,
    context=_context,
    standing=("zero1(world=2, group=tail)", "zero1(world=3, parameters_as_bucket_view=true)"),
    files=("torch/distributed/optim/zero_redundancy_optimizer.py", *ddp.FAMILY.files),
    cost=1.1,
)
