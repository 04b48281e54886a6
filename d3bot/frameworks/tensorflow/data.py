"""The body of `data(step)`: the rows of a step's batch, drawn with numpy."""

from collections.abc import Mapping

from d3bot.frameworks.layers import Shape
from d3bot.spec import Case

IGNORED = -1
"""The target of a row that the loss leaves out; Keras calls it `ignore_class`."""


def data_names(case: Case) -> list[str]:
    """Return the names of what `data` returns, in order: inputs, target and, where rows have weights, those."""
    weight = ["weight"] if case.weights == "sample" or class_weights_as_rows(case) else []
    return [*(item.name for item in case.inputs), "target", *weight]


def class_weights(case: Case, classes: int) -> list[float]:
    """Return a weight for each class, between 0.5 and 1.5 and no two neighbours equal; [] if the case has none."""
    return [0.5 + (3 * i % 5) / 4 for i in range(classes)] if case.weights == "class" else []


def class_weights_as_rows(case: Case) -> bool:
    """Whether a row's weight is looked up by its class in `data`, as a loop of one's own does it; `fit` has a table."""
    return case.weights == "class" and case.loop == "custom"


def data_lines(case: Case, shapes: Mapping[str, Shape]) -> list[str]:
    """Return the lines that draw the batch of a step from `rng`."""
    cast = '.astype("float32")' if case.dtype == "float32" else ""
    lines = []
    for item in case.inputs:
        size = (case.batch, *item.shape)
        if item.vocab:
            lines.append(f"{item.name} = rng.integers({item.vocab}, size={size})")
        elif case.slope:
            rise = f"np.linspace(0, {case.slope}, {case.batch}).reshape({(-1, *(1 for _ in item.shape))})"
            drawn = f"rng.standard_normal({size}) + {rise}"
            lines.append(f"{item.name} = ({drawn}){cast}" if cast else f"{item.name} = {drawn}")
        else:
            lines.append(f"{item.name} = rng.standard_normal({size}){cast}")
    output = shapes[case.layers[-1].name]
    if case.loss == "cross_entropy":
        lines.append(f"target = rng.integers({output[0]}, size={case.batch})")
    else:
        lines.append(f"target = rng.standard_normal({(case.batch, *output)}){cast}")
    if case.weights == "sample":
        lines.append(f"weight = rng.uniform(0.5, 1.5, size={case.batch}){cast}")
    elif class_weights_as_rows(case):
        lines.append(f"weight = np.take({class_weights(case, output[0])}, target){cast}")
    if case.ignored:
        lines.append(f"target[:{case.ignored}] = {IGNORED}  # the loss ignores these rows")
    return lines
