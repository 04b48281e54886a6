from datetime import UTC, datetime, timedelta

import pytest

from d3bot.findings import Record, Symptom, decide, symptom_key
from d3bot.findings.lifecycle import QUIET, new_record, seen_again
from tests.findings.samples import KEY, SETTING, finding

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
CATCH_ALL = symptom_key("torch", SETTING, Symptom("hung"))


def record(**facts):
    defaults = {"first_seen": NOW - 9 * QUIET, "last_seen": NOW - 3 * QUIET, "seen_runs": ("r0",)}
    return Record(key=KEY, title="t", **(defaults | facts))


def closed(ago, **facts):
    return record(state="closed", closed_at=NOW - ago, **facts)


OPEN, LONG_CLOSED, JUST_CLOSED = record(), closed(QUIET), closed(QUIET - HOUR)
UNVERIFIED = {"verified": False, "unverified_reason": "exit 0 in 1 of 3"}

# record, the finding, what else is known, decision, word of the reason
TABLE = [
    (None, {}, {}, "file", "no record"),
    (OPEN, {}, {}, "update", "seen again"),
    (record(ignore=True), {}, {}, "update", "seen again"),
    (LONG_CLOSED, {}, {}, "reopen", "fails again"),
    (JUST_CLOSED, {}, {}, "delay", "48 hours"),
    (closed(QUIET, ignore=True), {}, {}, "skip", "ignored"),
    (closed(HOUR, ignore=True), {}, {}, "skip", "ignored"),
    (record(state="closed"), {}, {}, "reopen", "fails again"),
    (record(state="closed", last_seen=NOW - HOUR), {}, {}, "delay", "48 hours"),
    # The evidence must be newer than the closing.
    (LONG_CLOSED, {}, {"started": NOW - QUIET - HOUR}, "delay", "newer run"),
    (LONG_CLOSED, {}, {"started": NOW - HOUR}, "reopen", "fails again"),
    (OPEN, {}, {"started": NOW - 9 * QUIET}, "update", "seen again"),
    # One run counts once.
    (record(seen_runs=("r0", "r1")), {}, {}, "skip", "already recorded"),
    (closed(QUIET, seen_runs=("r1",)), {}, {}, "skip", "already recorded"),
    # What is not verified waits, whatever the tracker holds.
    *((each, UNVERIFIED, {}, "delay", "exit 0 in 1 of 3") for each in (None, OPEN, LONG_CLOSED, JUST_CLOSED)),
    (None, UNVERIFIED, {"upstream": "pytorch/pytorch#1"}, "delay", "not verified"),
    # What nothing is known about is never filed.
    *((each, {"key": CATCH_ALL}, {}, "skip", "catch-all") for each in (None, OPEN, LONG_CLOSED)),
    (None, {"key": CATCH_ALL} | UNVERIFIED, {}, "skip", "catch-all"),
    # Known upstream: linked, never filed again.
    *((each, {}, {"upstream": "pytorch/pytorch#1"}, "skip", "pytorch/pytorch#1") for each in (None, OPEN, LONG_CLOSED)),
    # Listed by the summary of a first run; a record of its own goes before that.
    (None, {}, {"listed_in": "torch-first-run"}, "skip", "listed in torch-first-run"),
    (OPEN, {}, {"listed_in": "torch-first-run"}, "update", "seen again"),
]


@pytest.mark.parametrize(("known", "facts", "more", "action", "word"), TABLE)
def test_every_state_has_its_decision_and_reason(known, facts, more, action, word):
    """C5, K1, A9: reopened in place, filed only if proved, never under a catch-all."""
    seen = finding(facts.get("key", KEY), **{name: value for name, value in facts.items() if name != "key"})
    decision = decide(known, seen, NOW, "r1", **more)
    assert (decision.key, decision.action) == (seen.key, action)
    assert word in decision.reason
    assert "\n" not in decision.reason


def test_a_finding_seen_every_night_has_one_record_that_says_so():
    kept = new_record(finding(), NOW, "r0")
    for night in range(1, 10):
        later = NOW + timedelta(days=night)
        assert decide(kept, finding(), later, f"r{night}").action == "update"
        kept = seen_again(kept, finding(), later, f"r{night}")
    assert kept.seen_runs == tuple(f"r{i}" for i in range(10))
    assert (kept.first_seen, kept.last_seen) == (NOW, NOW + timedelta(days=9))
    assert kept.history[0] == "2026-11-30 06:00 filed in run r0 on torch 2.13.0"
    assert kept.history[-1] == "2026-12-09 06:00 seen again in run r9 on torch 2.13.0"


def test_reopening_forgets_the_closing_and_remembers_it_in_the_history():
    again = seen_again(LONG_CLOSED, finding(), NOW, "r1")
    assert (again.state, again.closed_at) == ("open", None)
    assert "reopened in run r1" in again.history[-1]
    assert decide(again, finding(), NOW + HOUR, "r2").action == "update"


def test_a_record_of_a_long_life_stays_small():
    kept = record(seen_runs=tuple(f"x{i}" for i in range(100)), history=("filed",) * 100)
    kept = seen_again(kept, finding(), NOW, "r1")
    assert len(kept.seen_runs) == len(kept.history) == 100
    assert kept.seen_runs[-1] == "r1"


def test_a_filing_that_comes_late_does_not_turn_back_the_clock():
    assert seen_again(OPEN, finding(), NOW - 9 * QUIET, "r1").last_seen == OPEN.last_seen


def test_a_moment_without_a_zone_is_utc():
    assert record(closed_at=datetime(2026, 11, 1)).closed_at == datetime(2026, 11, 1, tzinfo=UTC)
