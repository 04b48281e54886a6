"""What Keras' own training loops are given: the compiled loss, metrics, weights, and which logs are looked at."""

from collections.abc import Mapping

from d3bot.frameworks.base import View
from d3bot.frameworks.layers import Shape
from d3bot.frameworks.tensorflow.data import IGNORED, class_weights
from d3bot.spec import Case

_METRICS = {
    "accuracy": "SparseCategoricalAccuracy(name='accuracy')",
    "top_2": "SparseTopKCategoricalAccuracy(2, name='top_2')",
    "cross_entropy": "SparseCategoricalCrossentropy(name='cross_entropy', from_logits=True)",
    "mae": "MeanAbsoluteError(name='mae')",
    "mse": "MeanSquaredError(name='mse')",
    "rmse": "RootMeanSquaredError(name='rmse')",
    "r2": "R2Score(name='r2')",
}
LABEL_METRICS = ("accuracy", "top_2", "cross_entropy", "iou")
"""Metrics of class labels; the others compare numbers."""


def compiled_loss(case: Case) -> str:
    """Return the loss object that `compile` takes."""
    arguments = ["from_logits=True"] if case.loss == "cross_entropy" else []
    if case.ignored:
        arguments.append(f"ignore_class={IGNORED}")
    if case.reduction == "sum":
        arguments.append('reduction="sum"')
    name = "SparseCategoricalCrossentropy" if case.loss == "cross_entropy" else "MeanSquaredError"
    return f"keras.losses.{name}({', '.join(arguments)})"


def compiled_metrics(case: Case, shapes: Mapping[str, Shape]) -> str:
    """Return the argument of `compile` for the metrics, or nothing."""
    if not case.metrics:
        return ""
    classes = shapes[case.layers[-1].name][0]
    metrics = _METRICS | {"iou": f"MeanIoU({classes}, name='iou', sparse_y_pred=False)"}
    return f", metrics=[{', '.join('keras.metrics.' + metrics[name] for name in case.metrics)}]"


def weight_argument(case: Case, shapes: Mapping[str, Shape]) -> str:
    """Return the argument of `fit` for the weights of rows or classes, or nothing."""
    if case.weights == "sample":
        return ", sample_weight=weight"
    table = dict(enumerate(class_weights(case, shapes[case.layers[-1].name][0])))
    return f", class_weight={table}" if table else ""


def history(case: Case, view: View) -> dict[str, str]:
    """Return name in the logs -> name of the array, for what the view observes."""
    names = {"loss": "loss 0"} if "loss" in view.roles else {}
    metrics = [name for name in case.metrics if view.metric in ("", name)] if "metric" in view.roles else []
    return names | {name: f"metric {name}" for name in metrics}
