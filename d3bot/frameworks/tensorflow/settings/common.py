"""What every TensorFlow family asks of a case."""

from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.tensorflow.model import tie_obstacle, tie_root
from d3bot.spec import Case


def keeps_copies(case: Case, replicas: int) -> bool:
    """Whether each replica moves its statistics by its own rows, so that the copies must be brought together."""
    return case.loop == "custom" and "batch_norm" in case.ops() and replicas > 1


def norm_obstacle(case: Case, replicas: int) -> str | None:
    """Return why batch norm on the replicas' own rows has no definition here, in one sentence; None if it has."""
    if "batch_norm" not in case.ops():
        return None
    if case.batch % replicas:
        return "no document says which rows a replica gets of a batch that does not divide, and batch norm sees them"
    if case.loop == "custom" and case.batch // replicas < 2:
        return "batch norm in training needs at least two rows on every replica"
    return None


def case_obstacle(case: Case) -> str | None:
    """Return why Keras has no such training on one device either, in one sentence; None if it has."""
    if "accuracy" in case.metrics and case.loss != "cross_entropy":
        return "the metric accuracy compares class labels and needs the loss cross_entropy"
    if "mae" in case.metrics and case.loss == "cross_entropy":
        return "the metric mae compares numbers and has no meaning for class labels"
    if case.loop == "fit" and any(freeze.at > 0 for freeze in case.freeze):
        return "under fit a layer frozen in mid-training has no effect until compile is called again"
    frozen = {tie_root(case, freeze.layer) for freeze in case.freeze}
    if all(tie_root(case, layer.name) in frozen for layer in case.layers if KINDS[layer.op].trainable):
        return "every layer with weights is frozen in the end, so there is no gradient to compare"
    return tie_obstacle(case)
