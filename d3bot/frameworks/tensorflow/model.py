"""The body of `build()` for a tensorflow case: a `keras.Sequential` where the layers are a chain, else functional."""

from d3bot.frameworks.code import data_flow
from d3bot.frameworks.layers import Shape, consumers, infer_shapes
from d3bot.frameworks.tensorflow.layers import call, constructor, sequential_form
from d3bot.spec import Case, Layer


def tie_root(case: Case, name: str) -> str:
    """Return the layer whose object a layer uses: itself, or where its chain of ties ends."""
    ties = {tie.layer: tie.to for tie in case.tie}
    while name in ties:
        name = ties[name]
    return name


def tie_obstacle(case: Case) -> str | None:
    """Return why a tie cannot be one shared Keras layer, in one sentence; None if all of them can."""
    shapes = infer_shapes(case)
    for tie in case.tie:
        layer, to = case.layer(tie.layer), case.layer(tie_root(case, tie.to))
        if layer.op != "linear" or to.op != "linear":
            return f"Keras shares layers, not single weights: {tie.layer} and {tie.to} are not two linear layers"
        same = layer.options == to.options and shapes[layer.inputs[0]][-1] == shapes[to.inputs[0]][-1]
        if not same:
            return f"{tie.layer} and {tie.to} differ in shape or options, so one Dense layer cannot serve as both"
    return None


def freeze_events(case: Case) -> list[tuple[int, str, bool]]:
    """Return (step, layer, whether it trains from then on) of what changes in the loop, in the order of the steps.

    A layer that is frozen from the start for good is frozen in `build`; one that thaws later is frozen in the loop,
    after the optimizer has seen its variables.
    """
    events = []
    for freeze in case.freeze:
        if freeze.at > 0 or freeze.until is not None:
            events.append((freeze.at, freeze.layer, False))
        if freeze.until is not None:
            events.append((freeze.until, freeze.layer, True))
    return sorted(events)


def build_lines(case: Case) -> list[str]:
    """Return the lines of `build()` after the seed is set.  SpecError if the case does not fit the catalogue."""
    shapes = infer_shapes(case)
    frozen = [
        f'model.get_layer("{tie_root(case, freeze.layer)}").trainable = False'
        for freeze in case.freeze
        if freeze.at == 0 and freeze.until is None
    ]
    lines, model = _sequential(case, shapes) or _functional(case, shapes)
    return [*lines, f"model = {model}", *frozen, "return model"] if frozen else [*lines, f"return {model}"]


def _sequential(case: Case, shapes: dict[str, Shape]) -> tuple[list[str], str] | None:
    chain = [case.inputs[0].name, *(layer.name for layer in case.layers)]
    is_chain = len(case.inputs) == 1 and all(layer.inputs == (chain[i],) for i, layer in enumerate(case.layers))
    forms = [sequential_form(case, layer, shapes) for layer in case.layers]
    if not is_chain or case.tie or not all(forms):
        return None
    parts = [f"keras.Input({_input(case, chain[0])})", *(form for form in forms if form), *_in_float32(case)]
    return [], f'keras.Sequential([{", ".join(parts)}], name="model")'


def _functional(case: Case, shapes: dict[str, Shape]) -> tuple[list[str], str]:
    lines = [f'{item.name} = keras.Input({_input(case, item.name)}, name="{item.name}")' for item in case.inputs]
    roots = {tie_root(case, tie.layer) for tie in case.tie}
    lines += [f"shared_{name} = {constructor(case, case.layer(name), shapes)}" for name in sorted(roots)]

    def written(layer: Layer, inputs: list[str]) -> str:
        root = tie_root(case, layer.name)
        return call(case, layer, inputs, shapes, f"shared_{root}" if root in roots else None)

    flow = data_flow(case.layers, consumers(case), written)
    names = [item.name for item in case.inputs]
    inputs = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    result = "".join(f"{layer}({flow.result})" for layer in _in_float32(case)) or flow.result
    return [*lines, *flow.lines], f"keras.Model({inputs}, {result})"


def _in_float32(case: Case) -> list[str]:
    """Return the layer that gives a model of lower precision its output in float32, if the case has one.

    "The linear activation is an identity function. So this simply casts 'x' to float32" (TensorFlow guide Mixed
    precision, 2.21).
    """
    return ['keras.layers.Activation("linear", dtype="float32")'] if case.mixed != "none" else []


def _input(case: Case, name: str) -> str:
    item = next(item for item in case.inputs if item.name == name)
    return f"{item.shape}" + (', dtype="int32"' if item.vocab else "")
