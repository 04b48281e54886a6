"""Smaller trials: every way to take something away from a Case or a Setting, level by level, the largest steps first.

The levels are those of hierarchical delta debugging: whole models and whole recipes, then parts of them, then sizes.
What a field means is not asked here: a field that has its default value is simpler than one that has not.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from pydantic import ValidationError

from d3bot.frameworks import canonical_setting, families, family_of, obstacle
from d3bot.frameworks.layers import KINDS, Shape, infer_shapes
from d3bot.spec import Case, Setting, SpecError

Candidate = tuple[Case, Setting]
Fields = dict[str, Any]
"""Fields of a case to replace."""

_SIZES = ("units", "channels", "dim")
_LAYERED = ("freeze", "tie", "casts", "skips", "recompute", "groups")
"""Fields that say something of single layers."""
_RANKS = frozenset({"world", "replicas", "workers"})
_PLAINER = {"hsdp": "fsdp2", "zero1": "ddp", "multi_worker": "mirrored"}
"""Families that do what another one does, and more."""
_STRUCTURE = frozenset({"framework", "inputs", "layers", "batch"})
_LOOPS = {"torch": "custom", "tensorflow": "fit"}
"""The training loop that a person would write first."""


def smaller(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield every valid and applicable trial that is one step smaller; the same order for the same trial."""
    for level in LEVELS:
        yield from level(case, setting)


def _valid(case: Case, setting: Setting, changes: Iterator[Fields]) -> Iterator[Candidate]:
    plain = case.model_dump(mode="json")
    for change in changes:
        try:
            reduced = Case.model_validate(plain | change)
            infer_shapes(reduced)
            if reduced != case and obstacle(reduced, setting) is None:
                yield reduced, setting
        except (ValidationError, SpecError):
            continue


