"""Pipeline parallelism: two stages, micro-batches, the 1F1B schedule."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.torch.model import pipeline_cuts
from d3bot.frameworks.torch.settings.common import world_of
from d3bot.spec import ArrayName, Case, Setting

_SCHEDULES = {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe"}


def stage_cut(case: Case) -> int | None:
    """Return the cut nearest to the middle at which one tensor crosses and both stages can train; None if none."""
    cuts = [cut for cut in pipeline_cuts(case) if _both_train(case, cut)]
    return min(cuts, key=lambda cut: abs(2 * cut - len(case.layers)), default=None)


def _both_train(case: Case, cut: int) -> bool:
    frozen = {freeze.layer for freeze in case.freeze}
    sides = (case.layers[:cut], case.layers[cut:])
    return all(any(KINDS[x.op].trainable and x.name not in frozen for x in side) for side in sides)


def micro_batches(setting: Setting) -> int:
    """Return the number of micro-batches of one step."""
    return int(FAMILY.value(setting, "microbatches"))


def _obstacle(case: Case, setting: Setting) -> str | None:
    if stage_cut(case) is None:
        return "no cut into two trainable stages at which one tensor crosses and no tied weight is split"
    if case.batch % micro_batches(setting):
        return f"a batch of {case.batch} does not divide into {micro_batches(setting)} micro-batches"
    if case.clip and case.clip.kind == "norm":
        return "clip_grad_norm_ sees one stage's parameters; nothing in torch promises the norm over all stages"
    if "batch_norm" in case.ops() and case.batch // micro_batches(setting) < 2:
        return "batch norm in training needs at least two rows in every micro-batch"
    return None


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    return True


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    loss = "F.cross_entropy" if case.loss == "cross_entropy" else "F.mse_loss"
    return {
        "schedule_class": _SCHEDULES[str(FAMILY.value(setting, "schedule"))],
        "stage_loss": f"{loss}(output, target)",
        "buffers": "",
        "part_comment": "the micro-batches, one after the other",
        "cut": stage_cut(case),
    }


FAMILY = Family(
    framework="torch",
    name="pp",
    summary="PipelineStage with a micro-batch schedule: a stage of the model on each of two ranks",
    options=(
        Option("world", "number of ranks, one stage each", low=2, high=2),
        Option("schedule", "order of forwards and backwards", "1f1b", tuple(_SCHEDULES)),
        Option("microbatches", "micro-batches of one step", 4, low=2, high=16),
    ),
    contract=Contract(
        promise="A step's gradients are those of the mean of the micro-batches' losses.",
        source='"scale_grads (bool): Whether to scale gradients by the number of microbatches" and "1F1B schedule: '
        'performs one forward and one backward on the micro-batches in steady state" '
        "(torch.distributed.pipelining.schedules, 2.13)",
        reference="The micro-batches one after the other in one process, each loss divided by their number.",
        exact="To the last bit: each stage adds the same numbers in the same order.",
        breaks=(
            "Clipping by norm: each rank sees its own stage's parameters only.",
            "A batch that does not divide into the micro-batches.",
            "A model without a cut at which one tensor crosses, or whose tied weights lie on both sides of every cut.",
        ),
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: micro_batches(setting),
    obstacle=_obstacle,
    exact=_exact,
    context=_context,
    standing=("pp(world=2)",),
)
