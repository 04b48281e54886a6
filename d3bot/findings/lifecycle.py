"""What is to be done with a finding, given what the tracker holds.  Pure; the same for every tracker.

The order of the rules matters and follows what users of such bots reported: what is not verified waits, what is open is
edited, what a person silenced stays silent, what was closed a moment ago gets time for the fix to reach a build.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator

from d3bot.bisect import conclusion
from d3bot.findings.key import api_of, is_catch_all
from d3bot.findings.policy import DEFAULT, Policy
from d3bot.spec import SCHEMA, Bisection, Build, Evidence, Finding, Framework, environment_class, short_hash
from d3bot.spec.base import Noun

State = Literal["open", "closed"]
Action = Literal["file", "update", "remind", "reopen", "close", "skip", "delay", "panic", "failed"]
"""`panic`: the build is bad and filing stopped.  `failed`: the tracker did not do what was asked of it."""

QUIET = DEFAULT.quiet

_KEPT = 100
"""Runs and lines of history that a record keeps; older ones are dropped."""

_SCRIPTS = 5
_NEVER_CLOSES = frozenset({"hung", "died"})
"""One run that ends says little about a hang, and memory that sufficed once may not suffice again."""


class Record(Noun):
    """What a tracker knows about one key."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: str
    title: str
    state: State = "open"
    ignore: bool = False
    """Set by a person: never reopened, never filed again."""
    first_seen: datetime
    last_seen: datetime
    closed_at: datetime | None = None
    seen_runs: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    """Keys that this record lists instead of a record of their own: a library's first run, or what was too much."""
    number: int = 0
    """The tracker's own number, where it has one."""
    framework: str = ""
    family: str = ""
    kind: str = ""
    aliases: tuple[str, ...] = ()
    """Other keys of the same bug: duplicates that a person named, variants of one failure, keys of older rules."""
    symptoms: tuple[str, ...] = ()
    """How its trials were seen to fail.  Another bug may show in the same way, so these do not find a record."""
    filed_in: str = ""
    """The run that filed it: what the budget of a run counts."""
    started: datetime | None = None
    """When the newest run that saw it began."""
    build: str = ""
    version: str = ""
    commit: str = ""
    """The newest build on which it failed: its label, version and source commit."""
    environment: dict[str, str] = {}
    scripts: tuple[str, ...] = ()
    """SHA-256 of the scripts that were seen to fail with this key; only they are evidence."""
    closed_by: Literal["", "d3bot", "person"] = ""
    auto_closed: int = 0
    """How often d3bot closed it: at most once."""
    commented: datetime | None = None
    """When d3bot last commented."""
    muted_until: datetime | None = None
    fix: str = ""
    """The commit, pull request or version that a person announced as its fix."""
    duplicate_of: int = 0
    silenced: str = ""
    """Why a person silenced it."""
    wrong_bisect: bool = False
    bisected: str = Field(default="", max_length=600)
    """What the last bisection found, in one sentence."""

    model_config = {**Noun.model_config, "populate_by_name": True}

    @field_validator("first_seen", "last_seen", "closed_at", "started", "commented", "muted_until")
    @classmethod
    def _aware(cls, moment: datetime | None) -> datetime | None:
        return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


class Decision(Noun):
    """What was decided about one key, and why, on one line."""

    key: str
    action: Action
    reason: str


def summary_key(framework: Framework) -> str:
    """Return the key of the one record that lists the findings of the first run on a library."""
    return f"{framework}-first-run-{short_hash('first run')[:8]}"


def overflow_key(framework: Framework) -> str:
    """Return the key of the one record that lists the findings of a library that were too many to file each."""
    return f"{framework}-overflow-{short_hash('overflow')[:8]}"


def infrastructure_key() -> str:
    """Return the key of the one record that tells of bad builds and of runs without data."""
    return f"infrastructure-{short_hash('infrastructure')[:8]}"


def record_of(records: Mapping[str, Record], finding: Finding) -> Record | None:
    """Return the record of a finding; None if there is none.

    It is looked for by key, by the keys under which the same cause is known, among records that were filed under a
    symptom, as version 1 of the rules did, and last among open ones whose failure ends in the same function.  The
    record of a duplicate is that of what it is a duplicate of.
    """
    for name in (finding.key, *finding.aliases):
        record = records.get(name)
        if record is not None and record.duplicate_of:
            return next((each for each in records.values() if each.number == record.duplicate_of), record)
        if record is not None:
            return record
    for name in finding.symptoms:
        record = records.get(name)
        if record is not None and record.key == name:
            return record
    api = api_of(finding.key)
    kin = {each.key: each for each in records.values() if api and each.state == "open" and api_of(each.key) == api}
    return next(iter(kin.values())) if len(kin) == 1 else None


