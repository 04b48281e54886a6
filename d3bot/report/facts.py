"""What every report says of a run, whatever it looks like.  Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from d3bot.history.changes import NEWS, unknown_since
from d3bot.spec import FAILING, KINDS, SETTLED, Change, ChangeClass, Finding, Framework, Kind, PairCount, Run, Verdict

SYMBOLS: dict[Kind, str] = {
    "pass": "✓",
    "diverged": "≠",
    "nonfinite": "∞",
    "crashed": "✗",
    "died": "†",
    "hung": "…",
    "refused": "⊘",
    "reference-failed": "R",
    "not-applicable": "·",
    "flaky": "~",
    "no-data": "?",
}
"""One sign per kind, so that no report needs colour to be read."""

INCONCLUSIVE = 0.2
"""Above this share of trials without data, "nothing new" would be said about a run that hardly looked."""

LISTED: tuple[ChangeClass, ...] = (
    "regressed",
    "new-failing",
    "fails-differently",
    "lost",
    "still-failing",
    "flaky",
    "fixed",
)
"""Classes of change that a report lists one by one; the others are counted."""


@dataclass(frozen=True)
class Headline:
    """The first line of every report, and the counts that must never be hidden behind it."""

    text: str
    good: bool
    """Whether nothing new was found by a run that did look."""
    counts: tuple[tuple[str, int], ...]
    """What is counted and how often, in the order to show; zeros of the main counts included."""


@dataclass(frozen=True)
class Row:
    """How one setting of one framework did: trials by kind."""

    framework: Framework
    setting: str
    counts: dict[Kind, int]


def headline(run: Run, verdicts: Sequence[Verdict], changes: Sequence[Change], findings: Sequence[Finding]) -> Headline:
    """Return what the run says first: what is new, else that nothing is; and how much it could not say."""
    kinds = Counter(verdict.kind for verdict in verdicts)
    classes = Counter(change.change for change in changes)
    failing = sum(kinds[kind] for kind in FAILING)
    blank = sum(count for kind, count in kinds.items() if kind not in SETTLED and kind != "flaky")
    unknown = len(unknown_since(changes))
    compared = bool(run.previous or changes)
    new = sum(classes[name] for name in NEWS) if compared else failing
    blind = kinds["no-data"] + kinds["reference-failed"]
    warnings = []
    if not run.complete:
        warnings.append("INCOMPLETE RUN")
    if not verdicts:
        warnings.append("NO DATA")
    elif blind > INCONCLUSIVE * len(verdicts):
        warnings.append(f"INCONCLUSIVE: {blind} of {len(verdicts)} trials gave no data")
    if classes["lost"]:
        warnings.append(f"{times(classes['lost'], 'failing trial')} of the previous run had no verdict this time")
    if unknown:
        warnings.append(f"{times(unknown, 'trial')} failing, unknown since when")
    if new:
        bugs = f" under {times(len(findings), 'key')}" if findings else ""
        warnings.append(f"{times(new, 'new failure' if compared else 'failure')}{bugs}")
    good = not warnings
    if not new and verdicts:
        warnings.append("nothing new" if compared else "no failure")
    if not compared:
        warnings.append("no previous run to compare with")
    counts = (
        ("new", new),
        ("fixed", classes["fixed"]),
        ("still failing", classes["still-failing"]),
        ("flaky", kinds["flaky"]),
        ("no-data", kinds["no-data"]),
        ("indeterminate", blank),
        ("lost", classes["lost"]),
        *((("represented", classes["represented"]),) if classes["represented"] else ()),
        *((("vacuous", vacuous),) if (vacuous := sum(verdict.vacuous for verdict in verdicts)) else ()),
        *((kind, kinds[kind]) for kind in KINDS if kinds[kind] and kind not in ("flaky", "no-data")),
    )
    return Headline("; ".join(warnings), good, counts)


def covered(run: Run, verdicts: Sequence[Verdict]) -> list[str]:
    """Return what the run reached, in sentences: pairs and triples, cases that train, time for making them."""
    said = []
    for framework, pairs in run.pairs.items():
        triples = run.triples.get(framework, PairCount())
        said.append(
            f"Coverage of {framework}: {_of(pairs)} pairs of a case's feature and a setting's option, "
            f"{_of(triples)} triples of two risky features and an option; "
            f"{pairs.left} pairs and {triples.left} triples left, "
            f"{pairs.excluded} and {triples.excluded} excluded, each with its reason"
        )
    ran = {verdict.case for verdict in verdicts if verdict.kind in (*SETTLED, "reference-failed") or verdict.vacuous}
    if ran:
        broken = {verdict.case for verdict in verdicts if verdict.kind == "reference-failed"}
        blind = {verdict.case for verdict in verdicts if verdict.vacuous}
        said.append(
            f"Of {times(len(ran), 'case')} {_percent(len(ran) - len(broken), len(ran))} trained in one process, "
            f"and {_percent(len(blind), len(ran))} could not have shown a fault"
        )
    if run.timings and run.seconds:
        said.append(
            f"Generating and rendering took {_percent(sum(run.timings.values()), run.seconds)} of the run's time"
        )
    return said


def _of(pairs: PairCount) -> str:
    """Return what of a run's pairs was covered, and with the runs before it."""
    now, lately = _percent(pairs.covered, pairs.reachable), _percent(pairs.lately, pairs.reachable)
    return (
        f"{now} of {pairs.reachable} ({lately} with earlier runs)" if lately != now else f"{now} of {pairs.reachable}"
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def matrix(verdicts: Sequence[Verdict]) -> list[Row]:
    """Return the counts by setting, by framework and then in the settings' order."""
    counted: dict[tuple[Framework, str], Counter[Kind]] = {}
    for verdict in verdicts:
        counted.setdefault((verdict.framework, verdict.setting), Counter())[verdict.kind] += 1
    return [Row(*where, dict(counts)) for where, counts in sorted(counted.items(), key=lambda item: item[0])]


def by_family(rows: Sequence[Row]) -> list[Row]:
    """Return the counts of a matrix added up: one row a setting family."""
    counted: dict[tuple[Framework, str], Counter[Kind]] = {}
    for row in rows:
        counted.setdefault((row.framework, row.setting.partition("(")[0]), Counter()).update(row.counts)
    return [Row(*where, dict(counts)) for where, counts in counted.items()]


def kinds_of(verdicts: Sequence[Verdict]) -> list[Kind]:
    """Return the kinds that occur, in the order of `KINDS`."""
    seen = {verdict.kind for verdict in verdicts}
    return [kind for kind in KINDS if kind in seen]


def reasons(verdicts: Sequence[Verdict], limit: int) -> list[tuple[Kind, str, int]]:
    """Return (kind, reason, times) of trials that say nothing about the library, the commonest first."""
    counted = Counter(
        (verdict.kind, verdict.reason)
        for verdict in verdicts
        if verdict.kind not in SETTLED and verdict.kind != "flaky"
    )
    return [(kind, reason, count) for (kind, reason), count in counted.most_common(limit)]


def against_each_other(verdicts: Sequence[Verdict]) -> list[tuple[str, list[tuple[str, ...]], int]]:
    """Return each case with settings that are wrong in the same way: its name, the groups, how many settings passed.

    A setting that is wrong in its own way is a group of one.
    """
    cases: dict[tuple[Framework, str], list[Verdict]] = {}
    for verdict in verdicts:
        cases.setdefault((verdict.framework, verdict.case), []).append(verdict)
    found = []
    for (_, case), mine in sorted(cases.items()):
        if any(verdict.same for verdict in mine):
            groups = {tuple(sorted((v.setting, *v.same))) for v in mine if v.kind == "diverged"}
            name = next((verdict.seed for verdict in mine if verdict.seed), case)
            ordered = sorted(groups, key=lambda group: (-len(group), group))
            found.append((name, ordered, sum(verdict.kind == "pass" for verdict in mine)))
    return found


def numbers(verdict: Verdict) -> str:
    """Return the first divergent tensor, the difference and its bound in a few words; empty where there is none."""
    parts = []
    if verdict.first:
        step = "" if verdict.first.step is None else f"step {verdict.first.step} "
        parts.append(f"{step}{verdict.first.role} {verdict.first.tensor}".strip())
    if verdict.error is not None:
        parts.append(f"max |difference| {verdict.error:.3g}")
    if verdict.bound is not None:
        parts.append(f"bound {verdict.bound:.3g}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as `12 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def times(count: int, what: str) -> str:
    """Return `1 trial`, `2 trials`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
