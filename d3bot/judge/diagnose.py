"""What a wrong number means.  Each diagnosis is a hypothesis that was checked numerically; its residual is told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """Everything a hypothesis may look at."""

    difference: Difference
    want: np.ndarray
    held: tuple[np.ndarray, ...]
    """The array as each rank that returned it has it, in float64."""
    holders: tuple[int, ...]
    """The ranks that returned it."""
    reference: Arrays
    world: int
    parts: int


Hypothesis = Callable[[Evidence], Diagnosis | None]


def diagnose(difference: Difference, reference: Arrays, ranks: Sequence[Arrays], world: int, parts: int) -> Diagnosis:
    """Return the first hypothesis that the numbers bear out."""
    name = difference.name
    match difference.wrong:
        case "missing":
            return Diagnosis("missing", "no rank has it")
        case "unexpected":
            return Diagnosis("unexpected", "one process has no such array: there it gets no gradient or does not exist")
        case "shape":
            shapes = sorted({str(rank[name].shape) for rank in ranks if name in rank})
            return Diagnosis("shape", f"shape {', '.join(shapes)} instead of {reference[name].shape}")
        case "dtype":
            kinds = sorted({str(rank[name].dtype) for rank in ranks if name in rank})
            return Diagnosis("dtype", f"type {', '.join(kinds)} instead of {reference[name].dtype}")
        case "nonfinite":
            return Diagnosis("nonfinite", "NaN or infinity where one process has finite numbers")
    holders = tuple(i for i, rank in enumerate(ranks) if name in rank)
    held = tuple(ranks[i][name].astype(np.float64) for i in holders)
    evidence = Evidence(difference, reference[name].astype(np.float64), held, holders, reference, world, parts)
    for hypothesis in (_zero, _not_reduced, _ranks_differ, _scaled, _permuted, _stale, _part):
        found = hypothesis(evidence)
        if found:
            return found
    count, size = int(_beyond(evidence).sum()), evidence.want.size
    return Diagnosis("other", f"no known pattern; {count} of {size} elements are wrong")


def _close(evidence: Evidence, left: np.ndarray, right: np.ndarray) -> float | None:
    """Return the residual if left and right agree far better than the observed error, else None."""
    if left.shape != right.shape:
        return None
    residual = float(np.abs(left - right).max(initial=0))
    limit = max(_MATCH * min(evidence.difference.error, evidence.difference.scale or 1.0), evidence.difference.bound)
    return residual if residual <= limit and residual < evidence.difference.error / 10 else None


def _zero(evidence: Evidence) -> Diagnosis | None:
    if all(not array.any() for array in evidence.held) and evidence.want.any():
        return Diagnosis("zero", "all zero on every rank")
    return None


def _not_reduced(evidence: Evidence) -> Diagnosis | None:
    if len(evidence.held) < 2 or _agree(evidence):
        return None
    residual = _close(evidence, np.mean(evidence.held, axis=0), evidence.want)
    if residual is None:
        return None
    text = f"each rank holds its own; their mean is the expected value (residual {residual:.1e})"
    return Diagnosis("not-reduced", text)


def _ranks_differ(evidence: Evidence) -> Diagnosis | None:
    if len(evidence.held) < 2 or _agree(evidence):
        return None
    apart = max(float(np.abs(array - evidence.held[0]).max(initial=0)) for array in evidence.held)
    wrong = [
        rank
        for rank, array in zip(evidence.holders, evidence.held, strict=True)
        if np.abs(array - evidence.want).max(initial=0) > evidence.difference.bound
    ]
    only = f"only rank {_join(wrong)} is wrong" if len(wrong) == 1 else f"ranks {_join(wrong)} are wrong"
    which = "every rank is wrong" if len(wrong) == len(evidence.held) else only
    return Diagnosis("ranks-differ", f"the ranks' copies differ by up to {apart:.3g}; {which}")


def _scaled(evidence: Evidence) -> Diagnosis | None:
    want, held = evidence.want, evidence.held[0]
    power = float((want * want).sum())
    if want.size < 2 or not power:
        return None
    ratio = float((held * want).sum()) / power
    residual = _close(evidence, held, ratio * want)
    if residual is None:
        return None
    known: dict[str, float] = {}
    for word, number in (("world size", evidence.world), ("number of parts", evidence.parts)):
        if number > 1:
            known |= {f"the {word}": number, f"1 / {word}": 1 / number, f"the {word} squared": number**2}
    meaning = next((text for text, value in known.items() if abs(ratio - value) < 1e-4 * value), "")
    times = f"(1 {ratio - 1:+.3g})" if abs(ratio - 1) < 1e-3 else f"{ratio:.6g}"
    text = f"{times} x the expected value{f', that is {meaning}' if meaning else ''} (residual {residual:.1e})"
    return Diagnosis("scaled", text)


def _permuted(evidence: Evidence) -> Diagnosis | None:
    want, held = evidence.want, evidence.held[0]
    if want.size < 3 or want.shape != held.shape:
        return None
    residual = _close(evidence, np.sort(held, axis=None), np.sort(want, axis=None))
    if residual is None:
        return None
    return Diagnosis("permuted", f"the expected numbers in other places (sorted, residual {residual:.1e})")


def _stale(evidence: Evidence) -> Diagnosis | None:
    parsed = evidence.difference.parsed
    before = evidence.reference.get(f"step {parsed.step - 1} {parsed.role} {parsed.tensor}")
    if before is None or not before.any():
        return None
    residual = _close(evidence, evidence.held[0], before.astype(np.float64))
    return None if residual is None else Diagnosis("stale", f"equals the previous step's (residual {residual:.1e})")


def _part(evidence: Evidence) -> Diagnosis | None:
    want, wrong = evidence.want, _beyond(evidence)
    count, size = int(wrong.sum()), want.size
    if size < 4 or count * 2 > size:
        return None
    where = ""
    if want.ndim and wrong.any():
        rows = np.flatnonzero(wrong.reshape(want.shape[0], -1).any(axis=1))
        if len(rows) < want.shape[0]:
            where = f", in row{'s' if len(rows) > 1 else ''} {_join(rows[:6])} of {want.shape[0]}"
    return Diagnosis("part", f"{count} of {size} elements are wrong{where}")


def _beyond(evidence: Evidence) -> np.ndarray:
    """Return which elements of the first holder's array are wrong."""
    apart: np.ndarray = np.abs(evidence.held[0] - evidence.want)
    return apart > max(evidence.difference.bound, evidence.difference.error * 1e-6)


def _agree(evidence: Evidence) -> bool:
    first = evidence.held[0]
    apart = max(float(np.abs(array - first).max(initial=0)) for array in evidence.held)
    return apart <= max(evidence.difference.bound, 1e-3 * evidence.difference.error)


def _join(numbers: Sequence[int] | np.ndarray) -> str:
    return ", ".join(str(int(number)) for number in numbers)