def script_hash(script: str) -> str:
    """Return the SHA-256 of a script's text."""
    return hashlib.sha256(script.encode(errors="backslashreplace")).hexdigest()


def decide(
    record: Record | None,
    finding: Finding,
    now: datetime,
    run_id: str,
    started: datetime | None = None,
    upstream: str = "",
    listed_in: str = "",
    policy: Policy = DEFAULT,
) -> Decision:
    """Return what to do with a finding of the run `run_id`, which began at `started`.

    `record` is the tracker's for this key, `upstream` a known issue of the library for it, `listed_in` the key of an
    open record that already lists it.
    """

    def decided(action: Action, reason: str) -> Decision:
        return Decision(key=finding.key, action=action, reason=reason)

    if is_catch_all(finding.key):
        return decided("skip", "the key is a catch-all: nothing in the failure tells one bug from another")
    if not finding.verified:
        why = " ".join(finding.unverified_reason.split())[:300] or "the script was not seen to fail by itself"
        return decided("delay", f"not verified: {why}")
    if upstream:
        return decided("skip", f"known upstream: {upstream}")
    if record is None:
        if listed_in:
            return decided("skip", f"listed in {listed_in}")
        if finding.mended_on:
            return decided("delay", f"its script passes on {' '.join(finding.mended_on.split())}, a newer build")
        return decided("file", "no record has this key")
    if run_id in record.seen_runs:
        return decided("skip", f"run {run_id} is already recorded")
    if record.duplicate_of:
        return decided("skip", f"a person named it a duplicate of #{record.duplicate_of}")
    if record.muted_until and now < record.muted_until:
        return decided("skip", f"a person muted it until {record.muted_until:%Y-%m-%d %H:%M} UTC")
    if record.state == "open":
        if started and record.started and started < record.started:
            return decided("delay", "superseded: a newer run has recorded it already")
        if reminder_due(record, now, policy):
            return decided("remind", f"open: still fails, and nothing was said for {_days(policy.remind)}")
        return decided("update", "open: seen again")
    if record.ignore:
        why = f": {record.silenced}" if record.silenced else ""
        return decided("skip", f"closed, and a person set it to be ignored{why}")
    closed_at = record.closed_at or record.last_seen
    if started and started < closed_at:
        return decided("delay", "the run began before the record was closed: a newer run decides")
    if now - closed_at < policy.quiet:
        until = closed_at + policy.quiet
        hours = round(policy.quiet.total_seconds() / 3600)
        return decided(
            "delay", f"closed less than {hours} hours ago; reopens if it fails after {until:%Y-%m-%d %H:%M} UTC"
        )
    if finding.mended_on:
        return decided("delay", f"its script passes on {' '.join(finding.mended_on.split())}, a newer build")
    if policy.window and now - closed_at > policy.window:
        return decided("file", f"its record was closed on {closed_at:%Y-%m-%d}, too long ago to be the same story")
    return decided("reopen", f"closed on {closed_at:%Y-%m-%d}, and fails again")


def decide_close(
    record: Record,
    evidence: Evidence,
    now: datetime,
    started: datetime | None,
    human_at: datetime | None = None,
    policy: Policy = DEFAULT,
) -> Decision:
    """Return whether the evidence of a run that began at `started` closes an open record.

    `human_at` is when a person last did something with it.  Only evidence closes: never absence, never twice, never
    against a person.
    """

    def decided(action: Action, reason: str) -> Decision:
        return Decision(key=record.key, action=action, reason=reason)

    if record.state != "open":
        return decided("skip", "closed already")
    if evidence.passed < evidence.runs:
        return decided("skip", f"its script still fails: {evidence.passed} of {evidence.runs} passed")
    if record.kind in _NEVER_CLOSES:
        return decided("skip", f"its script passes, but what {record.kind} once is closed by a person alone")
    if record.auto_closed:
        return decided("skip", "its script passes, but d3bot closed it once before and it came back: a person decides")
    if evidence.script not in record.scripts:
        return decided("skip", "a script passed, but it is not one that was seen to fail with this key")
    if evidence.runs < policy.passes:
        return decided("delay", f"its script passed {evidence.runs} times, of {policy.passes} that are needed")
    if environment_class(evidence.build.environment) != environment_class(record.environment):
        return decided("delay", "its script passes, but in another class of environment than the one that failed")
    if (evidence.build.version, evidence.build.commit) == (record.version, record.commit):
        return decided(
            "delay", f"unverifiable: its script passes on {evidence.build.label}, the very build it failed on"
        )
    if not newer(evidence.build, record) or (started and record.started and started <= record.started):
        return decided("delay", f"its script passes on {evidence.build.label}, which is not newer than the failure")
    if human_at and now - human_at < policy.respite:
        return decided("delay", f"its script passes, but a person was here on {human_at:%Y-%m-%d}: they decide for now")
    return decided("close", f"its script passed {evidence.passed} of {evidence.runs} times on {evidence.build.label}")


