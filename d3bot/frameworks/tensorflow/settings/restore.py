"""Training that is saved under one number of replicas and goes on under another."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings import mirrored
from d3bot.frameworks.tensorflow.settings.common import (
    EAGER,
    MIXED,
    case_obstacle,
    replica_obstacle,
    replicas_of,
    rounding,
)
from d3bot.spec import Case, Setting

_STATISTICS = "each replica has moving statistics of its own, and a checkpoint holds one value of them"


def _both(setting: Setting) -> tuple[int, int]:
    """Return the replicas before and after."""
    return replicas_of(setting), int(FAMILY.value(setting, "into"))


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.loop != "custom":
        return f"every call of {case.loop} starts its metrics anew, so that nothing goes on"
    if case.steps == 1:
        return "one step cannot be interrupted"
    if case.weights != "none":
        return "the mean of the losses that goes on is one of rows without weights"
    if case.ema or case.running_mean:
        return "an average beside the model is no part of what is saved"
    obstacles = (replica_obstacle(case, replicas) for replicas in _both(setting))
    return next(filter(None, obstacles), None) or case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {
        "into": FAMILY.value(setting, "into"),
        "by": FAMILY.value(setting, "by"),
        "saved": case.steps // 2,
        "metric_mean": True,
        "uneven": any(case.batch % replicas for replicas in _both(setting)),
    }


FAMILY = Family(
    framework="tensorflow",
    name="restore",
    summary="MirroredStrategy, its whole state saved in mid-training and restored into another number of replicas",
    options=(
        Option("replicas", "number of replicas that start", high=4),
        Option("into", "number of replicas that go on; 1 is one process without a strategy", 1, high=4),
        Option(
            "by",
            "what carries the state: tf.train.Checkpoint, or the value of each variable, read and assigned",
            "checkpoint",
            ("checkpoint", "values"),
        ),
    ),
    contract=Contract(
        promise="Model, optimizer and the state of a metric, which is summed over the replicas when it is read, go on "
        "as if nothing had happened, whatever number of replicas saved them and whatever number goes on.",
        source='"You can save the model with or without the strategy\'s scope"; "Once restored, you can continue '
        'training" (TensorFlow guide Save and load a model using a distribution strategy, 2.21); "To preserve the sum '
        "across save and restore, we have to divide the total across all devices when restoring a variable that was "
        'summed when saving." (values_util.get_on_read_restore_ops, 2.21)',
        reference="The whole batch of each step in one process, never interrupted; the metric's mean is that of the "
        "losses of all rows so far.",
        exact=EAGER + ". The noise bound.",
        breaks=(
            "fit, whose metrics start anew with every call; a single step.",
            "A batch with fewer rows than replicas.",
            MIXED,
            "Tied weights that are not one shared layer.",
        ),
        excluded={
            "batch-norm": _STATISTICS,
            "sync-batch-norm": _STATISTICS,
            "late-freeze": "which layers are frozen is no part of a checkpoint",
            "thaw": "which layers are frozen is no part of a checkpoint",
        },
    ),
    world=replicas_of,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=(),
    files=(*mirrored.FAMILY.files, "tensorflow/python/checkpoint/"),
    cost=16.0,
)
