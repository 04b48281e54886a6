"""Training recipes: what a fresh case does with its model."""

from collections.abc import Sequence
from typing import Literal

from d3bot.generate.deal import Dealer
from d3bot.spec import Clip, Framework, Group, Optimizer

_COMMON = ("sgd", "sgd", "momentum", "nesterov", "adam", "adam", "adamw", "adamw")
_OPTIMIZERS: dict[Framework, tuple[str, ...]] = {
    "torch": (*_COMMON, "sgd", "adam", "adagrad", "rmsprop"),
    "tensorflow": _COMMON,
}
_STEPS = (1, 2, 2, 2, 3, 3, 4)
_BATCHES = (8, 8, 12, 12, 16, 16, 24, 6, 7, 9, 10, 15)
"""Seven of twelve divide into four micro-batches, half into three shards; one divides into none of 2, 3 and 4."""
_EVEN_BATCHES = (12, 12, 24, 6, 18, 8, 10, 16)
"""All divide by 2, five of eight by 3."""

Quirk = Literal["", "tied", "frozen", "late-freeze", "thaw"]
QUIRKS: dict[Framework, tuple[Quirk, ...]] = {
    "torch": ("", "", "", "tied", "tied", "frozen", "late-freeze", "thaw"),
    "tensorflow": ("", "", "", "", "tied", "tied", "frozen", "late-freeze"),
}
"""What is unusual about a model's parameters."""

Extra = Literal[
    "",
    "accumulate",
    "groups",
    "late-group",
    "unused",
    "conditional",
    "sum",
    "class-weights",
    "ignored",
    "cast",
    "bfloat16",
    "float16",
    "recompute",
    "recompute-bfloat16",
    "reentrant",
    "dropout",
    "ema",
    "swa",
    "in-backward",
]
EXTRAS: dict[Framework, tuple[Extra, ...]] = {
    "torch": ("",) * 5
    + ("accumulate", "accumulate", "groups", "late-group", "unused", "conditional", "sum", "class-weights", "ignored")
    + ("cast", "bfloat16", "float16", "recompute", "recompute-bfloat16", "reentrant", "dropout", "ema", "swa")
    + ("in-backward",),
    "tensorflow": ("",),
}
"""What is unusual about the training: one thing a case, crossed by the decks' own orders with every quirk, optimizer,
clipping and type."""
LATE = ("late-freeze", "thaw", "late-group", "conditional", "ema", "swa")
"""Quirks and extras that need a second step."""
LOW = ("cast", "bfloat16", "float16", "recompute-bfloat16")
"""Extras in which the last bit of a norm decides too much for it to be clipped by."""


def draw_optimizer(dealer: Dealer, framework: Framework) -> Optimizer:
    """Return an optimizer whose learning rate moves the weights without saturating the model."""
    name = dealer.deal("optimizer", _OPTIMIZERS[framework])
    decay_rate = dealer.deal("schedule", (1.0, 1.0, 0.9, 0.5))
    chance = dealer.chance("optimizer")
    if name == "adam":
        return Optimizer(name="adam", lr=chance.choice((0.002, 0.005, 0.01, 0.02)), decay_rate=decay_rate)
    if name == "adagrad" or name == "rmsprop":
        # The first step of RMSprop is ten times its rate, that of Adagrad just its rate.
        rates = (0.005, 0.01, 0.02) if name == "adagrad" else (0.0005, 0.001, 0.002)
        return Optimizer(name=name, lr=chance.choice(rates), decay_rate=decay_rate)
    if name == "adamw":
        return Optimizer(
            name="adamw",
            lr=chance.choice((0.002, 0.005, 0.01, 0.02)),
            weight_decay=chance.choice((0.01, 0.1)),
            decay_rate=decay_rate,
        )
    return Optimizer(
        lr=chance.choice((0.02, 0.05, 0.1, 0.2)),
        momentum=0.0 if name == "sgd" else chance.choice((0.5, 0.9)),
        nesterov=name == "nesterov",
        weight_decay=chance.choice((0.0, 0.0, 0.01)),
        decay_rate=decay_rate,
    )


_CLIPS: dict[Framework, tuple[str, ...]] = {
    "torch": ("", "", "", "", "", "norm", "norm", "value"),
    # Keras clips before it reduces over replicas (tensorflow/tensorflow#33929), which hides whatever comes after it.
    "tensorflow": ("",) * 14 + ("norm", "value"),
}


_ORDERS: dict[Framework, tuple[Literal["1", "2", "inf"], ...]] = {
    # A rank without a row of some parameter cannot take the largest element, which hides whatever comes after it.
    "torch": ("2",) * 6 + ("1", "1", "inf"),
    "tensorflow": ("2",),
}


def draw_clip(dealer: Dealer, framework: Framework) -> Clip | None:
    """Return clipping with a limit that most gradients of fresh models exceed, or None."""
    kind = dealer.deal("clip", _CLIPS[framework])
    chance = dealer.chance("clip")
    if kind == "norm":
        return Clip(kind="norm", limit=chance.choice((0.05, 0.1, 0.2)), order=chance.choice(_ORDERS[framework]))
    if kind == "value":
        return Clip(kind="value", limit=chance.choice((0.002, 0.005, 0.02)))
    return None


def draw_steps(dealer: Dealer, quirk: Quirk, extra: Extra) -> int:
    """Return the number of steps; what changes in mid-training needs two."""
    return max(dealer.deal("steps", _STEPS), 2 if quirk in LATE or extra in LATE else 1)


def draw_batch(dealer: Dealer, even: bool, batch_norm: bool, accumulate: int) -> int:
    """Return the rows of a batch, at least 6; with `even` a number that divides by 2.

    With batch norm a dozen more: of two rows a batch norm makes +1 and -1, and their gradient is rounding.  With
    micro-batches a number that gives them to 2, 3 and 4 ranks.
    """
    if accumulate > 1:
        return 12 * accumulate
    return dealer.deal("batch", _EVEN_BATCHES if even else _BATCHES) + (12 if batch_norm else 0)


def draw_groups(dealer: Dealer, layers: Sequence[str], steps: int, late: bool) -> tuple[Group, ...]:
    """Return one or two parameter groups over some of the layers: one without any at times, one added late if asked."""
    chance = dealer.chance("groups")
    own = Group(
        layers=(chance.choice(layers),),
        lr=chance.choice((0.003, 0.03)),
        weight_decay=chance.choice((None, 0.0, 0.05)),
        at=chance.randrange(1, steps) if late else 0,
    )
    return (own, Group()) if chance.random() < 0.3 else (own,)
