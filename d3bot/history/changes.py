"""What changed between two runs, trial by trial.  Pure.

Each kind says one of four things: the trial *fails*, it is *fine* (passes, or is clearly refused), it is *unsteady*
(did not repeat), or it is *blank* (says nothing about the library).  An unsteady or blank verdict on either side never
opens and never closes anything.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from d3bot.spec import FAILING, Change, ChangeClass, Finding, Kind, Verdict

ORDER: tuple[ChangeClass, ...] = (
    "regressed",
    "new-failing",
    "fails-differently",
    "lost",
    "still-failing",
    "represented",
    "flaky",
    "indeterminate",
    "fixed",
    "new-passing",
    "still-passing",
    "retired",
)
"""Every class of change, worst first."""

NEWS: frozenset[ChangeClass] = frozenset({"regressed", "new-failing", "fails-differently"})
"""Classes in which the newer run holds a failure that the older one did not."""

_BLANK = frozenset({"no-data", "reference-failed", "not-applicable"})


Names = Mapping[str, frozenset[str]]
"""Key of a finding -> every other key that a trial of it may carry."""

_NONE: Names = {}


class Judged(Protocol):
    """What a comparison needs of a verdict."""

    @property
    def kind(self) -> Kind:
        """How the trial ended."""

    @property
    def key(self) -> str:
        """The key of its failure; empty for a pass."""

    @property
    def also(self) -> tuple[str, ...]:
        """Other symptoms that the same trial showed."""

    @property
    def failing(self) -> bool:
        """Whether the library broke the rule."""


def classify(
    before: Judged | None, after: Judged | None, names: Names = _NONE, shown: Collection[str] = ()
) -> ChangeClass:
    """Return the class of one trial across two runs; None where a run did not have it, ValueError if neither did.

    `shown` are the keys of which another trial fails still: it stands for one that the newer run does not have.
    """
    if after is None:
        if before is None:
            raise ValueError("a change needs a verdict on at least one side")
        if not before.failing:
            return "retired"
        return "represented" if before.key in shown else "lost"
    if after.kind in _BLANK:
        return "indeterminate"
    if after.kind == "flaky":
        return "flaky"
    if before is None:
        return "new-failing" if after.failing else "new-passing"
    if before.kind in _BLANK:
        return "indeterminate"
    if before.kind == "flaky":
        return "flaky"
    if before.failing and after.failing:
        return "still-failing" if fails_alike(before, after, names) else "fails-differently"
    if before.failing:
        return "fixed"
    if after.failing:
        # What was refused never worked, so that it fails now is new, but it is no regression.
        return "regressed" if before.kind == "pass" else "new-failing"
    # A feature that passed and is refused now was taken away from whoever used it.
    return "regressed" if before.kind == "pass" and after.kind == "refused" else "still-passing"


def fails_alike(before: Judged, after: Judged, names: Names = _NONE) -> bool:
    """Return whether both fail, and in the same way as far as their keys tell."""
    if not before.failing or not after.failing:
        return False
    old, new = before.key or before.kind, after.key or after.kind
    if old == new or new in before.also or old in after.also:
        return True
    return new in names.get(old, ()) or old in names.get(new, ())


def still_shown(before: Mapping[str, Judged], after: Mapping[str, Judged], names: Names = _NONE) -> set[str]:
    """Return the keys of the older run of which a trial fails in the newer one as before; both are by trial."""
    return {
        old.key
        for trial, old in before.items()
        if old.failing and old.key and trial in after and fails_alike(old, after[trial], names)
    }


def compare(before: Sequence[Verdict], after: Sequence[Verdict], names: Names = _NONE) -> list[Change]:
    """Return the change of every trial that either run has, worst first, then by framework, setting and case.

    A trial that a run holds twice counts with its later line: verdicts are appended as trials end.
    """
    old = {verdict.trial: verdict for verdict in before}
    new = {verdict.trial: verdict for verdict in after}
    shown = still_shown(old, new, names)
    trials = old.keys() | new.keys()
    return sorted((_change(old.get(trial), new.get(trial), names, shown) for trial in trials), key=_rank)


def other_names(findings: Iterable[Finding]) -> Names:
    """Return under which keys the trials of each finding may stand in a run.

    Nobody may have looked into a trial that failed, or an older rule may have named it: then it has its symptom alone.
    """
    names: dict[str, frozenset[str]] = {}
    for finding in findings:
        others = frozenset((*finding.aliases, *finding.symptoms))
        names[finding.key] = names.get(finding.key, frozenset()) | others
    return names


def all_names(keys: Iterable[str], names: Names = _NONE) -> set[str]:
    """Return keys of an older run, and the names under which the same causes may stand in a newer one."""
    known = {key for key in keys if key}
    return known | {name for key in known for name in names.get(key, ())}


def unless_known(change: ChangeClass, after_key: str, known: Collection[str], names: Names = _NONE) -> ChangeClass:
    """Return the class of a change, where a failure that the older run had under its key is still failing, not new.

    Another case that fails by a cause known from the night before is the same bug seen again, for whoever counts and
    for whoever reads.  `known` are all names of what the older run had.
    """
    if change in NEWS and any(name in known for name in (after_key, *names.get(after_key, ()))):
        return "still-failing"
    return change


def known_again(changes: Iterable[Change], names: Names = _NONE) -> list[Change]:
    """Return the changes, in which nothing is new that the older run had under its key (see `unless_known`)."""
    changes = list(changes)
    known = all_names((change.before_key for change in changes), names)
    return sorted(
        (
            change.model_copy(update={"change": unless_known(change.change, change.after_key, known, names)})
            for change in changes
        ),
        key=_rank,
    )


def unknown_since(changes: Iterable[Change]) -> list[Change]:
    """Return the changes that fail now while the older run says nothing steady: failing, nobody knows since when.

    Their class opens nothing, so a report must name them or they stay unseen.
    """
    return [change for change in changes if change.after in FAILING and change.change in ("indeterminate", "flaky")]


def _change(before: Verdict | None, after: Verdict | None, names: Names, shown: Collection[str]) -> Change:
    known = after or before
    if known is None:
        raise ValueError("a change needs a verdict on at least one side")
    return Change(
        trial=known.trial,
        framework=known.framework,
        case=known.case,
        setting=known.setting,
        change=classify(before, after, names, shown),
        before=before.kind if before else None,
        after=after.kind if after else None,
        before_key=before.key if before else "",
        after_key=after.key if after else "",
    )


def _rank(change: Change) -> tuple[int, str, str, str]:
    return (ORDER.index(change.change), change.framework, change.setting, change.case)
