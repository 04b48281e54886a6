"""DistributedSampler: which rows of a data set each rank of DistributedDataParallel trains on."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import drops
from d3bot.frameworks.torch.settings import ddp
from d3bot.frameworks.torch.settings.common import (
    WORLD,
    data_parallel,
    draws_obstacle,
    exact_data_parallel,
    keeps_local_buffers,
    recompute_obstacle,
    world_of,
)
from d3bot.spec import ArrayName, Case, Setting


def _each(case: Case, setting: Setting) -> int:
    """Return how many rows each rank takes."""
    world = world_of(setting)
    return case.batch // world if setting.get("drop_last") is True else -(-case.batch // world)


def _parts(case: Case, setting: Setting) -> int:
    # A rank's rows are every WORLD-th. One part a row: no rows are exchanged for the noise floor, so that each rank
    # keeps its own.
    return 1 if setting.get("shuffle") is True else case.batch


def _obstacle(case: Case, setting: Setting) -> str | None:
    if not ddp.any_trainable(case):
        return "DDP refuses a module without a parameter that requires a gradient"
    if setting.get("shuffle") is True:
        if case.batch % world_of(setting):
            return "which rows are taken twice or dropped depends on the shuffle"
        if drops(case):
            return "which row meets which mask of dropout depends on the shuffle"
        if case.reduction == "sum" or case.weights == "class":
            return "a sum, or a mean by weight, over all rows is not the mean over the ranks' own"
        if keeps_local_buffers(case):
            return "whose rows a rank's batch-norm statistics are of depends on the shuffle"
    if _each(case, setting) < (2 if keeps_local_buffers(case) else 1):
        return f"a data set of {case.batch} leaves too few rows for a rank of {world_of(setting)}"
    return recompute_obstacle(case) or draws_obstacle(case)


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    if name.role == "rows":
        return True
    return setting.get("shuffle") is not True and exact_data_parallel(case, setting, name)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    world, shuffle = world_of(setting), setting.get("shuffle") is True
    arguments = f", shuffle={shuffle}" + (f", seed={case.seed}" if shuffle else "")
    if setting.get("drop_last") is True:
        arguments += ", drop_last=True"
    taken = f"TAKEN = {_each(case, setting) * world}  # rows that all ranks take together"
    return {
        **data_parallel(case, "rank0"),
        "arguments": arguments,
        "constants": [f"ROWS = {case.batch}", *([] if shuffle else [taken])],
        "parts": 1 if shuffle else world,
        "sampled": not shuffle,
        "shuffled": shuffle,
        "unseen": frozenset({"loss"} if shuffle else ()),
    }


FAMILY = Family(
    framework="torch",
    name="sampler",
    summary="DistributedDataParallel fed by DistributedSampler: a step is an epoch of its batch",
    options=(
        WORLD,
        Option("shuffle", "the sampler shuffles the rows", False, (False, True)),
        Option(
            "drop_last",
            "rows that do not divide evenly are dropped rather than others taken twice",
            False,
            (False, True),
        ),
    ),
    contract=Contract(
        promise="Every rank takes the same number of rows, all rows are taken, and gradients are means over the ranks.",
        source='"drop_last: if True, then the sampler will drop the tail of the data to make it evenly divisible '
        "across the number of replicas. If False, the sampler will add extra indices to make the data evenly divisible "
        'across the replicas."; "load a subset of the original dataset that is exclusive to it" '
        "(torch.utils.data.distributed.DistributedSampler, 2.13)",
        reference="Without shuffling: rank r takes every WORLD-th row from the r-th on, and what is added starts from "
        "the first row again, as often as it must. With shuffling: all rows once, in one batch.",
        exact="The numbers of the rows. Without shuffling at 2 ranks: all else as well, except after clipping by norm. "
        "Elsewhere the noise bound.",
        breaks=(
            "Rows that are dropped or too few: a rank without a row, or with one under batch norm.",
            "Shuffling rows that do not divide evenly, batch norm or dropout: what happens depends on the shuffle.",
            "Shuffling under a summed or weighted loss: the ranks' mean is not that of all rows.",
            ddp.FAMILY.contract.breaks[1],
        ),
        excluded={
            **ddp.FAMILY.contract.excluded,
            "accumulate": "the sampler hands out a batch as one, and micro-batches are the other families' matter",
            "ignored-rows": "which rank the ignored rows come to is the sampler's choice, and one may have no other",
            "mixed": "a shuffle leaves it open which rows are rounded together",
            "cast": "a shuffle leaves it open which rows are rounded together",
            "reentrant": "DDP supports reentrant backwards under static_graph",
            **ddp.WAITS,
        },
    ),
    world=world_of,
    processes=world_of,
    parts=_parts,
    obstacle=_obstacle,
    exact=_exact,
    context=_context,
    standing=("sampler(world=3)",),
    files=("torch/utils/data/distributed.py", *ddp.FAMILY.files),
    cost=1.1,
)