def _leaps(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the plainest models there are, the plainest training, and each layer with parameters alone.

    What most bugs need comes first: any model at all of the smallest sizes, then any model, or any training, or one
    that says something of single layers.
    """
    world = _world(case, setting)
    width = 2 * world
    plain, recipe = list(_plain_models(case, width)), _plain_recipe(case)
    parts = max(2, family_of(case.framework, setting).parts(case, setting))
    least = recipe | {"batch": parts, "seed": 0}
    tiny = [model | least for model in _plain_models(case, world)]
    named = {name: value for name, value in recipe.items() if name not in (*_LAYERED, "steps")}
    single = list(_single_layers(case, width))
    changes = tiny + [model | recipe for model in plain] + [recipe] + [model | named for model in plain] + plain
    changes += [model | recipe for model in single] + single + [named]
    small = (each for each in changes if len(each.get("layers", ())) < len(case.layers))
    yield from _valid(case, setting, small)


def _settings(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the trial under a plainer setting: of a simpler family, with an option left out, or with a smaller number.

    Sizes that the ranks could not share evenly before are made so that they cannot under fewer ranks either.
    """
    plainer = _PLAINER.get(setting.family)
    known = {option.name for option in families(case.framework)[plainer].options} if plainer else set()
    same = tuple((name, 2 if name in _RANKS else value) for name, value in setting.options if name in known)
    reduced = [(plainer, same)] if plainer else []
    for name, value in setting.options:
        rest = tuple((other, kept) for other, kept in setting.options if other != name)
        reduced.append((setting.family, rest))
        if isinstance(value, int) and not isinstance(value, bool):
            reduced += [(setting.family, (*rest, (name, number))) for number in range(2, value)]
    for family, options in reduced:
        try:
            candidate = canonical_setting(case.framework, Setting(family=family, options=options))
        except SpecError:
            continue
        if candidate == setting:
            continue
        if obstacle(case, candidate) is None:
            yield case, candidate
        odd = {"layers": [_resized(layer.model_dump(mode="json"), 3) for layer in case.layers]}
        if any(name in _RANKS for name, _ in options):
            yield from _valid(case, candidate, iter([odd]))


def _recipe(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the trial with each field of its training at the default, then with parts of it left out."""
    yield from _valid(case, setting, _plainer(case))


def _plainer(case: Case) -> Iterator[Fields]:
    plain = case.model_dump(mode="json")
    if case.steps > 1:
        for steps in range(1, case.steps):
            yield _fewer_steps(case, steps)
    for name in _recipe_fields(case):
        yield {name: _default(case, name)}
    for name in _recipe_fields(case):
        value = plain[name]
        if isinstance(value, list):
            yield from ({name: value[:i] + value[i + 1 :]} for i in range(len(value)))
            for i, item in enumerate(value):
                for kept in _parts(item):
                    yield {name: [*value[:i], kept, *value[i + 1 :]]}
        for kept in _parts(value):
            yield {name: kept}


def _parts(value: Any) -> Iterator[Fields]:
    """Yield a nested record with each of its fields left out: what is left out has its default."""
    if isinstance(value, dict):
        for field in value:
            rest = {name: kept for name, kept in value.items() if name != field}
            yield rest
            if field == "momentum":
                yield rest | {"nesterov": False}


def _chunks(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the model cut off at each layer, without its front, and without runs of layers, the longest first."""
    yield from _valid(case, setting, _without_chunks(case))


def _without_chunks(case: Case) -> Iterator[Fields]:
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    for length in range(1, len(layers)):
        yield _kept(case, layers[:length])
    shapes = infer_shapes(case)
    for start in range(len(layers) - 1, 0, -1):
        cut = _without_front(case, start, shapes)
        if cut:
            yield cut
    length = len(layers) // 2
    while length > 1:
        for start in range(0, len(layers) - length, length):
            yield from _without(case, start, start + length)
        length //= 2


def _layers(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the model without each layer, its readers reading one of its inputs."""
    yield from _valid(case, setting, (each for i in range(len(case.layers)) for each in _without(case, i, i + 1)))


def _sizes(case: Case, setting: Setting) -> Iterator[Candidate]:
    """Yield the trial with each size smaller, with layers' options at their defaults, and with the seed 0.

    What divides into the ranks' parts is plainer than something smaller that does not.
    """
    parts = max(1, family_of(case.framework, setting).parts(case, setting))
    world = _world(case, setting)
    odd_batch, odd_size = case.batch % parts != 0, _uneven(case, world)
    rounder: list[Fields] = [{"batch": case.batch + parts - case.batch % parts}] if odd_batch else []
    if odd_size:
        rounder += [{"layers": [_resized(layer.model_dump(mode="json"), 2 * world) for layer in case.layers]}]
    every: Fields = {
        "batch": min(case.batch, max(2, parts)),
        "layers": [_narrowed(layer.model_dump(mode="json"), world) for layer in case.layers],
        "seed": 0,
    }
    for candidate, under in _valid(case, setting, chain(rounder, [every], _smaller_sizes(case, world))):
        if (odd_batch or candidate.batch % parts == 0) and (odd_size or not _uneven(candidate, world)):
            yield candidate, under


def _world(case: Case, setting: Setting) -> int:
    return max(2, family_of(case.framework, setting).world(setting))


def _uneven(case: Case, world: int) -> bool:
    sizes = [int(layer.options[name]) for layer in case.layers for name in _SIZES if name in layer.options]
    return any(size % world for size in sizes)


def _smaller_sizes(case: Case, world: int) -> Iterator[Fields]:
    for batch in (2, 4, 6, 8, case.batch // 2):
        if 1 <= batch < case.batch:
            yield {"batch": batch}
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    inputs = [item.model_dump(mode="json") for item in case.inputs]
    sizes = [layer["options"][name] for layer in layers for name in _SIZES if name in layer["options"]]
    for width in (world, 2 * world):  # all at once first: sizes that must agree only fall together
        if any(size > width for size in sizes):
            yield {"layers": [_narrowed(layer, width) for layer in layers]}
    for i, layer in enumerate(layers):
        for name, value in layer["options"].items():
            rest = {other: kept for other, kept in layer["options"].items() if other != name}
            changed = [rest] if name not in _SIZES else [rest | {name: size} for size in _below(value, world)]
            yield from ({"layers": [*layers[:i], layer | {"options": each}, *layers[i + 1 :]]} for each in changed)
    for i, item in enumerate(inputs):
        for axis, length in enumerate(item["shape"]):
            for size in _below(length, world):
                shape = [*item["shape"][:axis], size, *item["shape"][axis + 1 :]]
                yield {"inputs": [*inputs[:i], item | {"shape": shape}, *inputs[i + 1 :]]}
        if item["vocab"] > 4:
            yield {"inputs": [*inputs[:i], item | {"vocab": 4}, *inputs[i + 1 :]]}
    if case.seed:
        yield {"seed": 0}


def _below(size: int, world: int) -> list[int]:
    """Return smaller sizes, the small ones first that the ranks can share; a size of 1 would hide patterns."""
    return [each for each in dict.fromkeys((world, 2 * world, 2, 4, size // 2)) if 2 <= each < size]


def _resized(layer: Fields, size: int) -> Fields:
    return layer | {"options": {name: size if name in _SIZES else value for name, value in layer["options"].items()}}


def _narrowed(layer: Fields, width: int) -> Fields:
    options = {name: min(value, width) if name in _SIZES else value for name, value in layer["options"].items()}
    return layer | {"options": options}


def _plain_models(case: Case, width: int) -> Iterator[Fields]:
    """Yield one linear layer, then two, to which what the training says of layers applies."""
    x: Fields = {"name": "x", "shape": [width], "vocab": 0}
    first: Fields = {"name": "fc1", "op": "linear", "inputs": ["x"], "options": {"units": width}}
    second: Fields = {"name": "fc2", "op": "linear", "inputs": ["fc1"], "options": {"units": width}}
    yield {"inputs": [x], "layers": [first]} | _renamed(case, {})
    named = _named_layers(case)
    for one, other in (("fc1", "fc2"), ("fc2", "fc1")):
        places = {name: other if i else one for i, name in enumerate(named)}
        yield {"inputs": [x], "layers": [first, second]} | _renamed(case, places)


def _single_layers(case: Case, width: int) -> Iterator[Fields]:
    """Yield each layer with parameters, fed with numbers of its own, alone and with a linear layer behind it."""
    shapes = infer_shapes(case)
    seen = set()
    for layer in case.layers:
        if not KINDS[layer.op].trainable or layer.op in seen or layer.op == "linear":
            continue
        seen.add(layer.op)
        vocab = next((item.vocab for item in case.inputs if item.name == layer.inputs[0]), 0)
        alone = layer.model_dump(mode="json") | {"inputs": ["x"]}
        after = {"name": "fc", "op": "linear", "inputs": [layer.name], "options": {"units": width}}
        recipe = _renamed(case, {layer.name: layer.name})
        for shape in ([width], list(shapes[layer.inputs[0]])):
            x: Fields = {"name": "x", "shape": shape, "vocab": vocab}
            before = {"name": "fc", "op": "linear", "inputs": ["x"], "options": {"units": shape[-1]}}
            yield {"inputs": [x], "layers": [alone]} | recipe
            yield {"inputs": [x], "layers": [before, alone | {"inputs": ["fc"]}]} | recipe
            yield {"inputs": [x], "layers": [alone, after]} | recipe


def _without_front(case: Case, start: int, shapes: dict[str, Shape]) -> Fields | None:
    """Return the layers from `start` on, fed with what they read as an input; None if that is not one tensor."""
    after = case.layers[start:]
    names = {layer.name for layer in after}
    crossing = {source for layer in after for source in layer.inputs if source not in names}
    inner = crossing - {item.name for item in case.inputs}
    if len(inner) != 1 or len(shapes[next(iter(inner))]) > 4:
        return None
    old = inner.pop()
    free = next(name for name in ("x", "x1", "x2", "x3", "x4", "x5") if name not in crossing | names)
    layers = [
        layer.model_dump(mode="json") | {"inputs": [free if source == old else source for source in layer.inputs]}
        for layer in after
    ]
    kept = [item.model_dump(mode="json") for item in case.inputs if item.name in crossing]
    inputs = [{"name": free, "shape": list(shapes[old]), "vocab": 0}, *kept]
    return {"inputs": inputs, "layers": layers, **_renamed(case, {name: name for name in names})}


def _without(case: Case, start: int, end: int) -> Iterator[Fields]:
    """Yield the model without some layers in a row, their readers reading an input of the first of them."""
    gone = {layer.name for layer in case.layers[start:end]}
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    for source in dict.fromkeys(layers[start]["inputs"]):
        rest = []
        for other in layers[:start] + layers[end:]:
            inputs = [source if name in gone else name for name in other["inputs"]]
            if KINDS[other["op"]].arity[0] > 1 and len(set(inputs)) == 1:
                inputs = inputs[:2]
            rest.append(other | {"inputs": inputs})
        if rest:
            yield _kept(case, rest)


def _kept(case: Case, layers: Sequence[Fields]) -> Fields:
    """Return the case's fields with these layers: layers and inputs that nothing reads are left out as well."""
    needed = {layers[-1]["name"]}
    kept = []
    for layer in reversed(layers):
        if layer["name"] in needed:
            needed.update(layer["inputs"])
            kept.append(layer)
    return {
        "layers": kept[::-1],
        "inputs": [item.model_dump(mode="json") for item in case.inputs if item.name in needed],
        **_renamed(case, {layer["name"]: layer["name"] for layer in kept}),
    }


def _renamed(case: Case, names: dict[str, str]) -> Fields:
    """Return what the training says of layers, by their new names; what is said of others is left out."""
    plain = case.model_dump(mode="json")
    fields: Fields = {}
    for field in ("freeze", "casts", "skips"):
        items = [item | {"layer": names[item["layer"]]} for item in plain[field] if item["layer"] in names]
        fields[field] = list({item["layer"]: item for item in items}.values()) if field == "casts" else items
    fields["tie"] = [
        {"layer": names[item["layer"]], "to": names[item["to"]]}
        for item in plain["tie"]
        if {item["layer"], item["to"]} <= names.keys() and names[item["layer"]] != names[item["to"]]
    ]
    fields["recompute"] = list(dict.fromkeys(names[name] for name in plain["recompute"] if name in names))
    taken: set[str] = set()
    fields["groups"] = []
    for group in plain["groups"]:
        mine = [names[name] for name in group["layers"] if name in names]
        fields["groups"].append(group | {"layers": [name for name in dict.fromkeys(mine) if name not in taken]})
        taken.update(mine)
    return fields


def _named_layers(case: Case) -> list[str]:
    """Return the layers of which the training says something; a layer that shares another's weight comes last."""
    names = [item.to for item in case.tie]
    names += [item.layer for item in case.freeze] + [item.layer for item in case.casts]
    names += [*(item.layer for item in case.skips), *case.recompute]
    names += [name for group in case.groups for name in group.layers] + [item.layer for item in case.tie]
    sharing = {item.layer for item in case.tie}
    return sorted(dict.fromkeys(names), key=lambda name: name in sharing)


def _recipe_fields(case: Case) -> list[str]:
    """Return the fields of the training that do not have their plainest value."""
    plain = case.model_dump(mode="json")
    fields = [name for name in plain if name not in _STRUCTURE and name not in ("steps", "seed")]
    return [name for name in fields if plain[name] != _default(case, name)]


def _default(case: Case, name: str) -> Any:
    if name == "loop":
        return _LOOPS[case.framework]
    value = Case.model_fields[name].get_default(call_default_factory=True)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else list(value) if value == () else value


def _plain_recipe(case: Case) -> Fields:
    """Return the training with every field at its plainest value, for one step."""
    return {name: _default(case, name) for name in _recipe_fields(case)} | {"steps": 1}


def _fewer_steps(case: Case, steps: int) -> Fields:
    """Return the case's fields with fewer steps: what would come after the last of them is left out."""
    plain = case.model_dump(mode="json")
    fields: Fields = {"steps": steps, "freeze": [], "groups": [], "skips": []}
    for item in plain["freeze"]:
        if item["at"] < steps:
            late = item["until"] is not None and item["until"] >= steps
            fields["freeze"].append(item | ({"until": None} if late else {}))
    fields["groups"] = [item for item in plain["groups"] if item["at"] < steps]
    fields["skips"] = [item for item in plain["skips"] if item["at"] is None or item["at"] < steps]
    return fields


LEVELS: tuple[Callable[[Case, Setting], Iterator[Candidate]], ...] = (
    _leaps,
    _settings,
    _recipe,
    _chunks,
    _layers,
    _sizes,
)
"""What can be taken away, the largest first; each yields valid and applicable trials, smaller in its own way."""
