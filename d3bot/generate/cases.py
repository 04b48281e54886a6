"""Fresh cases: generated from one number, the same whenever they are generated."""

from collections.abc import Sequence
from typing import Literal

from d3bot.frameworks.layers import KINDS
from d3bot.generate.cells import Taste
from d3bot.generate.deal import Dealer
from d3bot.generate.edits import behind
from d3bot.generate.keras import with_extra
from d3bot.generate.models import MOST_LAYERS, THEMES, draw_model
from d3bot.generate.recipes import (
    EXTRAS,
    LOW,
    QUIRKS,
    Extra,
    draw_batch,
    draw_clip,
    draw_groups,
    draw_optimizer,
    draw_steps,
)
from d3bot.spec import Case, Cast, Clip, Dtype, Framework, Freeze, Layer, Optimizer, Scalar, Skip

_DTYPES: tuple[Dtype, ...] = ("float64", "float64", "float32")
_LOSSES: tuple[Literal["mse", "cross_entropy"], ...] = ("mse", "cross_entropy")
_MIXED: dict[Extra, Literal["bfloat16", "float16"]] = {
    "bfloat16": "bfloat16",
    "recompute-bfloat16": "bfloat16",
    "float16": "float16",
}
_LOOPS: tuple[Literal["fit", "custom"], ...] = ("fit", "fit", "fit", "fit", "custom", "custom", "custom")
_CASTABLE = ("linear", "conv2d", "embedding", "embedding_bag", "layer_norm")
_ODD = ("", "", "", "", "", "", "", "", "", "hidden", "output", "other")


def fresh_cases(framework: Framework, seed: int, count: int) -> list[Case]:
    """Return `count` fresh cases; case i depends on the framework, the seed and i alone."""
    return [_fresh_case(framework, Dealer(f"{seed}/{framework}", index)) for index in range(count)]


def _fresh_case(framework: Framework, dealer: Dealer) -> Case:
    quirk = dealer.deal("quirk", QUIRKS[framework])
    extra = dealer.deal("extra", EXTRAS[framework])
    if extra == "in-backward" and quirk == "thaw":
        quirk = "late-freeze"  # what does not train yet has no optimizer to step it
    loss, dtype = dealer.deal("loss", _LOSSES), dealer.deal("dtype", _DTYPES)
    model = draw_model(
        framework,
        dealer.deal("theme", THEMES),
        Taste(dealer.chance("model"), dealer.deal("odd", _ODD)),
        "cross_entropy" if extra in ("class-weights", "ignored") else loss,
        quirk == "tied" and extra != "cast",  # a shared weight has one type
        extra in ("unused", "conditional"),
    )
    if extra in _MIXED and any(layer.op in ("gru", "lstm") for layer in model.layers):
        extra = ""  # on many a CPU neither has a kernel for what autocast makes of its input or its weights
    layers = _dropped(dealer, model.layers) if extra == "dropout" else model.layers
    batch_norm = any(layer.op == "batch_norm" for layer in layers)
    accumulate = 2 if extra == "accumulate" and not batch_norm else 1  # each micro-batch would have its own statistics
    steps = draw_steps(dealer, quirk, extra)
    loop = _loop(framework, dealer, quirk)
    even = framework == "tensorflow" and (loop == "fit" or batch_norm)  # else most settings would not apply
    trainable = [layer.name for layer in layers if KINDS[layer.op].trainable]
    grouped = extra in ("groups", "late-group")
    case = Case(
        framework=framework,
        inputs=model.inputs,
        layers=layers,
        tie=model.tie,
        loss=model.loss,
        loop=loop,
        batch=draw_batch(dealer, even, batch_norm, accumulate),
        steps=steps,
        optimizer=_suited(draw_optimizer(dealer, framework), extra),
        clip=_clip(dealer, framework, extra),
        freeze=_freeze(dealer, layers, "frozen" if extra == "cast" and not quirk else quirk, steps),
        reduction="sum" if extra == "sum" else "mean",
        ignored=dealer.chance("ignored").choice((1, 2)) if extra == "ignored" else 0,
        weights="class" if extra == "class-weights" else "none",
        accumulate=accumulate,
        ema=dealer.chance("ema").choice((0.5, 0.75)) if extra == "ema" else 0.0,
        swa=extra == "swa",
        average_buffers=extra in ("ema", "swa") and batch_norm and dealer.chance("buffers").random() < 0.5,
        in_backward=extra == "in-backward",
        groups=draw_groups(dealer, trainable, steps, extra == "late-group") if grouped else (),
        skips=_skips(dealer, model.spare, extra, steps),
        casts=_casts(dealer, layers, extra),
        mixed=_MIXED.get(extra, "none"),
        recompute=_recompute(dealer, layers, extra),
        reentrant=extra == "reentrant",
        dtype="float32" if extra in _MIXED else dtype,
        seed=dealer.chance("seed").randrange(1000),
    )
    return with_extra(case, dealer) if framework == "tensorflow" else case