def newer(build: Build, record: Record) -> bool:
    """Return whether a build comes after the newest that failed: a later version, or that version of another commit."""
    try:
        after, before = Version(build.version), Version(record.version)
    except InvalidVersion:
        return False
    return after > before or (after == before and bool(build.commit) and build.commit != record.commit)


def reminder_due(record: Record, now: datetime, policy: Policy) -> bool:
    """Return whether an open record that still fails gets a comment for that alone."""
    return bool(policy.remind and not record.fix and now - (record.commented or record.first_seen) >= policy.remind)


def new_record(
    finding: Finding, now: datetime, run_id: str, started: datetime | None = None, script: str = ""
) -> Record:
    """Return the record of a finding seen for the first time."""
    return Record(
        key=finding.key,
        title=finding.title,
        first_seen=now,
        last_seen=now,
        seen_runs=(run_id,),
        history=(_event(now, "filed", finding, run_id),),
        framework=finding.build.framework,
        family=finding.setting.family,
        kind=finding.verdict.kind,
        filed_in=run_id,
        aliases=finding.aliases,
        **_sighting(None, finding, started, script),
    )


def seen_again(
    record: Record, finding: Finding, now: datetime, run_id: str, started: datetime | None = None, script: str = ""
) -> Record:
    """Return the record after another sighting: open, with the run in its history."""
    event = _event(now, "seen again" if record.state == "open" else "reopened", finding, run_id)
    variants = [name for name in (finding.key, *finding.aliases) if name not in (record.key, *record.aliases)]
    return record.model_copy(
        update={
            "state": "open",
            "closed_at": None,
            "closed_by": "",
            "commented": record.commented if record.state == "open" else now,
            "last_seen": max(now, record.last_seen),
            "seen_runs": _last((*record.seen_runs, run_id)),
            "history": _last((*record.history, event)),
            "aliases": _last((*record.aliases, *variants)),
            **_sighting(record, finding, started, script),
        }
    )


def bisected(record: Record, result: Bisection, now: datetime, run_id: str) -> Record:
    """Return the record with what a bisection found, which takes the place of one that a person called wrong."""
    told = " ".join(filter(None, (conclusion(result), result.compare)))
    event = f"{now:%Y-%m-%d %H:%M} bisected in run {run_id}"
    return record.model_copy(
        update={"bisected": told[:600], "wrong_bisect": False, "history": _last((*record.history, event))}
    )


def reminded(record: Record, now: datetime) -> Record:
    """Return the record after d3bot commented on it."""
    return record.model_copy(update={"commented": now})


def closed(record: Record, evidence: Evidence, now: datetime, run_id: str) -> Record:
    """Return the record after d3bot closed it on evidence."""
    event = f"{now:%Y-%m-%d %H:%M} closed by run {run_id}: its script passes on {evidence.build.label}"
    return record.model_copy(
        update={
            "state": "closed",
            "closed_at": now,
            "closed_by": "d3bot",
            "commented": now,
            "auto_closed": record.auto_closed + 1,
            "history": _last((*record.history, event)),
        }
    )


def _sighting(record: Record | None, finding: Finding, started: datetime | None, script: str) -> dict[str, Any]:
    known = record.scripts if record else ()
    mine = (script_hash(script),) if script else ()
    return {
        "started": max(filter(None, (started, record.started if record else None)), default=None),
        "build": finding.build.label,
        "version": finding.build.version,
        "commit": finding.build.commit,
        "environment": environment_class(finding.build.environment),
        "symptoms": _last(dict.fromkeys((*(record.symptoms if record else ()), *finding.symptoms))),
        # The newest last; one that is seen again moves there.
        "scripts": (*(each for each in known if each not in mine), *mine)[-_SCRIPTS:],
    }


def _days(length: timedelta | None) -> str:
    return f"{length.days} days" if length else ""


def _event(now: datetime, what: str, finding: Finding, run_id: str) -> str:
    return f"{now:%Y-%m-%d %H:%M} {what} in run {run_id} on {finding.build.label}"


def _last(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(items)[-_KEPT:]
