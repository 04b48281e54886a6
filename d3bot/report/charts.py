"""Where marks stand in the report's pictures: numbers in, coordinates out.  Pure; the templates draw them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from d3bot.spec import FAILING, Verdict

_LOW, _HIGH = -18, 3
"""Decades of the axis: from below one rounding of float64 to a difference that nobody calls rounding."""
_ZERO, _LEFT, _WIDTH = 8.0, 22.0, 200.0
"""Zero has no place on a logarithmic axis, and here it is the commonest bound: it stands apart, at the left."""

_DECADES = 6
"""Of the histogram, on each side of the bound."""


@dataclass(frozen=True)
class Strip:
    """One difference and what is allowed, on the axis that all strips of a page share.  Coordinates in pixels."""

    error: float | None
    """Where the difference stands; None if it is not a number, or infinite."""
    bound: float | None
    wrong: bool
    label: str
    """The same in words."""


@dataclass(frozen=True)
class Bar:
    """A bar of a chart: its name, what it stands for in words, and its length from 0 to 1."""

    name: str
    text: str
    part: float
    bad: float = 0.0
    """The failing part of it, from 0 to 1."""


def ticks() -> list[tuple[float, str]]:
    """Return the marks of the axis: where, and what is written there."""
    return [(_ZERO, "0"), *((_x(10.0**decade), f"1e{decade}" if decade else "1") for decade in range(-15, 1, 5))]


def strip(error: float | None, bound: float | None, wrong: bool = True) -> Strip | None:
    """Return where a difference and its bound stand; None where there is neither."""
    if error is None and bound is None:
        return None
    told = "not comparable" if error is None or not math.isfinite(error) else f"{error:.3g}"
    label = f"difference {told}, allowed {bound or 0:.3g}"
    at = _x(error) if error is not None and math.isfinite(error) else None
    return Strip(at, _x(bound or 0.0), wrong, label)


def _x(value: float) -> float:
    if value <= 0:
        return _ZERO
    part = (math.log10(value) - _LOW) / (_HIGH - _LOW)
    return round(_LEFT + _WIDTH * min(1.0, max(0.0, part)), 1)


def closeness(verdicts: Iterable[Verdict]) -> tuple[list[Bar], int]:
    """Return how far from their bounds the closest tensors are, a bar a decade, and how many trials are bit-equal.

    A bar's `bad` is its part that failed.  Where nothing is allowed, any difference is beyond every decade.
    """
    passing: Counter[int] = Counter()
    failing: Counter[int] = Counter()
    equal = 0
    for verdict in verdicts:
        if verdict.kind == "pass" and verdict.error is None:
            equal += 1
        elif verdict.error is not None and verdict.kind in ("pass", *FAILING):
            (passing if verdict.kind == "pass" else failing)[_decade(verdict.error, verdict.bound or 0.0)] += 1
    decades = range(-_DECADES, _DECADES + 2)
    most = max((passing[decade] + failing[decade] for decade in decades), default=0)
    bars = []
    for decade in decades:
        count = passing[decade] + failing[decade]
        text = f"{passing[decade]} pass, {failing[decade]} fail"
        bars.append(Bar(_decade_name(decade), text, count / most if most else 0.0, failing[decade] / (count or 1)))
    return (bars if most else []), equal


def _decade(error: float, bound: float) -> int:
    if not error:
        return -_DECADES
    if not bound:
        return _DECADES + 1
    return max(-_DECADES, min(_DECADES, math.floor(math.log10(error / bound))))


def _decade_name(decade: int) -> str:
    if decade == -_DECADES:
        return f"below 1e{decade + 1}"
    if decade == _DECADES + 1:
        return "bound 0"
    return f"from 1e{decade}" if decade else "from 1"


def time_by_family(verdicts: Sequence[Verdict]) -> list[Bar]:
    """Return the seconds that each framework's families took, the longest first."""
    seconds: dict[str, list[float]] = {}
    for verdict in verdicts:
        seconds.setdefault(f"{verdict.framework} {family(verdict.setting)}", []).append(verdict.seconds)
    longest = max((sum(each) for each in seconds.values()), default=0.0)
    return [
        Bar(
            name,
            f"{sum(each):,.0f} s in {len(each)} trials, the middle one {sorted(each)[len(each) // 2]:.2f} s",
            sum(each) / longest if longest else 0.0,
        )
        for name, each in sorted(seconds.items(), key=lambda item: -sum(item[1]))
    ]


def family(setting: str) -> str:
    """Return the family of a setting's one-line form."""
    return setting.partition("(")[0].strip()
