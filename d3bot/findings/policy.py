"""How much d3bot may do to a tracker, and how patient it is.  Plain numbers with their reasons."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Policy:
    """The limits that filing holds.  All are on unless somebody raises them: a flood is worse than a late report."""

    per_run: int = 5
    """New issues of one run; further findings are listed in one overflow issue."""
    per_day: int = 20
    """New issues of one library in 24 hours, over all runs."""
    edits: int = 40
    """Issues that one run brings up to date, those that waited longest first."""
    closes: int = 5
    """Issues that one run may close."""
    panic: int = 25
    """More new keys than this in one run are a bad build, not as many bugs: one issue says so, and nothing else is
    filed."""
    crowd: int = 3
    """New findings of one setting family and kind that get an issue each; more than that share a cause more often than
    not, so one is filed and the others are listed."""
    quiet: timedelta = timedelta(hours=48)
    """After a closing: a fix is merged before the build that holds it exists."""
    window: timedelta | None = None
    """How long after its closing an issue is reopened; later, a new one is filed.  None: always reopened."""
    remind: timedelta | None = None
    """Time without a comment of d3bot after which an issue that still fails gets one; None: never."""
    respite: timedelta = timedelta(days=7)
    """Nothing is closed so soon after a person did something with it."""
    passes: int = 3
    """Fresh processes in which the script must pass before its issue is closed."""
    night_issue: bool = False
    """Whether a run without data is told in the one infrastructure issue."""


DEFAULT = Policy()
