"""Pipeline parallelism: stages on the ranks, micro-batches, and the schedules that torch has."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Literal

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.torch.loss import loss_of
from d3bot.frameworks.torch.model import pipeline_cuts
from d3bot.frameworks.torch.settings.common import (
    NO_AVERAGE,
    NO_STEP_IN_BACKWARD,
    ignored_obstacle,
    recompute_obstacle,
    world_of,
)
from d3bot.spec import ArrayName, Case, Setting


@dataclass(frozen=True)
class _Schedule:
    """A schedule class, and how stages lie on the ranks."""

    name: str
    style: Literal["single", "loop", "v"] = "single"
    """One stage a rank, or two: the second ones in the order of the ranks, or back."""
    rounds: bool = False
    """Whether the micro-batches must divide into rounds of about one a rank."""
    full: bool = False
    """Whether it needs as many micro-batches as there are stages; with one stage a rank all do."""

    def stages(self, world: int) -> list[tuple[int, ...]]:
        """Return the stages of each rank."""
        if self.style == "single":
            return [(rank,) for rank in range(world)]
        return [(rank, rank + world if self.style == "loop" else 2 * world - 1 - rank) for rank in range(world)]

    def own(self, world: int) -> str:
        """Return the expression of a rank's stages, empty where it has one."""
        if self.style == "single":
            return ""
        return f"rank, rank + {world}" if self.style == "loop" else f"rank, {2 * world - 1} - rank"


_SCHEDULES = {
    "1f1b": _Schedule("Schedule1F1B"),
    "gpipe": _Schedule("ScheduleGPipe"),
    "loopedbfs": _Schedule("ScheduleLoopedBFS", "loop"),
    "interleaved1f1b": _Schedule("ScheduleInterleaved1F1B", "loop", rounds=True),
    "interleaved_zero_bubble": _Schedule("ScheduleInterleavedZeroBubble", "loop", rounds=True),
    "zbv": _Schedule("ScheduleZBVZeroBubble", "v"),
    "dualpipev": _Schedule("ScheduleDualPipeV", "v", full=True),
}


def stage_cuts(case: Case, setting: Setting) -> tuple[int, ...] | None:
    """Return the cuts that make the most even stages, the earliest of equals, or None.

    One tensor crosses each.  The first stage and every rank have something to train.
    """
    stages = _schedule(setting).stages(world_of(setting))
    count = sum(len(own) for own in stages)
    trains = _trains(case)

    def fits(cuts: tuple[int, ...]) -> bool:
        busy = [any(trains[start:end]) for start, end in pairwise((0, *cuts, len(trains)))]
        return busy[0] and all(any(busy[stage] for stage in own) for own in stages)

    def unevenness(cuts: tuple[int, ...]) -> int:
        return sum((end - start) ** 2 for start, end in pairwise((0, *cuts, len(trains))))

    return min(filter(fits, combinations(pipeline_cuts(case), count - 1)), key=unevenness, default=None)


def every_stage_trains(case: Case, setting: Setting) -> bool:
    """Return whether every stage, not only every rank, has a layer that trains in every step; False without cuts."""
    trains, cuts = _trains(case), stage_cuts(case, setting)
    return cuts is not None and all(any(trains[start:end]) for start, end in pairwise((0, *cuts, len(trains))))


def _trains(case: Case) -> list[bool]:
    """Return for each layer whether it has parameters that are trained in every step."""
    idle = {freeze.layer for freeze in case.freeze} | {skip.layer for skip in case.skips}
    return [KINDS[layer.op].trainable and layer.name not in idle for layer in case.layers]


def micro_batches(setting: Setting) -> int:
    """Return the number of micro-batches of one step."""
    return int(FAMILY.value(setting, "microbatches"))


