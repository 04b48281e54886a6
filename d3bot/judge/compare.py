"""Array by array: how far the ranks are from the reference, and whether that is more than allowed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from d3bot.judge.bounds import K
from d3bot.spec import ArrayName, Arrays, parse_name

Wrong = Literal["", "value", "nonfinite", "missing", "unexpected", "shape", "dtype"]


@dataclass(frozen=True)
class Difference:
    """One array's comparison.  `error` is the largest |difference| over all ranks that returned it."""

    name: str
    parsed: ArrayName
    error: float
    bound: float
    scale: float
    """Largest |element| of the reference."""
    wrong: Wrong = ""
    expected: float | None = None
    """The reference's element where the error is largest; None where the arrays cannot be laid over one another."""
    seen: float | None = None
    """That element on the rank that is the furthest off."""

    @property
    def excess(self) -> float:
        """Error in units of what matters for ranking: the array's own scale."""
        return self.error / self.scale if self.scale else self.error


def compare(
    reference: Arrays,
    ranks: Sequence[Arrays],
    floor: Mapping[str, float],
    exact: Callable[[ArrayName], bool],
) -> list[Difference]:
    """Return one Difference an array, the earliest first.

    Every array of the reference must come from at least one rank, and no rank may return one that the reference has
    not: a missing output never counts as equal.
    """
    result = []
    for name in dict.fromkeys([*reference, *(name for rank in ranks for name in rank)]):
        parsed = parse_name(name)
        held = [rank[name] for rank in ranks if name in rank]
        want = reference.get(name)
        if want is None:
            largest = max(float(np.abs(array).max(initial=0)) for array in held)
            result.append(Difference(name, parsed, largest, 0.0, 0.0, "unexpected"))
        elif not held:
            result.append(Difference(name, parsed, float("inf"), 0.0, _scale(want), "missing"))
        else:
            bound = 0.0 if exact(parsed) else K * floor[name]
            result.append(_difference(name, parsed, want, held, bound))
    return sorted(result, key=lambda item: item.parsed)


def _difference(name: str, parsed: ArrayName, want: np.ndarray, held: Sequence[np.ndarray], bound: float) -> Difference:
    scale = _scale(want)
    if any(array.shape != want.shape for array in held):
        return Difference(name, parsed, float("inf"), bound, scale, "shape")
    if any(array.dtype != want.dtype for array in held):
        return Difference(name, parsed, float("inf"), bound, scale, "dtype")
    if not all(np.isfinite(array).all() for array in held):
        return Difference(name, parsed, float("inf"), bound, scale, "nonfinite")
    errors = [np.abs(array.astype(np.float64) - want) for array in held]
    error = max(float(apart.max(initial=0)) for apart in errors)
    if error <= bound:
        return Difference(name, parsed, error, bound, scale)
    rank = max(range(len(held)), key=lambda i: float(errors[i].max(initial=0)))
    at = np.unravel_index(int(errors[rank].argmax()), want.shape)
    return Difference(name, parsed, error, bound, scale, "value", float(want[at]), float(held[rank][at]))


def _scale(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0))
