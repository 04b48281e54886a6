"""Closing: on evidence only, once only, and never against a person."""

from datetime import timedelta

import pytest

from d3bot.findings.lifecycle import (
    Record,
    closed,
    decide_close,
    newer,
    reminder_due,
    script_hash,
    seen_again,
)
from d3bot.findings.policy import Policy
from d3bot.spec import Evidence, environment_class
from tests.findings.samples import BUILD, KEY, finding
from tests.findings.test_lifecycle import NOW

DAY = timedelta(days=1)
CPU = {"machine": "x86_64", "os": "Debian", "cpu": "one"}
GPU = CPU | {"gpus": "H200"}
NIGHTLY = BUILD.model_copy(update={"version": "2.14.0.dev20261130", "commit": "b" * 40, "environment": CPU})
SCRIPT = script_hash("print(1)")


def record(**facts):
    given = {
        "key": KEY,
        "title": "t",
        "first_seen": NOW - 20 * DAY,
        "last_seen": NOW - 5 * DAY,
        "started": NOW - 5 * DAY,
        "kind": "diverged",
        "version": "2.14.0.dev20261125",
        "commit": "a" * 40,
        "environment": environment_class(CPU),
        "scripts": (SCRIPT,),
    }
    return Record(**(given | facts))


def evidence(passed=3, runs=3, build=NIGHTLY, script=SCRIPT):
    return Evidence(key=KEY, build=build, script=script, runs=runs, passed=passed)


OLD = NIGHTLY.model_copy(update={"version": "2.14.0.dev20261125", "commit": "a" * 40})

# record, evidence, when the run began, when a person was there, decision, words of the reason
TABLE = [
    (record(), evidence(), NOW - DAY, None, "close", "passed 3 of 3 times on torch 2.14.0.dev20261130"),
    (record(), evidence(), NOW - DAY, NOW - 8 * DAY, "close", "passed 3 of 3"),
    (record(), evidence(), NOW - DAY, NOW - 6 * DAY, "delay", "a person was here"),
    (record(state="closed"), evidence(), NOW - DAY, None, "skip", "closed already"),
    (record(), evidence(passed=2), NOW - DAY, None, "skip", "still fails: 2 of 3"),
    (record(), evidence(passed=0), NOW - DAY, None, "skip", "still fails: 0 of 3"),
    (record(), evidence(2, 2), NOW - DAY, None, "delay", "of 3 that are needed"),
    (record(kind="hung"), evidence(), NOW - DAY, None, "skip", "closed by a person alone"),
    (record(kind="died"), evidence(), NOW - DAY, None, "skip", "closed by a person alone"),
    (record(auto_closed=1), evidence(), NOW - DAY, None, "skip", "closed it once before"),
    (record(), evidence(script=script_hash("other")), NOW - DAY, None, "skip", "not one that was seen to fail"),
    (record(environment=environment_class(GPU)), evidence(), NOW - DAY, None, "delay", "another class of environment"),
    (record(), evidence(build=OLD), NOW - DAY, None, "delay", "unverifiable: its script passes on"),
    (record(version="2.14.0.dev20261201"), evidence(), NOW - DAY, None, "delay", "not newer than the failure"),
    (record(), evidence(), NOW - 6 * DAY, None, "delay", "not newer than the failure"),
    (record(version=""), evidence(), NOW - DAY, None, "delay", "not newer than the failure"),
]


@pytest.mark.parametrize(("before", "shown", "started", "human", "action", "words"), TABLE)
def test_every_state_and_evidence_has_its_decision(before, shown, started, human, action, words):
    """C1, C4, A12, K6: only the script that failed, passing often enough on a newer build of its class, closes."""
    decision = decide_close(before, shown, NOW, started, human)
    assert (decision.action, decision.key) == (action, KEY)
    assert words in decision.reason


def test_another_processor_is_the_same_class_of_environment():
    """K6: a pass on another kind of machine is no fix."""
    assert environment_class(CPU) == environment_class(CPU | {"cpu": "two", "os": "Ubuntu"})
    assert environment_class(CPU) != environment_class(GPU)


@pytest.mark.parametrize(
    ("version", "commit", "expected"),
    [
        ("2.14.0.dev20261126", "", True),
        ("2.14.0", "", True),
        ("2.14.0.dev20261125", "c" * 40, True),
        ("2.14.0.dev20261125", "a" * 40, False),
        ("2.14.0.dev20261125", "", False),
        ("2.14.0.dev20261124", "c" * 40, False),
        ("garbled", "c" * 40, False),
    ],
)
def test_newer_is_a_later_version_or_that_version_of_another_commit(version, commit, expected):
    assert newer(BUILD.model_copy(update={"version": version, "commit": commit}), record()) is expected


def test_a_record_that_d3bot_closed_says_so_and_counts_it():
    """A12: what came back once is closed by a person alone."""
    after = closed(record(), evidence(), NOW, "r9")
    assert (after.state, after.closed_by, after.auto_closed, after.closed_at) == ("closed", "d3bot", 1, NOW)
    assert "closed by run r9" in after.history[-1]
    again = seen_again(after, finding(), NOW + 3 * DAY, "r10")
    assert (again.state, again.auto_closed) == ("open", 1)


@pytest.mark.parametrize(
    ("facts", "days", "due"),
    [
        ({}, 14, True),
        ({"first_seen": NOW - 13 * DAY}, 14, False),
        ({"commented": NOW - 13 * DAY}, 14, False),
        ({"commented": NOW - 14 * DAY}, 14, True),
        ({"fix": "#1"}, 14, False),
        ({}, None, False),
    ],
)
def test_a_reminder_comes_after_two_weeks_of_silence_and_not_while_a_fix_is_on_its_way(facts, days, due):
    policy = Policy(remind=timedelta(days=days) if days else None)
    assert reminder_due(record(**facts), NOW, policy) is due
