"""The shrinking loop: hierarchical, deterministic, never worse than what it started from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from d3bot.shrink.candidates import LEVELS, Candidate
from d3bot.spec import Case, Setting

Ask = Callable[[Sequence[Candidate]], Sequence[bool]]
"""Run candidates, all at once if that can be, and say of each whether it fails in the same way."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest trial found that still fails in the same way."""

    case: Case
    setting: Setting
    tried: int
    """How many candidates were run."""
    finished: bool
    """False if the budget ended before nothing smaller failed."""


def shrink(
    case: Case,
    setting: Setting,
    ask: Ask,
    allowed: Callable[[], bool],
    width: int = 1,
    better: Callable[[Case, Setting], None] = lambda case, setting: None,
) -> Shrunk:
    """Take things away, level by level from whole models to single sizes, as long as the same failure remains.

    Each level is worked at until nothing on it can be taken away, and all of them until nothing on any can.  `width`
    candidates are asked about at a time, and the first of them that fails in the same way is taken.  `allowed()` says
    whether the budget lasts; `better` is told of every smaller trial.  A candidate is never run twice.
    """
    search = _Search((case, setting), ask, allowed, width, better)
    try:
        while sum(search.exhaust(level) for level in LEVELS):
            pass
    except _SpentError:
        return Shrunk(*search.best, search.tried, finished=False)
    return Shrunk(*search.best, search.tried, finished=True)


class _SpentError(Exception):
    """The budget is over."""


class _Search:
    """One shrinking: the smallest trial so far, and what is known of every candidate."""

    def __init__(
        self,
        start: Candidate,
        ask: Ask,
        allowed: Callable[[], bool],
        width: int,
        better: Callable[[Case, Setting], None],
    ):
        self.best = start
        self.tried = 0
        self._ask = ask
        self._allowed = allowed
        self._width = width
        self._better = better
        self._known = {_identity(start): False}  # not a smaller one, wherever it comes up again

    def exhaust(self, level: Callable[[Case, Setting], Iterator[Candidate]]) -> bool:
        """Take away on one level until nothing more can be; return whether anything was."""
        progress = False
        while found := self._first(level(*self.best)):
            self.best, progress = found, True
            self._better(*found)
        return progress

    def _first(self, candidates: Iterator[Candidate]) -> Candidate | None:
        """Return the first candidate that fails in the same way; `_SpentError` if the budget ends before."""
        while window := list(islice(candidates, self._width)):
            fresh = {_identity(each): each for each in window if _identity(each) not in self._known}
            if fresh:
                if not self._allowed():
                    raise _SpentError
                self.tried += len(fresh)
                self._known |= zip(fresh, self._ask(list(fresh.values())), strict=True)
            for each in window:
                if self._known[_identity(each)]:
                    return each
        return None


def _identity(candidate: Candidate) -> tuple[str, str]:
    return candidate[0].id, str(candidate[1])
