"""Writing a model's data flow as Python lines, shared by the frameworks."""

import re
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


_LOOP = re.compile(r"^( *)for step in range\(STEPS\):$")
_NO_FIELD = re.compile(r'\bf("[^"{}\n]*")')


def unrolled(text: str) -> str:
    """Return the text of a one-step script without its step loops and without `STEPS`.

    The body of each `for step in range(STEPS):` moves one level to the left, and the step is written as 0.
    """
    lines: list[str] = []
    loop: int | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        match = _LOOP.match(line)
        if match:
            loop = len(match[1])
            continue
        if loop is not None and line.strip() and indent <= loop:
            loop = None
        if line.startswith("STEPS = "):
            continue
        lines.append(line[4:] if loop is not None and line.strip() else line)
    plain = re.sub(r"(?<!def )data\(step\)", "data(0)", "\n".join(lines)).replace("step {step} ", "step 0 ")
    return _NO_FIELD.sub(r"\1", plain.replace("data(STEPS)", "data(1)")) + "\n"
