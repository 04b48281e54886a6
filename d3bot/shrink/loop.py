"""The shrinking loop: greedy, deterministic, never worse than what it started from."""

from collections.abc import Callable
from dataclasses import dataclass

from d3bot.shrink.candidates import smaller
from d3bot.spec import Case, Setting


@dataclass(frozen=True)
class Shrunk:
    """The smallest trial found that still fails in the same way."""

    case: Case
    setting: Setting
    tried: int
    """How many candidates were run."""
    finished: bool
    """False if the budget ended before nothing smaller failed."""


def shrink(case: Case, setting: Setting, fails: Callable[[Case, Setting], bool], allowed: Callable[[], bool]) -> Shrunk:
    """Take things away one at a time as long as `fails` says that the same failure remains.

    `fails(case, setting)` runs a candidate and compares keys; `allowed()` says whether the budget lasts.  A candidate
    is never tried twice.
    """
    start = (case.id, str(setting))
    tried: set[tuple[str, str]] = set()
    progress = True
    while progress:
        progress = False
        for candidate, distribution in smaller(case, setting):
            identity = (candidate.id, str(distribution))
            if identity == start or identity in tried:
                continue
            if not allowed():
                return Shrunk(case, setting, len(tried), finished=False)
            tried.add(identity)
            if fails(candidate, distribution):
                case, setting, progress = candidate, distribution, True
                break
    return Shrunk(case, setting, len(tried), finished=True)
