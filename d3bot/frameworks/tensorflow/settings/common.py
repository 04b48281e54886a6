"""What every TensorFlow family asks of a case."""

import math

from d3bot.frameworks.base import EPSILON
from d3bot.frameworks.layers import KINDS, drops, infer_shapes
from d3bot.frameworks.tensorflow.fitting import LABEL_METRICS
from d3bot.frameworks.tensorflow.layers import BATCH_NORMS
from d3bot.frameworks.tensorflow.model import tie_obstacle, tie_root
from d3bot.spec import Case, Setting

UPDATE_FIELDS = (
    *("reduction", "ignored", "weights", "l2", "accumulate", "groups", "ema", "mixed", "compiler", "running_mean"),
)
"""Fields of a case that change the update: what writes the update out by itself has none of them."""

EAGER = "Nowhere: the reference runs eagerly, and the rewriting of a graph rounds otherwise"
"""Why no family is compared to the last bit; some add what was measured."""

MIXED = "Lower precision with Adam, clipping, batch norm or a sum: one rounding in them has no bound."
"""What breaks every family that trains in lower precision; `case_obstacle` says which of it."""


def replicas_of(setting: Setting) -> int:
    """Return the number of replicas."""
    return setting.integer("replicas")


def keeps_copies(case: Case, replicas: int) -> bool:
    """Whether each replica moves its statistics by its own rows, so that the copies must be brought together."""
    return case.loop == "custom" and "batch_norm" in case.ops() and replicas > 1


def case_obstacle(case: Case) -> str | None:
    """Return why Keras has no such training on one device either, in one sentence; None if it has."""
    frozen = {tie_root(case, freeze.layer) for freeze in case.freeze if freeze.until is None}
    if all(tie_root(case, layer.name) in frozen for layer in case.layers if KINDS[layer.op].trainable):
        return "every layer with weights is frozen in the end, so there is no gradient to compare"
    return (
        tie_obstacle(case)
        or _metric_obstacle(case)
        or (_mixed_obstacle(case) if case.mixed != "none" else None)
        or (_custom_obstacle(case) if case.loop == "custom" else _keras_loop_obstacle(case))
        or (_accumulation_obstacle(case) if case.accumulate > 1 else None)
    )


def replica_obstacle(case: Case, replicas: int) -> str | None:
    """Return why rows that are spread over `replicas` give no sum of shares, in one sentence; None if they do.

    What a strategy with several replicas in sync asks beyond `case_obstacle`.
    """
    if case.accumulate > 1 and case.loop == "custom":
        return NO_ACCUMULATION
    if replicas == 1:
        return None
    uneven = case.batch // case.accumulate % replicas != 0
    if case.batch < replicas:
        return f"a batch of {case.batch} leaves a replica of {replicas} without a row"
    if case.loop == "fit" and uneven:
        return f"fit takes the mean over replicas, which have unequal shares of {case.batch // case.accumulate} rows"
    if case.ignored and case.reduction == "mean" and (case.loop == "fit" or case.evaluate):
        return "Keras divides by the rows that count on each replica, which are not equally many on all of them"
    if case.running_mean and uneven:
        return "the mean over replicas with unequal shares of a batch is not the mean over its rows"
    if drops(case):
        return "each replica draws its own zeros, and no document says from which state"
    if case.compiler == "xla" and case.loop == "custom" and "sync_batch_norm" in case.ops():
        return (
            "a nested tf.function that contains a synchronization point, as the losses that XLA compiles do with "
            'synchronised batch norm: "Such behaviors are not yet supported" '
            "(tf.distribute.ReplicaContext.merge_call, 2.21)"
        )
    if "batch_norm" in case.ops() and case.loop == "custom":
        if uneven:
            return "no document says which rows a replica gets of a batch that does not divide; batch norm sees them"
        if case.batch // replicas < 2:
            return "batch norm in training needs at least two rows on every replica"
        if "sync_batch_norm" in case.ops():
            return "statistics of a replica's own rows beside those of the global batch have no reference here"
    return None


def rounding(case: Case, setting: Setting) -> float:
    """Return the rounding unit of the type that a replica computes the gradients of its rows in; 0 if of `case.dtype`.

    Each replica rounds what its own rows add up to, one device what all rows do.
    """
    return EPSILON.get(case.mixed, 0.0)


