"""Find where an ordered sequence changes its answer, when some elements give no answer at all.  Pure and generic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["good", "bad", "unknown"]

Status = Literal["found", "new-end", "old-end", "unknown", "out-of-time"]
"""`found`: two neighbours, but for unknowns between, that differ.  `new-end`: the newest answers as the oldest should.
`old-end`: the oldest answers as the newest should.  `unknown`: not both ends gave an answer.  `out-of-time`: the range
is narrowed, but not to neighbours."""


class OutOfTimeError(Exception):
    """Raised by `ask` when no further element may be tried."""


@dataclass
class Searched:
    """What a search found.  `old` and `new` are indices, or None where no end of that kind was seen."""

    status: Status
    old: int | None
    """The newest element seen that answers as the old end does."""
    new: int | None
    """The oldest element seen, after `old`, that answers as the new end does."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Every element that was asked, in the order of asking."""


def search(
    count: int,
    ask: Callable[[int], Answer],
    old_answer: Literal["good", "bad"] = "good",
    around: Callable[[int, int, Sequence[int]], None] = lambda old, new, ahead: None,
) -> Searched:
    """Return where elements 0 .. count-1, oldest first, change from `old_answer` to its opposite.

    `ask` is called at most once for an element; both ends are asked first, the newest before the oldest, and an end
    that is unknown gives way to its neighbour.  `around` is told before each further question, with the range so far
    and the elements that may be asked next, so that they can be got ready and what lies outside can be thrown away.
    With u unknown answers at most log2(count) + u + 2 elements are asked, and every element between the two of the
    result was asked and is unknown.  ValueError for count < 2.
    """
    if count < 2:
        raise ValueError("a bisection needs two elements that differ in age")
    result = Searched("unknown", None, None)
    try:
        _search(count, ask, old_answer, around, result)
    except OutOfTimeError:
        result.status = "out-of-time"
    return result


def _search(
    count: int,
    ask: Callable[[int], Answer],
    old_answer: Literal["good", "bad"],
    around: Callable[[int, int, Sequence[int]], None],
    result: Searched,
) -> None:
    answers = result.answers

    def asked(index: int) -> Answer:
        if index not in answers:
            answers[index] = ask(index)
        return answers[index]

    new = next((index for index in range(count - 1, -1, -1) if asked(index) != "unknown"), None)
    if new is None:
        return
    if answers[new] == old_answer:
        result.old, result.status = new, "new-end"
        return
    result.new = new
    old = next((index for index in range(new) if asked(index) != "unknown"), None)
    if old is None:
        # Nothing older than `new` can be run: if there is nothing older at all, it is the oldest, and fails already.
        result.status = "old-end" if new == 0 else "unknown"
        return
    if answers[old] != old_answer:
        result.new, result.status = old, "old-end"
        return
    result.old = old
    while (middle := _middle(old, new, answers)) is not None:
        ahead = [_middle(middle, new, answers, middle), _middle(old, middle, answers, middle)]
        around(old, new, [middle, *dict.fromkeys(index for index in ahead if index is not None)])
        answer = asked(middle)
        if answer == old_answer:
            result.old = old = middle
        elif answer != "unknown":
            result.new = new = middle
    result.status = "found"


def _middle(old: int, new: int, answers: dict[int, Answer], besides: int = -1) -> int | None:
    """Return the element nearest to the middle of a range that was not asked yet, or None."""
    untried = [index for index in range(old + 1, new) if index not in answers and index != besides]
    return min(untried, key=lambda index: abs(2 * index - old - new), default=None)
