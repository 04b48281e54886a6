"""DistributedDataParallel."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.torch.settings.common import (
    WORLD,
    data_parallel,
    exact_data_parallel,
    shards,
    small_shards,
    world_of,
)
from d3bot.spec import Case, Setting

_ARGUMENTS = ("gradient_as_bucket_view", "static_graph", "find_unused_parameters")


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why DDP's promise does not hold for this trial, or None."""
    if not any_trainable(case):
        return "DDP refuses a module without a parameter that requires a gradient"
    return small_shards(case, setting)


def any_trainable(case: Case) -> bool:
    """Whether any layer with parameters is left that is not frozen from the start."""
    frozen = {freeze.layer for freeze in case.freeze if freeze.at == 0}
    return any(KINDS[layer.op].trainable and layer.name not in frozen for layer in case.layers)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    arguments = "".join(f", {name}=True" for name in _ARGUMENTS if setting.get(name) is True)
    if setting.get("small_buckets") is True:
        arguments += ", bucket_cap_mb=0.0001"
    hook = {"allreduce": "allreduce_hook"}.get(str(setting.get("comm_hook")), "")
    return {
        "arguments": arguments,
        "comm_hook": hook,
        **data_parallel(case, "rank0"),
    }


FAMILY = Family(
    framework="torch",
    name="ddp",
    summary="DistributedDataParallel: a replica a rank, gradients averaged in buckets",
    options=(
        WORLD,
        Option("gradient_as_bucket_view", "gradients are views into the buckets", False, (False, True)),
        Option("static_graph", "the graph is promised to be the same in every step", False, (False, True)),
        Option("find_unused_parameters", "search the graph for unused parameters", False, (False, True)),
        Option("small_buckets", "a bucket for nearly every parameter", False, (False, True)),
        Option("comm_hook", "communication hook that reduces a bucket", "none", ("none", "allreduce")),
    ),
    contract=Contract(
        promise="Each parameter's gradient is the mean over the ranks of the gradients of their own shards' losses; "
        "every rank then takes the same optimizer step.",
        source='"This container provides data parallelism by synchronizing gradients across each model replica." and '
        '"broadcast_buffers: Flag that enables syncing (broadcasting) buffers of the module at beginning of the '
        'forward function." (torch.nn.parallel.DistributedDataParallel, 2.13)',
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm each forward starts from rank 0's buffers.",
        exact="2 ranks: to the last bit, except after clipping by norm. Other world sizes: the noise bound.",
        breaks=(
            "A batch with fewer rows than ranks.",
            "Every layer frozen: DDP refuses a module without a parameter that requires a gradient.",
        ),
        excluded={"late-freeze": "parameters must not change after DDP has wrapped them"},
    ),
    world=world_of,
    processes=world_of,
    parts=shards,
    obstacle=obstacle,
    exact=exact_data_parallel,
    context=_context,
    standing=(
        "ddp(world=2)",
        "ddp(world=3)",
        "ddp(world=2, gradient_as_bucket_view=true, small_buckets=true)",
        "ddp(world=2, comm_hook=allreduce)",
    ),
    cost=1.0,
)