EXTRAS_SOURCE = (
    '"Scales the sum of the given regularization losses by number of replicas" '
    '(tf.nn.scale_regularization_loss, 2.21); "MEAN: Take the arithmetic mean ("average") of the updates across '
    'replicas" (tf.VariableAggregation, 2.21); "The shadow variables are initialized with the same initial values as '
    'the trained variables"; "shadow_variable = decay * shadow_variable + (1 - decay) * variable" '
    '(tf.train.ExponentialMovingAverage, 2.21); "train_on_batch: Runs a single gradient update on a single batch of '
    'data" (keras.Model, 3.15)'
)
"""What the documents promise of penalties, of state that replicas update, and of the averages of weights."""
NO_ACCUMULATION = (
    "the optimizer updates under a condition, which a strategy that merges replicas refuses (keras-team/keras#20582): "
    '"Such behaviors are not yet supported" (tf.distribute.ReplicaContext.merge_call, 2.21)'
)
"""Why no custom loop under such a strategy accumulates; that `fit` does not either is a seed."""
ONE_DEVICE = (
    '"XLA cluster runs on exactly one device, and it can not read or write to tf.Variable located on a different '
    'device" (XLA, Known issues, 2.21)'
)
"""Why nothing is compiled where variables are on another device than what computes with them."""


def _metric_obstacle(case: Case) -> str | None:
    labels = [name for name in case.metrics if name in LABEL_METRICS]
    numbers = [name for name in case.metrics if name not in LABEL_METRICS]
    if labels and case.loss != "cross_entropy":
        return f"the metric {labels[0]} compares class labels and needs the loss cross_entropy"
    if numbers and case.loss == "cross_entropy":
        return f"the metric {numbers[0]} compares numbers and has no meaning for class labels"
    if "r2" in case.metrics and len(infer_shapes(case)[case.layers[-1].name]) > 1:
        return "the metric r2 takes one vector an example"
    if "top_2" in case.metrics and case.dtype == "float64":
        return "TensorFlow has no kernel for the metric top_2 in float64"
    return None


def _keras_loop_obstacle(case: Case) -> str | None:
    if any(freeze.at > 0 or freeze.until for freeze in case.freeze):
        return f"under {case.loop} a layer frozen in mid-training has no effect until compile is called again"
    if case.weights == "class" and case.ignored:
        return "class_weight has no entry for the label of ignored rows"
    if case.evaluate and case.reduction == "sum":
        return "no document says what evaluate makes of the sums of pieces of unequal size"
    return None


def _mixed_obstacle(case: Case) -> str | None:
    if case.optimizer.name != "sgd":
        return "Adam makes a whole step of one rounding near zero, and lower precision has many"
    if case.clip or set(BATCH_NORMS) & case.ops():
        return "what a norm or a variance makes of one rounding in lower precision has no bound here"
    if case.reduction == "sum":
        return "how a sum is rounded in lower precision depends on how many rows it has"
    return None


def _custom_obstacle(case: Case) -> str | None:
    if case.accumulate > 1 and (case.ema or case.running_mean):
        return "an average that the step updates moves with every micro-batch"
    if case.compiler == "xla" and {"lstm", "gru"} & case.ops():
        return (
            '"Support for TensorList crossing the XLA/TF boundary is not implemented": what loops over a sequence is '
            "compiled with its derivative or not at all, and a loop of one's own compiles its losses"
        )
    return None


def _accumulation_obstacle(case: Case) -> str | None:
    if case.loop == "train_on_batch":
        return "train_on_batch takes one batch, which is one micro-batch"
    if case.reduction == "sum":
        return "Keras accumulates the average of the micro-batches' gradients, which is not their sum"
    if case.ignored:
        return "micro-batches with unequal numbers of rows that count have no common divisor"
    if set(BATCH_NORMS) & case.ops():
        return "batch norm sees one micro-batch at a time"
    if math.frexp(case.optimizer.decay_rate)[0] != 0.5:
        return "a schedule is computed in float32; every few micro-batches' rate is exact for powers of two only"
    return None
