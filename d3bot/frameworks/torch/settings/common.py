"""What several PyTorch families share."""

from typing import Any

from d3bot.frameworks.base import Option
from d3bot.frameworks.layers import KINDS
from d3bot.spec import ArrayName, Case, Setting

WORLD = Option("world", "number of ranks", low=1, high=8)
NO_SYNC = Option("no_sync", "gradients of micro-batches before the last stay local", False, (False, True))

EXACT = (
    "2 ranks: to the last bit, except after clipping by norm and with micro-batches. Other world sizes: the noise "
    "bound."
)
MICRO_BATCHES = (
    "Micro-batches: rows that do not divide into them, batch norm, a mean over weighted or unignored targets.",
    "Every row of a rank ignored: the mean over nothing is NaN.",
)
"""What breaks data parallelism whatever wraps the model, for `Contract.breaks`."""

GROUP = Option("group", "the ranks that train: all, or a group without global rank 0 (tail)", "all", ("all", "tail"))


def world_of(setting: Setting) -> int:
    """Return the number of ranks."""
    return setting.integer("world")


def processes_of(setting: Setting) -> int:
    """Return the number of processes: one more than the ranks that train where global rank 0 is not among them."""
    return world_of(setting) + (setting.get("group") == "tail")


def group_context(setting: Setting) -> dict[str, Any]:
    """Return what templates need where the ranks that train are a group of their own."""
    return {"outsider": True} if setting.get("group") == "tail" else {}


def shards(case: Case, setting: Setting) -> int:
    """Return into how many parts data parallelism splits a batch: one a rank."""
    return world_of(setting)


def data_parallel(case: Case, buffers: str) -> dict[str, Any]:
    """Return what templates of data-parallel families share.

    `buffers`: whose batch-norm statistics a forward pass starts from, "rank0" where they are broadcast or each rank's
    "own".
    """
    return {
        "buffers": buffers if keeps_local_buffers(case) else "",
        "part_comment": "the ranks' shards, one after the other",
    }


def keeps_local_buffers(case: Case) -> bool:
    """Whether each rank's forward pass updates buffers from its own shard only (batch norm's statistics)."""
    return "batch_norm" in case.ops()


def micro_batch_obstacle(case: Case, world: int) -> str | None:
    """Return why a step of micro-batches is not that of its whole batch, on each of `world` shards; or None."""
    if case.accumulate == 1:
        return None
    if keeps_local_buffers(case):
        return "batch norm takes the statistics of one micro-batch, which the whole batch does not have"
    if case.batch % (world * case.accumulate):
        return f"{case.batch} rows on {world} ranks do not divide into {case.accumulate} micro-batches each"
    if case.reduction == "mean" and (case.ignored or case.weights == "class"):
        return "the mean over weighted or unignored targets of micro-batches is not that of the whole batch"
    return None


def ignored_obstacle(case: Case, parts: int) -> str | None:
    """Return why a mean over the targets of one of `parts` parts of the batch has no value, or None."""
    first = -(-case.batch // parts)
    if case.reduction == "mean" and case.ignored >= first:
        return f"all {first} rows of the first of {parts} parts are ignored, and the mean over nothing is NaN"
    return None


def data_parallel_obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the mean over the ranks' shards is not defined for this trial, or None."""
    return shards_obstacle(case, world_of(setting))


def shards_obstacle(case: Case, shards: int) -> str | None:
    """Return why the mean over so many shards of the batch is not defined, or None."""
    return few_rows(case, shards) or micro_batch_obstacle(case, shards) or ignored_obstacle(case, shards)


def leaves_local(case: Case, setting: Setting) -> bool:
    """Whether the gradients of micro-batches stay local until the last one."""
    return setting.get("no_sync") is True and case.accumulate > 1


def few_rows(case: Case, shards: int) -> str | None:
    """Return why the batch is too small to be split into so many shards, or None."""
    if case.batch < shards:
        return f"a batch of {case.batch} leaves a rank of {shards} without a row"
    if keeps_local_buffers(case) and case.batch // shards < 2:
        return "batch norm in training needs at least two rows on every rank"
    return None


def layer_units(case: Case, setting: Setting) -> list[str]:
    """Return the layers that are units of their own; with tied weights none, since both users must be in one unit."""
    if setting.get("wrap") == "root" or case.tie:
        return []
    return [layer.name for layer in case.layers if KINDS[layer.op].trainable]


def exact_data_parallel(case: Case, setting: Setting, name: ArrayName) -> bool:
    """Whether a data-parallel array must be bit-equal.

    At 2 ranks the sum of two halves has one order only, and halving is exact: measured bit-equal in 2,376 of 2,376
    comparisons.  A clipping norm sums its squares in another order than the written-out one, and what follows it
    inherits that.  At other world sizes only the first forward pass is the same computation; with micro-batches not
    even that.
    """
    if case.accumulate > 1:
        return False
    if name.step == 0 and name.role == "loss":
        return True
    if world_of(setting) not in (1, 2):
        return False
    clipped = case.clip is not None and case.clip.kind == "norm"
    return not clipped or (name.step == 0 and name.role == "grad")
