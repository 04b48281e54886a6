"""history.json: what the last nights said of every key and family, carried from run to run.

The record of a night is small, so that a run folder can hold many; what a night does not say of a key stays unsaid: a
failure that is not seen may not have been looked for.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from d3bot.history.files import dump_json, read_object, write_atomic
from d3bot.spec import SCHEMA, Change, Evidence, Finding, Framework, Kind, Run, SpecError, Verdict, one_line
from d3bot.spec.base import Noun

HISTORY = "history.json"
MAX_NIGHTS = 60
MAX_KEYS = 500
_CAP = 32 * 1024**2

Line = Annotated[str, StringConstraints(max_length=500)]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,119}$")]
State = Literal["fails", "passes", "flaky"]


class Sighting(Noun):
    """What one night said of a key."""

    state: State
    trials: int = 0
    """How many trials failed with it."""
    passed_before: bool = False
    """Whether one of them passed the night before."""


class NightBuild(Noun):
    """A build of a night, in the words of its page."""

    framework: Framework
    version: Line
    commit: Line = ""
    label: Line = ""


class NightRecord(Noun):
    """One night."""

    run: Line
    started: Line
    complete: bool
    builds: Annotated[tuple[NightBuild, ...], Field(max_length=8)]
    families: Annotated[dict[Line, dict[Kind, int]], Field(max_length=200)] = {}
    """`torch fsdp2` to its verdicts by kind."""
    keys: Annotated[dict[Key, Sighting], Field(max_length=MAX_KEYS)] = {}


class KeyFacts(Noun):
    """What is known of a key whatever the night."""

    framework: Framework
    family: Line
    kind: Kind
    title: Line = ""
    good: Line = ""
    """The newest build on which its script is known to pass."""


class History(Noun):
    """The last nights, the newest last."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    nights: Annotated[tuple[NightRecord, ...], Field(max_length=MAX_NIGHTS)] = ()
    facts: Annotated[dict[Key, KeyFacts], Field(max_length=MAX_NIGHTS * MAX_KEYS)] = {}

    model_config = {**Noun.model_config, "populate_by_name": True}


@dataclass(frozen=True)
class KeyLine:
    """A key over the nights of a history."""

    key: str
    facts: KeyFacts
    sightings: tuple[Sighting | None, ...]
    """One a night; None where the night says nothing of it."""
    first_bad: str
    """Build of the night in which it began to fail, as far as the history goes."""
    last_good: str
    """The newest build before, on which it is known to have passed; empty if none is known."""
    now: State | None
    """What was said of it last; None only if nothing was."""


def record(
    run: Run,
    verdicts: Sequence[Verdict],
    changes: Sequence[Change] = (),
    findings: Sequence[Finding] = (),
    evidence: Sequence[Evidence] = (),
    known: Sequence[Finding] = (),
) -> NightRecord:
    """Return the record of a run.

    `known` are findings of earlier runs: a symptom that only one of them has is recorded under its key, so that a bug
    which a night had no time to look into goes on in its line.
    """
    families: dict[str, Counter[Kind]] = {}
    for verdict in verdicts:
        families.setdefault(f"{verdict.framework} {_family(verdict.setting)}", Counter())[verdict.kind] += 1
    of = _keys_by_symptom([*findings, *known])
    failing = Counter(of.get(verdict.key, verdict.key) for verdict in verdicts if verdict.failing and verdict.key)
    failing.update({finding.key: 1 for finding in findings if finding.key not in failing})
    regressed = {of.get(change.after_key, change.after_key) for change in changes if change.change == "regressed"}
    keys = {
        key: Sighting(state="fails", trials=count, passed_before=key in regressed)
        for key, count in failing.most_common(MAX_KEYS)
    }
    for key, state in _not_failing(changes, evidence):
        if key and key not in keys and len(keys) < MAX_KEYS:
            keys[key] = Sighting(state=state)
    return NightRecord(
        run=run.run,
        started=run.started,
        complete=run.complete,
        builds=tuple(
            NightBuild(framework=b.framework, version=b.version, commit=b.commit, label=b.label[:500])
            for b in run.builds
        ),
        families={name: dict(counts) for name, counts in sorted(families.items())},
        keys=dict(sorted(keys.items())),
    )


