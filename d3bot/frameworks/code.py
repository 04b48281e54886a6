"""Writing a model's data flow as Python lines, shared by the frameworks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from d3bot.frameworks.layers import ACTIVATIONS
from d3bot.spec import Layer

Call = Callable[[Layer, list[str]], str]
"""(layer, expressions of its inputs) -> the expression of its output."""


@dataclass(frozen=True)
class Flow:
    """A function body: assignments in order, then the expression that is returned."""

    lines: tuple[str, ...]
    result: str


def data_flow(layers: Sequence[Layer], reads: Mapping[str, int], call: Call) -> Flow:
    """Return the body that computes the last layer, one line a layer, activations written around their input.

    `reads` says how many layers read each name: what is read once by an activation needs no variable of its own.
    """
    inline = {layer.inputs[0] for layer in layers if layer.op in ACTIVATIONS and reads.get(layer.inputs[0]) == 1}
    expressions: dict[str, str] = {}
    lines: list[str] = []
    for layer in layers:
        text = call(layer, [expressions.get(name, name) for name in layer.inputs])
        if layer is layers[-1]:
            return Flow(tuple(lines), text)
        if layer.name in inline:
            expressions[layer.name] = text
        else:
            lines.append(f"{layer.name} = {text}")
    raise ValueError("a model has at least one layer")
