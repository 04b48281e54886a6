"""A few trials stand for all that failed before under one key, so that nights do not grow with every failure.  Pure.

Each night draws fresh cases, and a cause that many of them show would fill the next night with failures known already.
As long as those that are tried fail as before, the others are taken to; if one does not, all of them are tried.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from d3bot.findings.key import is_catch_all
from d3bot.history.changes import Names, fails_alike
from d3bot.spec import Trial, Verdict

AGAIN = 3
"""How many trials that failed before under one key are tried again."""


@dataclass(frozen=True)
class FailedBefore:
    """What failed in the previous run."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """By trial; what did not fail there is passed over."""
    names: Names = field(default_factory=dict)
    """What a finding's trials may be called besides its key."""

    def repeats(self, verdict: Verdict) -> bool:
        """Return whether a trial fails as it did in the previous run."""
        before = self.verdicts.get(verdict.trial)
        return before is not None and fails_alike(before, verdict, self.names)

    def hold_back(self, trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
        """Return the trials to run and those that others stand for.

        Held back is only what is planned for no other reason than its failure.  A catch-all key says nothing of the
        cause, so nothing stands for what failed under one; nor for what did not fail steadily.
        """
        counts = Counter(self._key(trial) for trial in trials if trial.origin != "previous")
        run: list[Trial] = []
        held: list[Trial] = []
        for trial in trials:
            key = self._key(trial)
            if trial.origin != "previous" or is_catch_all(key):
                run.append(trial)
                continue
            counts[key] += 1
            (run if counts[key] <= AGAIN else held).append(trial)
        return run, held

    def released(self, held: Sequence[Trial], now: Mapping[str, Verdict]) -> list[Trial]:
        """Return what was held back and must be tried: something under its key does not fail as it did before.

        `now` are verdicts by trial.
        """
        changed = {
            before.key
            for trial, before in self.verdicts.items()
            if before.failing and trial in now and not self.repeats(now[trial])
        }
        return [trial for trial in held if self._key(trial) in changed]

    def _key(self, trial: Trial) -> str:
        before = self.verdicts.get(trial.id)
        return before.key if before and before.failing else ""