def _clip(dealer: Dealer, framework: Framework, extra: Extra) -> Clip | None:
    clip = draw_clip(dealer, framework)
    if extra == "in-backward" or (clip and clip.kind == "norm" and extra in LOW):
        return None
    return clip


def _casts(dealer: Dealer, layers: Sequence[Layer], extra: Extra) -> tuple[Cast, ...]:
    """Store one inner layer in another type."""
    linear = [layer.name for layer in layers[:-1] if layer.op in _CASTABLE]
    if extra != "cast" or not linear:
        return ()
    chance = dealer.chance("cast")
    dtype: Literal["float32", "bfloat16"] = chance.choice(("bfloat16", "bfloat16", "float32"))
    return (Cast(layer=chance.choice(linear), dtype=dtype),)


def _recompute(dealer: Dealer, layers: Sequence[Layer], extra: Extra) -> tuple[str, ...]:
    """Recompute some of the layers; the reentrant way the head alone, whose input has a gradient in any case."""
    if extra == "reentrant":
        return (layers[-1].name,)
    drops = {layer.name for layer in layers if layer.op == "dropout"}
    if extra not in ("recompute", "recompute-bfloat16") and not (drops and dealer.chance("masks").random() < 0.5):
        return ()
    able = [layer.name for layer in layers if KINDS[layer.op].trainable and layer.op != "batch_norm"]
    chance = dealer.chance("recompute")
    chosen = set(chance.sample(able, min(len(able), chance.choice((1, 2, 3)))))
    return tuple(layer.name for layer in layers if layer.name in chosen | drops)


def _dropped(dealer: Dealer, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Put a dropout behind one of the layers before the head, unless the model is as large as they get."""
    if len(layers) >= MOST_LAYERS:
        return tuple(layers)
    chance = dealer.chance("dropout")
    place = chance.randrange(len(layers) - 1)
    options: dict[str, Scalar] = {"rate": chance.choice((0.1, 0.5))}
    return tuple(
        behind(layers, place, Layer(name="drop1", op="dropout", inputs=(layers[place].name,), options=options))
    )


def _suited(optimizer: Optimizer, extra: Extra) -> Optimizer:
    """Return the optimizer with a rate that suits gradients of a sum over the rows, and one for a step in backward."""
    if extra == "in-backward":
        return optimizer.model_copy(update={"decay_rate": 1.0})
    return optimizer.model_copy(update={"lr": optimizer.lr / 8}) if extra == "sum" else optimizer


def _skips(dealer: Dealer, layer: str, extra: Extra, steps: int) -> tuple[Skip, ...]:
    """Leave the spare layer out of every step, or of one."""
    if not layer:
        return ()
    return (Skip(layer=layer, at=dealer.chance("skip").randrange(steps) if extra == "conditional" else None),)


def _loop(framework: Framework, dealer: Dealer, quirk: str) -> Literal["fit", "custom"]:
    """Keras `fit` for about half of the tensorflow cases; what freezes in mid-training needs a loop of its own."""
    if framework != "tensorflow" or quirk == "late-freeze":
        return "custom"
    return dealer.deal("loop", _LOOPS)


def _freeze(dealer: Dealer, layers: Sequence[Layer], quirk: str, steps: int) -> tuple[Freeze, ...]:
    """Freeze one layer, from the start, later or until later, never the head: something must be left to train."""
    trainable = [layer.name for layer in layers[:-1] if KINDS[layer.op].trainable]
    chance = dealer.chance("freeze")
    if quirk == "tied" and chance.random() < 0.25:
        quirk = "frozen"
    if quirk not in ("frozen", "late-freeze", "thaw") or not trainable:
        return ()
    layer = chance.choice(trainable)
    if quirk == "thaw":
        return (Freeze(layer=layer, until=chance.randrange(1, steps)),)
    return (Freeze(layer=layer, at=0 if quirk == "frozen" else chance.randrange(1, steps)),)
