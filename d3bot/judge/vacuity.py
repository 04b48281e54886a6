"""A pass must be able to fail: would a planted fault have been seen in what this case returns?

The controls are planted into the reference's own arrays, so they cost no run but one: the reference on a part of the
rows, which is what a rank holds when the reduction over the ranks is left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from d3bot.judge.bounds import K
from d3bot.spec import Arrays, parse_name


@dataclass(frozen=True)
class Vacuity:
    """What the controls of one case say."""

    reason: str
    """The planted fault that nothing would show, in words; empty if each would be seen."""
    blind: int = 0
    """How many of the arrays looked at could not show a fault, because all of their elements are below their bound."""
    of: int = 0


_PLANTED: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("zeroed", np.zeros_like),
    ("halved", lambda array: array / 2),
    ("rolled by one element", lambda array: np.roll(array, 1)),
)


def vacuity(reference: Arrays, shares: Sequence[Arrays | None], floor: Mapping[str, float]) -> Vacuity:
    """Return whether faults planted in the reference's arrays would be seen under this case's own bounds.

    Gradients are looked at, or the parameters where no gradient is returned.  The bound is that of the noise
    everywhere: a fault that only an exact comparison could tell from rounding is not seen well.  `shares` are the
    reference on parts of the rows (None where that could not be run): if none was, the reduction is taken on trust.
    """
    if not reference:
        return Vacuity("one process returned no array, so nothing could differ")
    looked = [n for n in reference if parse_name(n).role == "grad"] or [
        n for n in reference if parse_name(n).role == "param"
    ]
    blind = sum(not _seen(np.zeros_like(reference[name]), name, reference, floor) for name in looked)

    def found(reason: str) -> Vacuity:
        return Vacuity(reason, blind, len(looked))

    gradients = looked and parse_name(looked[0]).role == "grad"
    if gradients and blind == len(looked):
        return found("every gradient is zero within its noise, so nothing could differ")
    for word, fault in _PLANTED:
        able = [name for name in looked if reference[name].size > 1 or not word.startswith("rolled")]
        if able and not any(_seen(fault(reference[name]), name, reference, floor) for name in able):
            return found(f"every {'gradient' if gradients else 'parameter'} {word} would pass")
    predictions = [name for name in reference if parse_name(name).role == "predict"]
    if predictions and all(_constant(reference[name], K * floor[name]) for name in predictions):
        return found("the predictions are the same for every row, whatever the input")
    ran = [share for share in shares if share is not None]
    if ran and not any(
        _seen(share[name], name, reference, floor) for share in ran for name in reference.keys() & share
    ):
        return found("training on a part of the rows gives the same, so a reduction that is left out would pass")
    return found("")


def _seen(array: np.ndarray, name: str, reference: Arrays, floor: Mapping[str, float]) -> bool:
    want = reference[name]
    if array.shape != want.shape:
        return True
    apart = array.astype(np.float64) - want.astype(np.float64)
    return bool(np.abs(apart).max(initial=0) > K * floor[name])


def _constant(array: np.ndarray, bound: float) -> bool:
    """Whether all rows are equal; one row alone does not tell."""
    return array.ndim > 0 and len(array) > 1 and bool(np.ptp(array.astype(np.float64), axis=0).max(initial=0) <= bound)
