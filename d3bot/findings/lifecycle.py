"""What is to be done with a finding, given what the tracker holds.  Pure; the same for every tracker.

The order of the rules matters and follows what users of such bots reported: what is not verified waits, what is open is
edited, what a person silenced stays silent, what was closed a moment ago gets time for the fix to reach a build.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import Field, field_validator

from d3bot.findings.key import is_catch_all
from d3bot.spec import SCHEMA, Finding, Framework, short_hash
from d3bot.spec.base import Noun

State = Literal["open", "closed"]
Action = Literal["file", "update", "reopen", "skip", "delay"]

QUIET = timedelta(hours=48)
"""After a person closed a record: a fix is merged before the build that holds it exists."""

_KEPT = 100
"""Runs and lines of history that a record keeps; older ones are dropped."""


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
    """Keys that this record lists instead of a record of their own: the summary of a library's first run."""

    model_config = {**Noun.model_config, "populate_by_name": True}

    @field_validator("first_seen", "last_seen", "closed_at")
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


def decide(
    record: Record | None,
    finding: Finding,
    now: datetime,
    run_id: str,
    started: datetime | None = None,
    upstream: str = "",
    listed_in: str = "",
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
        return decided("file", "no record has this key")
    if run_id in record.seen_runs:
        return decided("skip", f"run {run_id} is already recorded")
    if record.state == "open":
        return decided("update", "open: seen again")
    if record.ignore:
        return decided("skip", "closed, and a person set it to be ignored")
    closed_at = record.closed_at or record.last_seen
    if started and started < closed_at:
        return decided("delay", "the run began before the record was closed: a newer run decides")
    if now - closed_at < QUIET:
        until = closed_at + QUIET
        return decided("delay", f"closed less than 48 hours ago; reopens if it fails after {until:%Y-%m-%d %H:%M} UTC")
    return decided("reopen", f"closed on {closed_at:%Y-%m-%d}, and fails again")


def new_record(finding: Finding, now: datetime, run_id: str) -> Record:
    """Return the record of a finding seen for the first time."""
    return Record(
        key=finding.key,
        title=finding.title,
        first_seen=now,
        last_seen=now,
        seen_runs=(run_id,),
        history=(_event(now, "filed", finding, run_id),),
    )


def seen_again(record: Record, finding: Finding, now: datetime, run_id: str) -> Record:
    """Return the record after another sighting: open, with the run in its history."""
    event = _event(now, "seen again" if record.state == "open" else "reopened", finding, run_id)
    return record.model_copy(
        update={
            "state": "open",
            "closed_at": None,
            "last_seen": max(now, record.last_seen),
            "seen_runs": _last((*record.seen_runs, run_id)),
            "history": _last((*record.history, event)),
        }
    )


def _event(now: datetime, what: str, finding: Finding, run_id: str) -> str:
    return f"{now:%Y-%m-%d %H:%M} {what} in run {run_id} on {finding.build.label}"


def _last(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(items)[-_KEPT:]
