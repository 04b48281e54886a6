"""Writing a model's data flow as Python lines, shared by the frameworks."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
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


def data_flow(layers: Sequence[Layer], reads: Mapping[str, int], call: Call, left_out: Container[str] = ()) -> Flow:
    """Return the body that computes the last layer, one line a layer, activations written around their input.

    `reads` says how many layers read each name: what is read once by an activation needs no variable of its own.
    Instead of a layer that is `left_out` its first input goes on.
    """
    inline = {
        layer.inputs[0]
        for layer in layers
        if layer.op in ACTIVATIONS and reads.get(layer.inputs[0]) == 1 and layer.name not in left_out
    }
    expressions: dict[str, str] = {}
    lines: list[str] = []
    for layer in layers:
        inputs = [expressions.get(name, name) for name in layer.inputs]
        text = inputs[0] if layer.name in left_out else call(layer, inputs)
        if layer is layers[-1]:
            return Flow(tuple(lines), text)
        if layer.name in inline or layer.name in left_out:
            expressions[layer.name] = text
        else:
            lines.append(f"{layer.name} = {text}")
    raise ValueError("a model has at least one layer")


def mixed(shares: str, experts: Sequence[str]) -> str:
    """Return the sum of experts, each times its share in the last axis of `shares`."""
    return " + ".join(f"{shares}[..., {i}:{i + 1}] * {expert}" for i, expert in enumerate(experts))


_LOOP = re.compile(r"^( *)for step in range\(STEPS\):$")
_NO_FIELD = re.compile(r'\bf("[^"{}\n]*")')


def unrolled(text: str) -> str:
    """Return the text of a one-step script without its step loops and, if nothing else needs it, without `STEPS`.

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
        lines.append(line[4:] if loop is not None and line.strip() else line)
    plain = re.sub(r"(?<!def )data\(step\)", "data(0)", "\n".join(lines)).replace("step {step} ", "step 0 ")
    plain = _NO_FIELD.sub(r"\1", plain.replace("data(STEPS)", "data(1)")) + "\n"
    return plain.replace("STEPS = 1\n", "") if plain.count("STEPS") == 1 else plain


def tidy(text: str) -> str:
    """Return a script's text without blank lines inside of functions: templates leave some where nothing is rendered.

    What comes before the first definition stays as it is.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(("def ", "class "))), len(lines))
    kept: list[str] = []
    for line in reversed(lines[start:]):
        inside = bool(kept) and kept[-1].startswith(" ") and not kept[-1].lstrip().startswith(("def ", "@"))
        if line.strip() or not inside:
            kept.append(line)
    return "\n".join([*lines[:start], *reversed(kept)]) + "\n"
