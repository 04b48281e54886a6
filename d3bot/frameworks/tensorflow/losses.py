"""How the loss of a custom loop is written: one an example, the whole batch's, and one replica's share of it."""

from collections.abc import Mapping

from d3bot.frameworks.layers import CONVOLUTIONS, Shape
from d3bot.frameworks.tensorflow.data import IGNORED, data_names
from d3bot.frameworks.tensorflow.model import tie_root
from d3bot.spec import Case


def model_inputs(case: Case) -> str:
    """Return the expression that a Keras model is called with: one name, or a list of them."""
    names = [item.name for item in case.inputs]
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def example_losses(case: Case, shapes: Mapping[str, Shape]) -> str:
    """Return one loss an example: Keras takes the mean over the last axis only, those before are averaged here."""
    output = f"model({model_inputs(case)}, training=True)"
    if case.loss == "cross_entropy":
        ignore = f", ignore_class={IGNORED}" if case.ignored else ""
        return f"keras.losses.sparse_categorical_crossentropy(target, {output}, from_logits=True{ignore})"
    losses = f"keras.losses.mean_squared_error(target, {output})"
    rank = len(shapes[case.layers[-1].name])
    return losses if rank == 1 else f"tf.reduce_mean({losses}, axis={1 if rank == 2 else (1, 2)})"


def penalised(case: Case) -> list[str]:
    """Return the Keras layers whose squared kernels are added to the loss, each once; [] if the case has no l2."""
    kinds = ("linear", *CONVOLUTIONS)
    return sorted({tie_root(case, layer.name) for layer in case.layers if layer.op in kinds}) if case.l2 else []


def whole_loss(case: Case, rows: str) -> str:
    """Return the plain definition over all `rows`, an argument list of what `data` returns."""
    losses = _weighted(case, rows)
    loss = f"tf.reduce_sum({losses})" if case.reduction == "sum" else f"tf.reduce_mean({losses})"
    return loss + (" + penalty(model)" if penalised(case) else "")


def share_loss(case: Case, rows: str, uneven: bool) -> str:
    """Return one replica's share, so that the sum over replicas is the whole loss; losses by XLA where it compiles.

    The mean is `tf.nn.compute_average_loss`: "obtained by summing the per_example_loss and dividing by
    global_batch_size"; a penalty is divided by the number of replicas with `tf.nn.scale_regularization_loss`.
    """
    if case.reduction == "sum":
        loss = f"tf.reduce_sum({_weighted(case, rows)})"
    else:
        weight = ", weight" if case.weights != "none" else ""
        size = ", global_batch_size=BATCH" if uneven else ""
        loss = f"tf.nn.compute_average_loss({_unweighted(case, rows)}{weight}{size})"
    loss = loss.replace("losses_of(", "compiled(") if case.compiler == "xla" else loss
    return loss + (" + tf.nn.scale_regularization_loss(penalty(model))" if penalised(case) else "")


def rows_argument(case: Case) -> str:
    """Return the parameters of a function that takes the rows of a batch: `*rows` where they stay together."""
    return "*rows" if case.weights == "none" else ", ".join(data_names(case))


def _unweighted(case: Case, rows: str) -> str:
    if case.weights == "none":
        return f"losses_of(model, {rows})"
    return f"losses_of(model, {', '.join(data_names(case)[:-1])})"


def _weighted(case: Case, rows: str) -> str:
    return _unweighted(case, rows) if case.weights == "none" else f"weight * {_unweighted(case, rows)}"
