"""What several PyTorch families share."""

from typing import Any

from d3bot.frameworks.base import Option
from d3bot.frameworks.layers import KINDS, drops
from d3bot.spec import ArrayName, Case, Setting

WORLD = Option("world", "number of ranks", low=1, high=8)
NO_SYNC = Option("no_sync", "gradients of micro-batches before the last stay local", False, (False, True))

EXACT = (
    "2 ranks: to the last bit, except after clipping by norm, of averages, with micro-batches, and compiled by "
    "aot_eager or inductor. Other world sizes: the noise bound."
)
RECIPE = (
    " Micro-batches are one batch, and nothing is recomputed or compiled. Dropout draws from the generator that both "
    "halves seed by step and rank before each forward pass. Under autocast each shard is computed under "
    "the same autocast and the mean is taken last; loss scaling is written out, and a step whose gradients are not "
    "finite is left out. An average of the parameters is written out by its definition. What steps within backward is "
    "one ordinary step after it."
)
"""How the reference of data parallelism does what a case asks for beside distribution, for `Contract.reference`."""
RECIPE_SOURCE = (
    '; "checkpointing includes logic to juggle the RNG state such that checkpointed passes making use of RNG (through '
    'dropout for example) have deterministic output as compared to non-checkpointed passes" (torch.utils.checkpoint, '
    '2.13); "In these regions, ops run in an op-specific dtype chosen by autocast" (torch.autocast, 2.13); "If no '
    "inf/NaN gradients are found, invokes optimizer.step() using the unscaled gradients. Otherwise, optimizer.step() "
    'is skipped" (GradScaler.step, 2.13); "the parameters of model are copied to the parameters of AveragedModel [at '
    'first]. For every subsequent call of update_parameters the function avg_fn is used"; "use_buffers: if True, it '
    'will compute running averages for both the parameters and the buffers" (AveragedModel, 2.13); "The hook will be '
    'called after all gradients for a tensor have been accumulated" '
    "(Tensor.register_post_accumulate_grad_hook, 2.13)"
)
MICRO_BATCHES = (
    "Micro-batches: rows that do not divide into them, batch norm, dropout, a mean over weighted or unignored targets.",
    "Every row of a rank ignored: the mean over nothing is NaN.",
)
PRECISION = (
    "Lower precision: of micro-batches; after the first step on more than 2 ranks or after clipping by norm.",
    "Layers of another type: under clipping by norm and in averages; in bfloat16, on more than 2 ranks (frozen, on 4 "
    "and 8 too).",
    "Dropout under inductor, which draws by a generator of its own.",
    "Recomputing batch norm; reentrant checkpoints of attention and of layers whose input has no gradient.",
)
"""What breaks data parallelism whatever wraps the model, for `Contract.breaks`."""

NO_AVERAGE = {"average": "AveragedModel copies the module, and nothing says how this one is copied"}
"""What families exclude whose modules are no plain copies of the model."""
NO_STEP_IN_BACKWARD = {"in-backward": "the gradient that is there within the backward pass is not yet that of the step"}
"""What families exclude that change gradients after the backward pass."""

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
        "part_comment": "the ranks' shards",
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
    if drops(case):
        return "micro-batches draw their masks of dropout one after the other, the whole batch draws all at once"
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


def precision_obstacle(case: Case, world: int) -> str | None:
    """Return why lower precision leaves nothing to compare on so many ranks, or None.

    What is computed on a shard is the same in both halves.  Sums over ranks are not, and what differs by one rounding
    of the parameters' own type may become another number of the lower one.
    """
    by_norm = case.clip is not None and case.clip.kind == "norm"
    if case.casts and case.averages:
        return "where an average in a lower type is rounded depends on how its formula is written"
    if case.casts and by_norm:
        return "a norm over parameters of several types is rounded to each of them"
    low = [cast.layer for cast in case.casts if cast.dtype == "bfloat16"]
    if low and world > 2 and not (set(low) <= always_frozen(case) and world in (4, 8)):
        return "the order of a bfloat16 sum over more than 2 ranks is free"
    if case.mixed == "none":
        return None
    if case.accumulate > 1:
        return "each micro-batch is rounded by itself, which the whole batch is not"
    if case.steps > 1 and (world > 2 or by_norm):
        return "parameters that differ by one rounding after a step may become other numbers in lower precision"
    return None


def recompute_obstacle(case: Case) -> str | None:
    """Return why recomputing these layers is not the same as keeping what they computed, or None."""
    layers = {layer.name: layer for layer in case.layers}
    chosen = [layers[name] for name in case.recompute]
    if any(layer.op == "batch_norm" for layer in chosen):
        return "a batch norm that is recomputed takes its statistics twice"
    if not case.reentrant:
        return None
    if any(layer.op == "attention" or (layer.op == "embedding_bag" and len(layer.inputs) > 1) for layer in chosen):
        return "reentrant checkpointing takes no keyword arguments, and attention and weighted bags are called with one"
    trained = {layer.name for layer in case.layers if KINDS[layer.op].trainable} - {item.layer for item in case.freeze}
    reached: set[str] = set()  # layers whose output has a gradient without their own parameters
    for layer in case.layers:
        if any(source in trained | reached for source in layer.inputs):
            reached.add(layer.name)
    if not {layer.name for layer in chosen} <= reached:
        return "reentrant checkpointing gives parameters a gradient only where an input has one"
    return None


def draws_obstacle(case: Case) -> str | None:
    """Return why what dropout draws cannot be drawn by the reference, or None."""
    if case.compiler == "inductor" and drops(case):
        return "inductor draws by a generator of its own, unless it is told to fall back to that of eager"
    return None


def always_frozen(case: Case) -> set[str]:
    """Return the layers that never train."""
    return {item.layer for item in case.freeze if item.at == 0 and item.until is None}


def data_parallel_obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the mean over the ranks' shards is not defined for this trial, or None."""
    return shards_obstacle(case, world_of(setting))


def shards_obstacle(case: Case, shards: int) -> str | None:
    """Return why the mean over so many shards of the batch is not defined, or None."""
    return (
        few_rows(case, shards)
        or micro_batch_obstacle(case, shards)
        or ignored_obstacle(case, shards)
        or precision_obstacle(case, shards)
        or recompute_obstacle(case)
        or draws_obstacle(case)
    )


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
    even that.  An average may be written in more ways than one, and what a compiler makes of a formula may round
    elsewhere.
    """
    compiled = case.compiler in ("aot_eager", "inductor")
    if case.accumulate > 1 or compiled or name.tensor.startswith("average."):
        return False
    if name.step == 0 and name.role == "loss":
        return True
    if world_of(setting) not in (1, 2):
        return False
    clipped = case.clip is not None and case.clip.kind == "norm"
    return not clipped or (name.step == 0 and name.role == "grad")
