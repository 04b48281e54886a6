"""Mutants: cases that are worth trying, changed in one or two ways that bugs are known to sit behind."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from d3bot.frameworks import obstacle, standing_settings
from d3bot.frameworks.layers import ACTIVATIONS, KINDS, infer_shapes
from d3bot.generate.edits import behind
from d3bot.spec import Case, Layer, SpecError

_TRIES = 40
_FEWEST_SETTINGS = 3

Change = dict[str, Any]
Mutation = Callable[[Case, random.Random], Change | None]
"""(case, chance) -> fields to replace; None where the case offers no place for it."""


def mutants(parents: Sequence[tuple[Case, float]], seed: int, count: int) -> list[Case]:
    """Return up to `count` mutants of the parents, drawn by their weight (the energy); the same for the same seed.

    Each is a valid case of its own that at least three standing settings can run, and differs from every parent.
    """
    chance = random.Random(f"{seed}/mutants")
    known = {case.id for case, _ in parents}
    found: list[Case] = []
    if not parents:
        return found
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        parent = chance.choices([case for case, _ in parents], [weight for _, weight in parents])[0]
        mutant = _mutant(parent, chance)
        if mutant is not None and mutant.id not in known:
            known.add(mutant.id)
            found.append(mutant)
    return found


def _mutant(case: Case, chance: random.Random) -> Case | None:
    """Return the case changed in one or two ways, or None if that gave no valid case."""
    for mutation in chance.sample(MUTATIONS, chance.choice((1, 1, 2))):
        change = mutation(case, chance)
        if change is None:
            return None
        try:
            case = Case.model_validate(case.model_dump(mode="json") | change)
            infer_shapes(case)
        except (ValidationError, SpecError):
            return None
    settings = standing_settings(case.framework)
    return case if sum(obstacle(case, setting) is None for setting in settings) >= _FEWEST_SETTINGS else None


def _trainable(case: Case) -> list[str]:
    """Names of the layers with parameters, but for the last: something must be left to train."""
    return [layer.name for layer in case.layers[:-1] if KINDS[layer.op].trainable]


def _freeze(case: Case, chance: random.Random) -> Change | None:
    names = _trainable(case)
    if not names or case.freeze:
        return None
    steps = max(case.steps, 2)
    return {"steps": steps, "freeze": [{"layer": chance.choice(names), "at": chance.randrange(steps)}]}


def _thaw(case: Case, chance: random.Random) -> Change | None:
    names = _trainable(case)
    if not names or case.freeze:
        return None
    return {"steps": max(case.steps, 3), "freeze": [{"layer": chance.choice(names), "at": 0, "until": 1}]}


def _tie(case: Case, chance: random.Random) -> Change | None:
    """Two linear layers that take and give the same number of features share their weight."""
    shapes = infer_shapes(case)
    linear = [layer for layer in case.layers if layer.op == "linear"]
    pairs = [
        (second.name, first.name)
        for i, first in enumerate(linear)
        for second in linear[i + 1 :]
        if first.options == second.options and shapes[first.inputs[0]][-1] == shapes[second.inputs[0]][-1]
    ]
    if not pairs or case.tie:
        return None
    layer, to = chance.choice(pairs)
    return {"tie": [{"layer": layer, "to": to}]}


def _resize(case: Case, chance: random.Random) -> Change | None:
    """One size becomes odd or tiny, so that it divides by no number of ranks."""
    places = [
        (i, name)
        for i, layer in enumerate(case.layers)
        for name in ("units", "channels", "dim")
        if name in layer.options
    ]
    if not places:
        return None
    i, name = chance.choice(places)
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    layers[i]["options"][name] = chance.choice((1, 3, 5, 7))
    return {"layers": layers}


def _optimizer(case: Case, chance: random.Random) -> Change | None:
    options: tuple[Change, ...] = (
        {"name": "sgd", "lr": 0.1},
        {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
        {"name": "adam", "lr": 0.01},
        {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
        {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay_rate": 0.5},
    )
    return {"optimizer": chance.choice(options)}


def _clip(case: Case, chance: random.Random) -> Change | None:
    kinds: tuple[Change, ...] = (
        {"kind": "norm", "limit": 0.1},
        {"kind": "norm", "limit": 0.1, "order": "inf"},
        {"kind": "norm", "limit": 0.5, "order": "1"},
        {"kind": "value", "limit": 0.005},
    )
    return {"clip": chance.choice(kinds)}


def _accumulate(case: Case, chance: random.Random) -> Change | None:
    return {"batch": 12, "accumulate": 2}


def _batch(case: Case, chance: random.Random) -> Change | None:
    return {"batch": chance.choice((6, 7, 9, 10, 12, 15)), "ignored": 0, "accumulate": 1}


def _steps(case: Case, chance: random.Random) -> Change | None:
    return {"steps": min(case.steps + 1, 5)}


def _dtype(case: Case, chance: random.Random) -> Change | None:
    return {"dtype": "float32" if case.dtype == "float64" else "float64", "mixed": "none", "casts": []}


def _recompute(case: Case, chance: random.Random) -> Change | None:
    names = _trainable(case)
    return {"recompute": [chance.choice(names)]} if names else None


def _average(case: Case, chance: random.Random) -> Change | None:
    if case.framework == "torch" and chance.random() < 0.5:
        return {"swa": True, "ema": 0.0, "steps": max(case.steps, 2)}
    return {"swa": False, "ema": chance.choice((0.5, 0.75)), "steps": max(case.steps, 2)}


def _in_backward(case: Case, chance: random.Random) -> Change | None:
    return {"in_backward": True} if case.framework == "torch" else None


def _cut(case: Case, chance: random.Random) -> Change | None:
    """One layer is taken out, its readers reading its first input."""
    layers = [layer.model_dump(mode="json") for layer in case.layers]
    if len(layers) < 3:
        return None
    gone = layers.pop(chance.randrange(len(layers) - 1))
    for layer in layers:
        layer["inputs"] = [gone["inputs"][0] if name == gone["name"] else name for name in layer["inputs"]]
    return {"layers": layers}


def _splice(case: Case, chance: random.Random) -> Change | None:
    """A linear layer and an activation are put behind a layer, which its readers read from then on."""
    shapes = infer_shapes(case)
    places = [i for i, layer in enumerate(case.layers[:-1]) if len(shapes[layer.name]) < 3]
    if not places:
        return None
    place = chance.choice(places)
    before = case.layers[place].name
    added, bent = _free(case, "more"), _free(case, "bend")
    return _behind(
        case,
        place,
        Layer(name=added, op="linear", inputs=(before,), options={"units": shapes[before][-1]}),
        Layer(name=bent, op=chance.choice(ACTIVATIONS), inputs=(added,)),
    )


def _drop(case: Case, chance: random.Random) -> Change | None:
    """A dropout is put behind a layer; Keras has none whose draws are documented."""
    if case.framework != "torch" or len(case.layers) < 2:
        return None
    place = chance.randrange(len(case.layers) - 1)
    rate = chance.choice((0.1, 0.5))
    source = case.layers[place].name
    return _behind(case, place, Layer(name=_free(case, "drop"), op="dropout", inputs=(source,), options={"rate": rate}))


def _behind(case: Case, place: int, *new: Layer) -> Change:
    return {"layers": [layer.model_dump(mode="json") for layer in behind(case.layers, place, *new)]}


def _free(case: Case, stem: str) -> str:
    """Return a name that the case does not have yet."""
    names = {layer.name for layer in case.layers} | {item.name for item in case.inputs}
    return next(f"{stem}{n}" for n in range(1, 99) if f"{stem}{n}" not in names)


MUTATIONS: tuple[Mutation, ...] = (
    _freeze,
    _thaw,
    _tie,
    _resize,
    _optimizer,
    _clip,
    _accumulate,
    _batch,
    _steps,
    _dtype,
    _recompute,
    _average,
    _in_backward,
    _cut,
    _splice,
    _drop,
)