def _schedule(setting: Setting) -> _Schedule:
    return _SCHEDULES[str(FAMILY.value(setting, "schedule"))]


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why a pipeline's promise does not hold for this trial, or None."""
    count = micro_batches(setting)
    schedule = _schedule(setting)
    if schedule.rounds and count % max(1, count // world_of(setting)):
        return f"{schedule.name} requires the number of micro-batches to be a multiple of the number of rounds"
    stages = sum(map(len, schedule.stages(world_of(setting))))
    if (schedule.full or schedule.style == "single") and count < stages:
        return f"{schedule.name} requires at least as many micro-batches as stages"
    if stage_cuts(case, setting) is None:
        return f"no cut into {stages} stages, trained on every rank, at which one tensor crosses and no tie is split"
    if case.batch % count:
        return f"a batch of {case.batch} does not divide into {count} micro-batches"
    if problem := ignored_obstacle(case, count) or recompute_obstacle(case):
        return problem
    if case.casts and count & (count - 1):
        return f"a mean over {count} micro-batches is rounded to each parameter's type"
    if case.clip and case.clip.kind == "norm":
        return "clip_grad_norm_ sees one rank's parameters; nothing in torch promises the norm over all stages"
    if "batch_norm" in case.ops() and case.batch // count < 2:
        return "batch norm in training needs at least two rows in every micro-batch"
    return None


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    """Every schedule but one adds the micro-batches' gradients in their order; looped BFS goes backward from the last.

    A schedule divides the gradients by the number of micro-batches at the end, the reference each loss at the start:
    the same numbers only where dividing is exact, which is for a power of 2.  Before any gradient is used, the losses
    are the same numbers all the same.
    """
    if name.step == 0 and name.role == "loss":
        return True
    return _schedule(setting).name != "ScheduleLoopedBFS" and micro_batches(setting).bit_count() == 1


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what `pp.py.j2` needs."""
    schedule = _schedule(setting)
    world = world_of(setting)
    return {
        "copies": "",
        "schedule_class": schedule.name,
        "own": schedule.own(world),
        "last_rank": 0 if schedule.style == "v" else world - 1,
        "stage_loss": loss_of(case, "output"),
        "buffers": "",
        "part_comment": "the micro-batches",
        "cuts": stage_cuts(case, setting) or (),
    }


FAMILY = Family(
    framework="torch",
    name="pp",
    summary="PipelineStage with a micro-batch schedule: one or two stages of the model on each rank",
    options=(
        Option("world", "number of ranks", low=2, high=4),
        Option("schedule", "order of forwards and backwards", "1f1b", tuple(_SCHEDULES)),
        Option("microbatches", "micro-batches of one step", 4, low=2, high=16),
    ),
    contract=Contract(
        promise="A step's gradients are those of the mean of the micro-batches' losses, whatever the schedule.",
        source='"Gradients are scaled by num_microbatches depending on the scale_grads argument, defaulting to True" '
        '(PipelineScheduleSingle, PipelineScheduleMulti); "1F1B schedule: performs one forward and one backward on the '
        'micro-batches in steady state"; "Looped BFS supports multiple stages per rank"; "Interleaved 1F1B ... works '
        'as long as n_microbatches % num_rounds is 0"; "ZBV ... requires exactly two stages per rank"; '
        '"DualPipeV requires at least as many microbatches as stages"; "Number of microbatches ... must be greater '
        'than or equal to the number of stages" '
        "(torch.distributed.pipelining.schedules, 2.13)",
        reference="The micro-batches one after the other in one process, each loss divided by their number.",
        exact="To the last bit with a number of micro-batches that is a power of 2: each stage adds the same numbers "
        "in the same order. Other numbers and looped BFS: the noise bound.",
        breaks=(
            "Clipping by norm: each rank sees its own stages' parameters only.",
            "A batch that does not divide into the micro-batches.",
            "Interleaved schedules: micro-batches that do not divide into rounds.",
            "Every row of a micro-batch ignored: the mean over nothing is NaN.",
            "1F1B, GPipe and DualPipeV: fewer micro-batches than stages.",
            "Layers of another type and a number of micro-batches that is no power of 2.",
            "A model without cuts at which one tensor crosses, or whose tied weights lie on both sides of every cut.",
        ),
        excluded={
            "accumulate": "a schedule splits the batch itself, and scales all of .grad at the end of its step",
            "mixed": '"autocast should wrap only the forward pass(es) of your network": a schedule runs both passes',
            "reentrant": "a stage goes backward by autograd.grad, with which reentrant checkpointing is incompatible",
            **NO_AVERAGE,
            **NO_STEP_IN_BACKWARD,
            "compiled": "nothing says how a compiled module becomes a stage",
            "dropout": "each stage draws masks for micro-batches in the schedule's own order",
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: micro_batches(setting),
    obstacle=obstacle,
    exact=_exact,
    context=context,
    standing=("pp(world=2)",),
    files=("torch/distributed/pipelining/",),
    cost=1.2,
)
