"""tf_keras, the Keras before 3, under the strategies of one process that its methods support."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.central_storage import STATISTICS
from d3bot.frameworks.tensorflow.settings.common import (
    EAGER,
    MIXED,
    ONE_DEVICE,
    case_obstacle,
    replica_obstacle,
    replicas_of,
    rounding,
)
from d3bot.frameworks.tensorflow.settings.mirrored import OPS
from d3bot.spec import Case, Setting


def _strategy(setting: Setting) -> str:
    return str(FAMILY.value(setting, "strategy"))


def _obstacle(case: Case, setting: Setting) -> str | None:
    replicas, central = replicas_of(setting), _strategy(setting) == "central_storage"
    if central and setting.get("ops"):
        return "CentralStorageStrategy has no cross-device ops to choose from"
    if central and {"batch_norm", "sync_batch_norm"} & case.ops():
        return STATISTICS
    if central and case.compiler != "none":
        return ONE_DEVICE
    if case.loop == "train_on_batch" and case.batch % replicas:
        return f"train_on_batch takes the mean over replicas, which have unequal shares of {case.batch} rows"
    if "batch_norm" in case.ops() and case.loop == "custom" and replicas > 1:
        return "each replica moves statistics of its own, and no document says how they are brought together"
    if "r2" in case.metrics and case.dtype == "float64":
        return "the metric r2 of tf_keras mixes float32 into float64: \"Input 'e' of 'SelectV2' Op has type float64\""
    if case.mixed == "float16" and case.loop == "custom":
        return "a loop of tf_keras scales its loss in another way (get_scaled_loss), which is not rendered"
    return replica_obstacle(case, replicas) or case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {
        "strategy": _strategy(setting),
        "input": "dataset",
        "cross_device_ops": OPS[str(FAMILY.value(setting, "ops"))],
        "uneven": case.batch % replicas_of(setting) != 0,
    }


FAMILY = Family(
    framework="tensorflow",
    name="tf_keras",
    summary="tf_keras, the Keras before 3, with a replica a logical CPU device",
    options=(
        Option("replicas", "number of replicas", high=8),
        Option("strategy", "MirroredStrategy, or CentralStorageStrategy", "mirrored", ("mirrored", "central_storage")),
        Option(
            "ops",
            "cross-device ops that MirroredStrategy reduces by; collective is the library's default",
            "one_device",
            ("one_device", "hierarchical", "collective"),
        ),
    ),
    contract=Contract(
        promise="The update is that of the whole batch's mean loss: fit divides each replica's loss by the number of "
        "replicas, and the optimizer sums the gradients before it updates.",
        source='"Scales and returns the given loss value by the number of replicas." '
        '(tf_keras.utils.losses_utils.scale_loss_for_distribution, 2.21); "Aggregate gradients on all devices. By '
        'default, we will perform reduce_sum of gradients across devices." '
        '(tf_keras.optimizers.Optimizer.aggregate_gradients, 2.21); "synchronized: If True, synchronizes the global '
        "batch statistics (mean and variance) for the layer across all devices at each training step in a distributed "
        'training strategy." (tf_keras.layers.BatchNormalization, 2.21)',
        reference="fit, train_on_batch: the same call of tf_keras on one device. Custom loop: the whole batch in one "
        "process.",
        exact=EAGER + ". The noise bound.",
        breaks=(
            "fit and train_on_batch with a batch that does not divide by the replicas: the mean of means is not the "
            "batch's mean.",
            "A batch with fewer rows than replicas.",
            "Batch norm under CentralStorageStrategy and, unless synchronised, in a custom loop; XLA under the former.",
            "The metric r2 in float64; a custom loop in float16, which scales its loss in another way.",
            MIXED,
            "fit with a layer frozen in mid-training; tied weights that are not one shared layer.",
        ),
        excluded={"accumulate": "the optimizers of tf_keras have no gradient_accumulation_steps"},
    ),
    world=replicas_of,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=(),
    needs="tf-keras",
    files=("tf_keras/src/",),
    cost=8.0,
)
