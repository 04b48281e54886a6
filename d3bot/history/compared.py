"""Two runs compared straight from their folders, however many trials they hold."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sys import intern

from d3bot.history.changes import ORDER, Names, all_names, classify, still_shown, unless_known
from d3bot.history.folder import load_header, read_verdicts
from d3bot.history.previous import difference
from d3bot.spec import FAILING, Change, ChangeClass, Framework, Kind, SpecError, Verdict

LISTED = 10_000
"""Changes of one class that are kept one by one; what is beyond is counted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison needs of a verdict, and nothing else: a run may hold a million."""

    framework: Framework
    case: str
    setting: str
    kind: Kind
    key: str
    also: tuple[str, ...]

    @property
    def failing(self) -> bool:
        """Whether the library broke the rule."""
        return self.kind in FAILING


@dataclass(frozen=True)
class Compared:
    """How many changes of each class there are, and the first of each, worst class first."""

    counts: dict[ChangeClass, int]
    changes: list[Change]

    @property
    def more(self) -> dict[ChangeClass, int]:
        """How many changes of each class are counted but not listed."""
        listed = Counter(change.change for change in self.changes)
        return {name: count - listed[name] for name, count in self.counts.items() if count > listed[name]}


def compare_folders(before: Path, after: Path, names: Names | None = None) -> Compared:
    """Return what changed between two runs; SpecError if one cannot be read or they are of different inputs."""
    reason = difference(load_header(before).builds, load_header(after).builds)
    if reason:
        raise SpecError(f"{before}: {reason}, as {after}; runs of different inputs are not compared")
    with _no_collector():
        old, new = _outcomes(before), _outcomes(after)
        shown = still_shown(old, new, names or {})
        known = all_names((outcome.key for outcome in old.values()), names or {})
        counts: Counter[ChangeClass] = Counter()
        kept: dict[ChangeClass, list[Change]] = {name: [] for name in ORDER}
        for trial in old.keys() | new.keys():
            one, other = old.get(trial), new.get(trial)
            name = classify(one, other, names or {}, shown)
            name = unless_known(name, other.key, known, names or {}) if other else name
            counts[name] += 1
            if len(kept[name]) < LISTED:
                kept[name].append(_change(trial, name, one, other))
    changes = [
        change
        for name in ORDER
        for change in sorted(kept[name], key=lambda each: (each.framework, each.setting, each.case))
    ]
    return Compared({name: counts[name] for name in ORDER if counts[name]}, changes)


def _outcomes(folder: Path) -> dict[str, Outcome]:
    """Return the outcome of each trial of a run, the later line of one that it holds twice."""
    return {intern(verdict.trial): _outcome(verdict) for verdict in read_verdicts(folder)}


def _outcome(verdict: Verdict) -> Outcome:
    words = (verdict.framework, intern(verdict.case), intern(verdict.setting), verdict.kind, intern(verdict.key))
    return Outcome(*words, verdict.also)


def _change(trial: str, name: ChangeClass, before: Outcome | None, after: Outcome | None) -> Change:
    known = after or before
    if known is None:
        raise ValueError("a change needs a verdict on at least one side")
    return Change(
        trial=trial,
        framework=known.framework,
        case=known.case,
        setting=known.setting,
        change=name,
        before=before.kind if before else None,
        after=after.kind if after else None,
        before_key=before.key if before else "",
        after_key=after.key if after else "",
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without the collector of reference cycles, of which a million small records have none but make it look."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
