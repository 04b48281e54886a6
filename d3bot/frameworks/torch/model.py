"""The model of a torch case as text: an `nn.Sequential` where a chain of modules is all there is, else a class."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from d3bot.frameworks.code import data_flow
from d3bot.frameworks.layers import KINDS, Shape, consumers, infer_shapes
from d3bot.frameworks.torch.layers import SCALE, call, constructor, module_form
from d3bot.spec import Case, Layer

_STAGES = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")
"""Classes of pipeline stages; there are no more stages than these."""


@dataclass(frozen=True)
class Part:
    """A module of the script.  `expression` makes it; `definition` is the class it needs, or empty."""

    definition: str
    expression: str
    paths: dict[str, str]
    """Layer name -> attribute path below the module, as `named_parameters` has it."""
    skips: dict[int, list[str]] = field(default_factory=dict)
    """Step -> layers that `forward` leaves out while their names are in the module's `skipped`."""


@dataclass(frozen=True)
class ModelText:
    """The whole model: its parts (one, or one a pipeline stage) and where each layer's parameters live."""

    parts: tuple[Part, ...]
    paths: dict[str, str]
    """Layer name -> dotted path below what `build()` returns."""
    helpers: str = ""
    """Definitions that the parts need, or empty."""

    @property
    def staged(self) -> bool:
        """Whether `build()` returns an `nn.Sequential` of pipeline stages."""
        return len(self.parts) > 1

    def skipped(self, steps: int, root: str = "model") -> list[str]:
        """Return the lines that say, at the start of each of so many steps, which layers are left out of it."""
        owners = [f"{root}[{i}]" if self.staged else root for i in range(len(self.parts))]
        pairs = zip(owners, self.parts, strict=True)
        return [
            f"{owner}.skipped = {part.skips[0] if steps == 1 else f'{part.skips}.get(step, [])'}"
            for owner, part in pairs
            if part.skips
        ]

    def access(self, name: str, root: str = "model") -> str:
        """Return the expression of a layer's module: `model.fc` or `model[0]`."""
        text = root
        for step in self.paths[name].split("."):
            text += f"[{step}]" if step.isdigit() else f".{step}"
        return text


def model_text(case: Case, cuts: Sequence[int] = ()) -> ModelText:
    """Return the model's text; the layers between two `cuts` (indices of layers) become a pipeline stage."""
    shapes = infer_shapes(case)
    helpers = SCALE if "scale" in case.ops() else ""
    if not cuts:
        part = _part(case, case.layers, [item.name for item in case.inputs], "Model", shapes)
        return ModelText((part,), dict(part.paths), helpers)
    parts, inputs = [], [item.name for item in case.inputs]
    for name, (start, end) in zip(_STAGES, pairwise((0, *cuts, len(case.layers))), strict=False):
        parts.append(_part(case, case.layers[start:end], inputs, name, shapes))
        inputs = [case.layers[end - 1].name]
    paths = {name: f"{i}.{path}" for i, part in enumerate(parts) for name, path in part.paths.items()}
    return ModelText(tuple(parts), paths, helpers)


def pipeline_cuts(case: Case) -> list[int]:
    """Return every index at which one tensor alone crosses from the layers before to the layers after.

    No tie crosses the cut.
    """
    cuts = []
    for cut in range(1, len(case.layers)):
        before, after = case.layers[:cut], case.layers[cut:]
        crossing = {source for layer in after for source in layer.inputs if source not in {item.name for item in after}}
        names = {layer.name for layer in before}
        tied = any((tie.layer in names) != (tie.to in names) for tie in case.tie)
        if crossing == {before[-1].name} and not tied:
            cuts.append(cut)
    return cuts


def _part(case: Case, layers: Sequence[Layer], inputs: list[str], name: str, shapes: dict[str, Shape]) -> Part:
    forms = [module_form(case, layer, shapes) for layer in layers]
    chain = [inputs[-1], *(layer.name for layer in layers)]
    is_chain = len(inputs) == 1 and all(layer.inputs == (chain[i],) for i, layer in enumerate(layers))
    names = {layer.name for layer in layers}
    unused = {skip.layer for skip in case.skips if skip.at is None}
    skips: dict[int, list[str]] = {}
    for skip in case.skips:
        if skip.at is not None and skip.layer in names - unused:
            skips.setdefault(skip.at, []).append(skip.layer)
    conditional = {layer for step in skips.values() for layer in step}
    casts = {cast.layer: cast.dtype for cast in case.casts}
    if is_chain and all(forms) and not names & (unused | conditional | set(casts)):
        expression = f"nn.Sequential({', '.join(form for form in forms if form)})"
        return Part("", expression, {layer.name: str(i) for i, layer in enumerate(layers)})
    lines = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for layer in layers:
        made = constructor(case, layer, shapes)
        if made:
            lines.append(f"        self.{layer.name} = {made}")
    if skips:
        lines.append("        self.skipped = []  # layers left out of forward")

    def written(layer: Layer, args: list[str]) -> str:
        text = call(layer, args, shapes)
        if layer.name in casts:
            real = 1 if KINDS[layer.op].tokens else 0  # from which argument on they are real numbers
            low = [*args[:real], *(f"{arg}.to(torch.{casts[layer.name]})" for arg in args[real:])]
            text = f"{call(layer, low, shapes)}.to(torch.{case.dtype})"
        return f'({args[0]} if "{layer.name}" in self.skipped else {text})' if layer.name in conditional else text

    flow = data_flow(layers, consumers(case), written, unused)
    lines += ["", f"    def forward(self, {', '.join(inputs)}):"]
    lines += [f"        {line}" for line in flow.lines] + [f"        return {flow.result}"]
    return Part("\n".join(lines), f"{name}()", {layer.name: layer.name for layer in layers}, skips)
