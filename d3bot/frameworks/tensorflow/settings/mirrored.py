"""MirroredStrategy on logical CPU devices."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.layers import BATCH_NORMS
from d3bot.frameworks.tensorflow.settings.common import (
    EAGER,
    EXTRAS_SOURCE,
    MIXED,
    case_obstacle,
    keeps_copies,
    replica_obstacle,
    replicas_of,
    rounding,
)
from d3bot.spec import Case, Setting

OPS = {
    "one_device": ", tf.distribute.ReductionToOneDevice()",
    "hierarchical": ", tf.distribute.HierarchicalCopyAllReduce()",
    "collective": "",
    "nccl": ", tf.distribute.NcclAllReduce()",
}
"""Cross-device ops -> what MirroredStrategy is given after its devices."""
_NO_KERNEL = "No OpKernel was registered to support Op 'NcclAllReduce' on a CPU"
"""What the library says to NCCL without a GPU."""
_INPUTS = ("dataset", "function", "tail")


def _uneven(case: Case, setting: Setting) -> bool:
    return case.batch % replicas_of(setting) != 0


def _obstacle(case: Case, setting: Setting) -> str | None:
    if FAMILY.value(setting, "ops") == "nccl":
        return _NO_KERNEL
    given = _input(setting)
    if given != "dataset":
        if case.loop != "custom":
            return f"{case.loop} divides the rows itself"
        if given == "tail" and replicas_of(setting) == 1:
            return "one replica cannot be left without a batch while others have one"
        if given == "tail" and (case.running_mean or set(BATCH_NORMS) & case.ops()):
            return "means over the rows of a replica need rows on every replica"
        if given == "function" and _uneven(case, setting):
            return (
                f"{case.batch} rows do not divide by {replicas_of(setting)} into batches of one size for each replica"
            )
    return replica_obstacle(case, replicas_of(setting)) or case_obstacle(case)


def _input(setting: Setting) -> str:
    return str(FAMILY.value(setting, "input"))


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    given = _input(setting)
    return {
        "input": given,
        "rows_each": -(-case.batch // max(1, replicas_of(setting) - 1)),
        "sees_rows": given == "function",
        "cross_device_ops": OPS[str(FAMILY.value(setting, "ops"))],
        "uneven": _uneven(case, setting) or given == "tail",
        "copies": keeps_copies(case, replicas_of(setting)),
    } | ({"bare": False} if given != "dataset" else {})


FAMILY = Family(
    framework="tensorflow",
    name="mirrored",
    summary="MirroredStrategy: a replica a logical CPU device, gradients summed over them",
    options=(
        Option("replicas", "number of replicas", high=8),
        Option("ops", "cross-device ops that reduce; collective is the library's default", "one_device", tuple(OPS)),
        Option(
            "input",
            "who divides the rows: the library (dataset), or distribute_datasets_from_function, with a batch for every "
            "replica (function) or for all but the last (tail)",
            "dataset",
            _INPUTS,
        ),
    ),
    contract=Contract(
        promise="The update is that of the whole batch's mean loss: each replica divides its losses by the global "
        "batch size, the gradients are summed, and every copy of a variable takes the same update.",
        source='"global_batch_size: Defaults to (size of first dimension of losses) * (number of replicas)"; "Returns: '
        'Scalar loss value, obtained by summing the per_example_loss and dividing by global_batch_size" '
        '(tf.nn.compute_average_loss, 2.21); "This will replicate the variables across all the replicas and keep them '
        'in sync using an all-reduce algorithm" (tf.distribute.MirroredStrategy, 2.21); '
        '"`tf.distribute.Strategy.distribute_datasets_from_function` does not batch or shard the `tf.data.Dataset` '
        'instance returned from the input function"; "every replica on that worker will dequeue one batch of inputs" '
        '(tf.distribute.Strategy, 2.21); "global_clipnorm: If set, the '
        'gradient of all weights is clipped so that their global norm is no higher than this value"; "synchronized: '
        "If True, synchronizes the global batch statistics for the layer across all devices at each training step. If "
        'False, each replica uses its own local batch statistics" (keras.optimizers, BatchNormalization, 3.15); '
        + EXTRAS_SOURCE,
        reference="fit: the same fit on one device. Custom loop: the whole batch in one process; with batch norm the "
        "replicas' rows one after the other, each with its own statistics, from which every copy of a moving "
        "statistic takes the mean over the replicas.",
        exact=EAGER + ", as 94 of 96 passing trials showed. The noise bound.",
        breaks=(
            "fit with a batch that does not divide by the replicas: the mean of means is not the batch's mean.",
            "Batch norm with a batch that does not divide: which rows a replica gets is not documented.",
            "A batch with fewer rows than replicas.",
            MIXED,
            "fit with ignored rows and a mean: each replica divides by the rows that count among its own.",
            "A running mean of a batch that does not divide; a dropout that drops, whose draws are not documented.",
            "A custom loop that accumulates gradients: refused.",
            "Batches that the caller makes: under fit, with batch norm where a replica has none, or of unequal sizes.",
            "fit with a layer frozen in mid-training; tied weights that are not one shared layer.",
        ),
    ),
    world=replicas_of,
    processes=lambda setting: 1,
    parts=lambda case, setting: replicas_of(setting) if keeps_copies(case, replicas_of(setting)) else 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=(  # not ops=hierarchical on 3: it loses a replica in every case (docs/found.md), which one seed shows
        "mirrored(replicas=2)",
        "mirrored(replicas=3)",
        "mirrored(replicas=2, ops=hierarchical)",
        "mirrored(replicas=2, ops=collective)",
    ),
    files=(
        "tensorflow/python/distribute/mirrored_",
        "tensorflow/python/distribute/cross_device_",
        "tensorflow/python/distribute/shared_variable_creator.py",
    ),
    cost=8.0,
)
