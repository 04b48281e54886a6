"""Training recipes: what a fresh case does with its model."""

from typing import Literal

from d3bot.generate.deal import Dealer
from d3bot.spec import Clip, Framework, Optimizer

_OPTIMIZERS = ("sgd", "sgd", "momentum", "nesterov", "adam", "adam", "adamw", "adamw")
_STEPS = (1, 2, 2, 2, 3, 3, 4)
_BATCHES = (8, 8, 12, 12, 16, 16, 24, 6, 7, 9, 10, 15)
"""Seven of twelve divide into four micro-batches, half into three shards; one divides into none of 2, 3 and 4."""
_EVEN_BATCHES = (12, 12, 24, 6, 18, 8, 10, 16)
"""All divide by 2, five of eight by 3."""

Quirk = Literal["", "tied", "frozen", "late-freeze"]
QUIRKS: tuple[Quirk, ...] = ("", "", "", "", "tied", "tied", "frozen", "late-freeze")


def draw_optimizer(dealer: Dealer) -> Optimizer:
    """Return an optimizer whose learning rate moves the weights without saturating the model."""
    name = dealer.deal("optimizer", _OPTIMIZERS)
    decay_rate = dealer.deal("schedule", (1.0, 1.0, 0.9, 0.5))
    chance = dealer.chance("optimizer")
    if name == "adam":
        return Optimizer(name="adam", lr=chance.choice((0.002, 0.005, 0.01, 0.02)), decay_rate=decay_rate)
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


def draw_clip(dealer: Dealer, framework: Framework) -> Clip | None:
    """Return clipping with a limit that most gradients of fresh models exceed, or None."""
    kind = dealer.deal("clip", _CLIPS[framework])
    chance = dealer.chance("clip")
    if kind == "norm":
        return Clip(kind="norm", limit=chance.choice((0.05, 0.1, 0.2)))
    if kind == "value":
        return Clip(kind="value", limit=chance.choice((0.002, 0.005, 0.02)))
    return None


def draw_steps(dealer: Dealer, quirk: Quirk) -> int:
    """Return the number of steps; what freezes in mid-training needs two."""
    return max(dealer.deal("steps", _STEPS), 2 if quirk == "late-freeze" else 1)


def draw_batch(dealer: Dealer, even: bool, batch_norm: bool) -> int:
    """Return the rows of a batch, at least 6; with `even` a number that divides by 2.

    With batch norm a dozen more: of two rows a batch norm makes +1 and -1, and their gradient is rounding.
    """
    return dealer.deal("batch", _EVEN_BATCHES if even else _BATCHES) + (12 if batch_norm else 0)
