"""Fresh cases: generated from one number, the same whenever they are generated."""

from collections.abc import Sequence
from typing import Literal

from d3bot.frameworks.layers import KINDS
from d3bot.generate.cells import Taste
from d3bot.generate.deal import Dealer
from d3bot.generate.models import THEMES, draw_model
from d3bot.generate.recipes import QUIRKS, draw_batch, draw_clip, draw_optimizer, draw_steps
from d3bot.spec import Case, Dtype, Framework, Freeze, Layer

_DTYPES: tuple[Dtype, ...] = ("float64", "float64", "float32")
_LOSSES: tuple[Literal["mse", "cross_entropy"], ...] = ("mse", "cross_entropy")
_LOOPS: tuple[Literal["fit", "custom"], ...] = ("fit", "fit", "fit", "fit", "custom", "custom", "custom")
_ODD = ("", "", "", "", "", "", "", "", "", "hidden", "output", "other")


def fresh_cases(framework: Framework, seed: int, count: int) -> list[Case]:
    """Return `count` fresh cases; case i depends on the framework, the seed and i alone."""
    return [_fresh_case(framework, Dealer(f"{seed}/{framework}", index)) for index in range(count)]


def _fresh_case(framework: Framework, dealer: Dealer) -> Case:
    quirk = dealer.deal("quirk", QUIRKS)
    model = draw_model(
        framework,
        dealer.deal("theme", THEMES),
        Taste(dealer.chance("model"), dealer.deal("odd", _ODD)),
        dealer.deal("loss", _LOSSES),
        quirk == "tied",
    )
    steps = draw_steps(dealer, quirk)
    loop = _loop(framework, dealer, quirk)
    batch_norm = any(layer.op == "batch_norm" for layer in model.layers)
    even = framework == "tensorflow" and (loop == "fit" or batch_norm)  # else most settings would not apply
    metric: Literal["accuracy", "mae"] = "accuracy" if model.loss == "cross_entropy" else "mae"
    return Case(
        framework=framework,
        inputs=model.inputs,
        layers=model.layers,
        tie=model.tie,
        loss=model.loss,
        loop=loop,
        metrics=(metric,) if loop == "fit" else (),
        batch=draw_batch(dealer, even, batch_norm),
        steps=steps,
        optimizer=draw_optimizer(dealer),
        clip=draw_clip(dealer, framework),
        freeze=_freeze(dealer, model.layers, quirk, steps),
        dtype=dealer.deal("dtype", _DTYPES),
        seed=dealer.chance("seed").randrange(1000),
    )


def _loop(framework: Framework, dealer: Dealer, quirk: str) -> Literal["fit", "custom"]:
    """Keras `fit` for about half of the tensorflow cases; what freezes in mid-training needs a loop of its own."""
    if framework != "tensorflow" or quirk == "late-freeze":
        return "custom"
    return dealer.deal("loop", _LOOPS)


def _freeze(dealer: Dealer, layers: Sequence[Layer], quirk: str, steps: int) -> tuple[Freeze, ...]:
    """Freeze one layer, from the start or later, never the head: something must be left to train."""
    trainable = [layer.name for layer in layers[:-1] if KINDS[layer.op].trainable]
    if quirk not in ("frozen", "late-freeze") or not trainable:
        return ()
    chance = dealer.chance("freeze")
    layer = chance.choice(trainable)
    return (Freeze(layer=layer, at=0 if quirk == "frozen" else chance.randrange(1, steps)),)
