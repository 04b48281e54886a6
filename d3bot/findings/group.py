"""Which failing verdicts of a run, and which findings of its shards, are one bug.  Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from d3bot.findings.key import is_catch_all
from d3bot.spec import Case, Finding, Verdict


@dataclass(frozen=True)
class Group:
    """Failing verdicts of one key; `representative` is the smallest of them, `members` holds all, smallest first."""

    key: str
    members: tuple[Verdict, ...]

    @property
    def representative(self) -> Verdict:
        """The verdict to confirm, shrink and show."""
        return self.members[0]

    @property
    def catch_all(self) -> bool:
        """Whether nothing is known about the cause; such a group has one member."""
        return is_catch_all(self.key)


def group_failing(
    verdicts: Sequence[Verdict], cases: Mapping[str, Case], taken_away: Collection[str] = ()
) -> list[Group]:
    """Return the failing verdicts by key, in the order of the keys.

    `taken_away` names trials that are refused although they passed before: that is a failure too.

    `cases` maps case ids to cases; what it lacks counts as the largest.  Two failures under a catch-all key share only
    that nothing is known about them, so each is a group of its own.
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.failing or (verdict.trial in taken_away and verdict.kind == "refused"):
            own = verdict.trial if is_catch_all(verdict.key) else ""
            groups.setdefault((verdict.key, own), []).append(verdict)
    return [
        Group(key, tuple(sorted(members, key=lambda verdict: _size(verdict, cases))))
        for (key, _), members in sorted(groups.items())
    ]


def one_cause(names: Sequence[Collection[str]]) -> list[list[int]]:
    """Return the places of `names` that are one cause, in their order: those that share a name, over others too."""
    causes: list[tuple[set[str], list[int]]] = []
    for place, mine in enumerate(names):
        known = [cause for cause in causes if cause[0].intersection(mine)]
        joined = set(mine).union(*(cause[0] for cause in known))
        places = sorted([place, *(each for cause in known for each in cause[1])])
        causes = [cause for cause in causes if cause not in known] + [(joined, places)]
    return sorted(places for _, places in causes)


def joined(chosen: Finding, others: Sequence[Finding]) -> Finding:
    """Return the finding of a cause with all that others of the same cause know: names, symptoms, trials."""
    every = [chosen, *others]
    return chosen.model_copy(
        update={
            "aliases": tuple(sorted({name for each in every for name in each.names} - {chosen.key})),
            "symptoms": tuple(sorted({symptom for each in every for symptom in each.symptoms})),
            "trials": tuple(dict.fromkeys(trial for each in every for trial in each.trials)),
        }
    )


def _size(verdict: Verdict, cases: Mapping[str, Case]) -> tuple[bool, int, int, str, str]:
    case = cases.get(verdict.case)
    layers, steps = (len(case.layers), case.steps) if case else (0, 0)
    return (case is None, layers, steps, verdict.setting, verdict.case)