def _keys_by_symptom(findings: Sequence[Finding]) -> dict[str, str]:
    """Return each symptom with the key of the finding that has it, unless there are several or it is a key itself."""
    keys = {finding.key for finding in findings}
    owners: dict[str, set[str]] = {}
    for finding in findings:
        for symptom in finding.symptoms:
            owners.setdefault(symptom, set()).add(finding.key)
    return {name: next(iter(of)) for name, of in owners.items() if len(of) == 1 and name not in keys}


def _not_failing(changes: Sequence[Change], evidence: Sequence[Evidence]) -> Iterable[tuple[str, State]]:
    yield from ((item.key, "passes") for item in evidence if item.runs and item.passed == item.runs)
    yield from ((change.before_key, "passes") for change in changes if change.change == "fixed")
    yield from ((change.before_key, "flaky") for change in changes if change.change == "flaky")


def extend(
    history: History, night: NightRecord, verdicts: Sequence[Verdict], findings: Sequence[Finding] = ()
) -> History:
    """Return the history with a night added, the oldest beyond `MAX_NIGHTS` dropped; a night replaces itself."""
    nights = (*(each for each in history.nights if each.run != night.run), night)[-MAX_NIGHTS:]
    kept = {key for each in nights for key in each.keys}
    facts = dict(history.facts)
    for verdict in verdicts:
        if verdict.failing and verdict.key in night.keys and verdict.key not in facts:
            facts[verdict.key] = KeyFacts(
                framework=verdict.framework,
                family=_family(verdict.setting),
                kind=verdict.kind,
                title=verdict.reason[:500],
            )
    for finding in findings:
        facts[finding.key] = KeyFacts(
            framework=finding.case.framework,
            family=finding.setting.family,
            kind=finding.verdict.kind,
            title=finding.title[:500],
            good=_good(finding) or (facts[finding.key].good if finding.key in facts else ""),
        )
    return History(nights=nights, facts={key: value for key, value in sorted(facts.items()) if key in kept})


def lines(history: History) -> list[KeyLine]:
    """Return every key of a history, those that fail now first, then those that began last."""
    made = [_line(key, facts, history.nights) for key, facts in history.facts.items()]
    return sorted(made, key=lambda each: (each.now != "fails", -_begin(each), each.key))


def _line(key: str, facts: KeyFacts, nights: Sequence[NightRecord]) -> KeyLine:
    seen = tuple(night.keys.get(key) for night in nights)
    said = [(place, sighting) for place, sighting in enumerate(seen) if sighting]
    begin, good = None, facts.good
    for place, sighting in said:
        if sighting.state == "passes":
            begin, good = None, build_of(nights[place], facts.framework)
        elif sighting.state == "fails" and begin is None:
            begin = place
            if sighting.passed_before and place:
                good = build_of(nights[place - 1], facts.framework)
    first_bad = build_of(nights[begin], facts.framework) if begin is not None else ""
    return KeyLine(key, facts, seen, first_bad, good, said[-1][1].state if said else None)


def _begin(each: KeyLine) -> int:
    return next((place for place, sighting in enumerate(each.sightings) if sighting), 0)


def build_of(night: NightRecord, framework: str) -> str:
    """Return the label of a night's build of a framework; empty if it had none."""
    return next((build.label or build.version for build in night.builds if build.framework == framework), "")


def _good(finding: Finding) -> str:
    if finding.bisection and finding.bisection.good:
        return (finding.bisection.good.label or finding.bisection.good.version)[:500]
    return finding.good.label[:500] if finding.good else ""


def _family(setting: str) -> str:
    return setting.partition("(")[0].strip()


def load_history(folder: Path) -> History:
    """Return the history in a run folder, empty if it has none; SpecError if the file is garbled."""
    path = folder / HISTORY
    if not os.path.lexists(path):
        return History()
    try:
        return History.model_validate(read_object(path, _CAP))
    except ValidationError as error:
        raise SpecError(f"{path}: {one_line(error)}; remove it") from error


def write_history(folder: Path, history: History) -> None:
    """Write history.json, whole or not at all."""
    write_atomic(folder / HISTORY, dump_json(history.model_dump(mode="json", by_alias=True)) + "\n")


def verdict_counts(counts: Mapping[Kind, int], failing: Iterable[Kind]) -> tuple[int, int]:
    """Return how many of a family's verdicts fail, and how many there are."""
    return sum(counts.get(kind, 0) for kind in failing), sum(counts.values())
