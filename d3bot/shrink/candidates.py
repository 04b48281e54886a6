"""Smaller trials: every way to take one thing away from a Case or a Setting, the largest steps first."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from d3bot.frameworks import canonical_setting, obstacle
from d3bot.frameworks.layers import KINDS, infer_shapes
from d3bot.spec import Case, Optimizer, Setting, SpecError

_SIZES = ("units", "channels", "dim")
_PLAIN = ("reduction", "ignored", "weights", "l2", "accumulate", "ema", "mixed", "reentrant", "compiler")
"""Fields that are put back to what they are by default, one at a time."""
_LISTS = ("freeze", "tie", "metrics", "groups", "casts", "recompute", "skips")
"""Fields of which one item at a time is left out."""


def smaller(case: Case, setting: Setting) -> Iterator[tuple[Case, Setting]]:
    """Yield every valid and applicable trial that is one step smaller; the same order for the same trial."""
    for candidate in _smaller_settings(setting):
        try:
            reduced_setting = canonical_setting(case.framework, candidate)
        except SpecError:
            continue
        if reduced_setting != setting:
            yield from _valid(case, reduced_setting)
    for change in _smaller_cases(case):
        try:
            reduced = Case.model_validate(case.model_dump(mode="json") | change)
        except ValidationError:
            continue
        if reduced != case:
            yield from _valid(reduced, setting)


def _valid(case: Case, setting: Setting) -> Iterator[tuple[Case, Setting]]:
    try:
        infer_shapes(case)
        if obstacle(case, setting) is None:
            yield case, setting
    except SpecError:
        return


def _smaller_settings(setting: Setting) -> Iterator[Setting]:
    for name, value in setting.options:
        rest = tuple((other, kept) for other, kept in setting.options if other != name)
        yield Setting(family=setting.family, options=rest)
        if isinstance(value, int) and not isinstance(value, bool) and value > 2:
            yield Setting(family=setting.family, options=(*rest, (name, 2)))


def _smaller_cases(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the fields to replace."""
    yield from _without_layers(case)
    if case.steps > 1:
        yield {"steps": 1} | _of_first_step(case)
        last = _last_event(case)
        if last + 1 < case.steps:
            yield {"steps": last + 1}
    if case.clip:
        yield {"clip": None}
        yield {"clip": case.clip.model_dump() | {"order": "2"}}
    for field in _PLAIN:
        yield {field: Case.model_fields[field].default}
    plain = Optimizer()
    if case.optimizer != plain:
        yield {"optimizer": plain.model_dump()}
        for field in ("decay_rate", "weight_decay", "momentum", "nesterov"):
            kept = {name: value for name, value in case.optimizer.model_dump().items() if name != field}
            if field == "momentum":
                kept["nesterov"] = False
            yield {"optimizer": kept}
    for field in _LISTS:
        items = list(case.model_dump(mode="json")[field])
        for i in range(len(items)):
            yield {field: items[:i] + items[i + 1 :]}
    yield from _plainer_items(case)
    if case.loop != "custom" and not case.metrics:
        yield {"loop": "custom"}
    if case.dtype != "float64":
        yield {"dtype": "float64"}
    if case.loss != "mse":
        yield {"loss": "mse"}
    yield from _smaller_sizes(case)


def _last_event(case: Case) -> int:
    """Return the last step in which anything of the recipe changes."""
    freezes = [at for item in case.freeze for at in (item.at, item.until)]
    steps = [*freezes, *(item.at for item in case.groups), *(item.at for item in case.skips)]
    return max((at for at in steps if at is not None), default=0)


def _of_first_step(case: Case) -> dict[str, Any]:
    """Return what changes during training as it is in the first step."""
    return {
        "freeze": [item.model_dump() | {"until": None} for item in case.freeze if item.at == 0],
        "groups": [item.model_dump() for item in case.groups if item.at == 0],
        "skips": [item.model_dump() for item in case.skips if not item.at],
    }


def _plainer_items(case: Case) -> Iterator[dict[str, Any]]:
    """Yield freezes that last, groups with one option of their own less, and groups that are there from the start."""
    fields: tuple[tuple[str, str, Any], ...] = (
        ("freeze", "until", None),
        ("groups", "at", 0),
        ("groups", "lr", None),
        ("groups", "weight_decay", None),
    )
    for field, option, plain in fields:
        items = list(case.model_dump(mode="json")[field])
        for i, item in enumerate(items):
            yield {field: [*items[:i], item | {option: plain}, *items[i + 1 :]]}


def _without_layers(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the model cut off at each layer, then without each layer, its readers reading one of its inputs."""
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    for length in range(1, len(layers)):
        yield _kept(case, layers[:length])
    for i, layer in enumerate(layers):
        for source in dict.fromkeys(layer["inputs"]):
            rest = []
            for other in layers[:i] + layers[i + 1 :]:
                inputs = [source if name == layer["name"] else name for name in other["inputs"]]
                if KINDS[other["op"]].arity[0] > 1 and len(set(inputs)) == 1:
                    inputs = inputs[:2]
                rest.append(other | {"inputs": inputs})
            if rest:
                yield _kept(case, rest)


def _kept(case: Case, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the case's fields with these layers: layers and inputs that nothing reads are left out as well."""
    needed = {layers[-1]["name"]}
    kept = []
    for layer in reversed(layers):
        if layer["name"] in needed:
            needed.update(layer["inputs"])
            kept.append(layer)
    names = {layer["name"] for layer in kept}
    return {
        "layers": kept[::-1],
        "inputs": [item.model_dump(mode="json") for item in case.inputs if item.name in needed],
        "freeze": [item.model_dump() for item in case.freeze if item.layer in names],
        "tie": [item.model_dump() for item in case.tie if {item.layer, item.to} <= names],
        "groups": [
            item.model_dump() | {"layers": [name for name in item.layers if name in names]} for item in case.groups
        ],
        "casts": [item.model_dump() for item in case.casts if item.layer in names],
        "recompute": [name for name in case.recompute if name in names],
        "skips": [item.model_dump() for item in case.skips if item.layer in names],
    }


def _smaller_sizes(case: Case) -> Iterator[dict[str, Any]]:
    for batch in (2, 4, 6, case.batch // 2):
        if 1 <= batch < case.batch:
            yield {"batch": batch}
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    for i, layer in enumerate(layers):
        for name, value in layer["options"].items():
            if name not in _SIZES:
                continue
            for size in (2, 4, value // 2):
                if 1 <= size < value:
                    changed = layer | {"options": layer["options"] | {name: size}}
                    yield {"layers": [*layers[:i], changed, *layers[i + 1 :]]}
    inputs = [item.model_dump(mode="json") for item in case.inputs]
    for i, item in enumerate(inputs):
        for axis, length in enumerate(item["shape"]):
            for size in (2, 4, length // 2):
                if 1 <= size < length:
                    shape = [*item["shape"][:axis], size, *item["shape"][axis + 1 :]]
                    yield {"inputs": [*inputs[:i], item | {"shape": shape}, *inputs[i + 1 :]]}
        if item["vocab"] > 4:
            yield {"inputs": [*inputs[:i], item | {"vocab": 4}, *inputs[i + 1 :]]}
