"""What a hypothesis may look at, and how near to the numbers it must come."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from d3bot.judge.compare import Difference
from d3bot.spec import Arrays

_MATCH = 1e-5
"""A hypothesis holds if what it leaves unexplained is below this part of the array's scale (and of the error)."""


@dataclass(frozen=True)
class Diagnosis:
    """`kind` is a stable word for keys; `text` a sentence for people."""

    kind: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """Everything a hypothesis may look at.  Arrays are in float64, whatever they were computed in."""

    difference: Difference
    want: np.ndarray
    held: tuple[np.ndarray, ...]
    """The array as each rank that returned it has it."""
    holders: tuple[int, ...]
    """The ranks that returned it."""
    reference: Arrays
    world: int
    parts: int
    eps: float = 0.0
    """Rounding unit of the type that the array was computed in."""
    own: tuple[np.ndarray, ...] = ()
    """The array as the rows of each rank (or micro-batch) give it alone; empty if that is not known."""
    seen: Arrays = field(default_factory=dict)
    """Everything that the first holder returned."""
    without: tuple[np.ndarray | None, ...] = ()
    """The array as one process has it without the rows of each rank (or micro-batch); empty if that is not known."""
    before: np.ndarray | None = None
    """Of a parameter: its value before the step."""

    def residual(self, left: np.ndarray, right: np.ndarray) -> float | None:
        """Return the largest |difference| if left and right agree far better than the observed error, else None."""
        if left.shape != right.shape:
            return None
        residual = float(np.abs(left - right).max(initial=0))
        error, scale = self.difference.error, self.difference.scale
        limit = max(_MATCH * min(error, scale or 1.0), self.difference.bound, 4 * self.eps * scale)
        return residual if residual <= limit and residual < error / 10 else None

    def with_arrays(self, want: np.ndarray, held: np.ndarray) -> "Evidence":
        """Return the evidence of a part of the array, or of one rank's copy."""
        error = float(np.abs(held - want).max(initial=0))
        scale = float(np.abs(want).max(initial=0))
        difference = replace(self.difference, error=error, scale=scale)
        return replace(self, difference=difference, want=want, held=(held,))

    def of_rank(self, rank: int, array: np.ndarray) -> "Evidence":
        """Return the evidence of one rank's copy alone."""
        return replace(self.with_arrays(self.want, array), holders=(rank,))


def meaning(ratio: float, evidence: Evidence, tolerance: float = 1e-4) -> tuple[str, float] | None:
    """Return which number of the setting a factor is, up to a relative tolerance, and that number; None if none."""
    known: dict[str, float] = {}
    for word, number in (("world size", evidence.world), ("number of parts", evidence.parts)):
        if number > 1:
            known |= {f"the {word}": number, f"1 / {word}": 1 / number, f"the {word} squared": number**2}
            known |= {f"1 / {word} squared": 1 / number**2}
            through = number * float(np.float32(1 / number))
            if abs(ratio - through) < 1e-3 * abs(through - 1):
                return f"a factor 1 / {word} that was rounded to float32", through
    return next(((text, value) for text, value in known.items() if abs(ratio - value) <= tolerance * value), None)


def ratio_text(ratio: float, evidence: Evidence) -> str:
    """Return `2 x the expected value, that is the world size`."""
    meant = meaning(ratio, evidence)
    times = f"(1 {ratio - 1:+.3g})" if abs(ratio - 1) < 1e-3 else f"{ratio:.6g}"
    return f"{times} x the expected value{f', that is {meant[0]}' if meant else ''}"


def join(numbers: Sequence[int] | np.ndarray) -> str:
    """Return `0, 2, 3`."""
    return ", ".join(str(int(number)) for number in numbers)
