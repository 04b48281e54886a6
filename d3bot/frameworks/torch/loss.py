"""How a case's loss is written in PyTorch."""

from d3bot.frameworks.layers import infer_shapes
from d3bot.frameworks.rendering import class_weights
from d3bot.spec import Case

IGNORED = -100
"""The target that cross_entropy ignores unless told otherwise ("ignore_index ... Default: -100", 2.13)."""


def loss_of(case: Case, output: str) -> str:
    """Return the expression of the loss of `output` against `target`."""
    name = "F.cross_entropy" if case.loss == "cross_entropy" else "F.mse_loss"
    options = ""
    if case.weights == "class":
        classes = infer_shapes(case)[case.layers[-1].name][0]
        options += f", weight=torch.tensor({class_weights(classes)})"
    if case.reduction == "sum":
        options += ', reduction="sum"'
    return f"{name}({output}, target{options})"
