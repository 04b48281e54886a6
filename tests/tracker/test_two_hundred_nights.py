"""Two hundred nights of a library that breaks and is mended, with people and accidents in between.

Whatever happens, the folder tracker keeps its promises: one record a bug, no flood, nothing said against a person,
nothing closed without evidence, nothing moved by a night that gave no data.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d3bot.findings import Record, Symptom, alternate_keys, failure_key
from d3bot.findings.lifecycle import Decision, environment_class, script_hash
from d3bot.findings.policy import DEFAULT
from d3bot.spec import Evidence, Finding, Setting
from d3bot.tracker import FolderTracker, file_run
from tests.github.nights import SCRIPT, build, failing, night

NIGHTS = 200
START = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
DAY = timedelta(days=1)
FAMILIES = ("ddp", "fsdp1", "fsdp2", "hsdp", "tp", "zero1")


@dataclass
class Cause:
    """One bug.  It shows now in the loss, now in the gradients, under one alternate key."""

    name: str
    broken: bool = False
    keys: set[str] = field(default_factory=set)

    def finding(self, role: str, verified: bool, version: str) -> Finding:
        setting = Setting.parse(f"{FAMILIES[len(self.name) % len(FAMILIES)]}(world=2)")
        symptom = Symptom("diverged", role)
        key = failure_key("torch", setting, symptom, [self.name])
        aliases = alternate_keys("torch", setting, symptom, [self.name], plain=False)
        self.keys.add(key)
        made = failing(self.name, family=setting.family, key=key, aliases=aliases, build=build(version))
        return made.model_copy(update={"verified": verified, "unverified_reason": "" if verified else "exit 0"})


@dataclass
class World:
    """Everything outside the tracker: what is broken, what people did, what was decided."""

    tracker: FolderTracker
    chance: random.Random
    causes: list[Cause] = field(default_factory=lambda: [Cause("n" * i) for i in range(1, 9)])
    silenced: set[str] = field(default_factory=set)
    filed: Counter[str] = field(default_factory=Counter)

    def cause_of(self, record: Record) -> str:
        return next(cause.name for cause in self.causes if {record.key, *record.aliases} & cause.keys)

    def records(self) -> list[Record]:
        mine = {record.key: record for record in self.tracker.records().values()}
        return [record for record in mine.values() if not record.covers and record.framework]

    def person(self) -> None:
        """Now and then somebody closes a record by hand, or silences it for good."""
        for record in self.records():
            if record.state == "open" and self.chance.random() < 0.02:
                gone = {"state": "closed", "closed_at": None, "ignore": self.chance.random() < 0.3}
                self.tracker.update(record.model_copy(update=gone))
                if gone["ignore"]:
                    self.silenced.add(record.key)

    def night(self, folder: Path, number: int) -> tuple[list[Decision], bool]:
        """Let one night pass; return what was decided, and whether the night gave data."""
        for cause in self.causes:
            if self.chance.random() < (0.05 if cause.broken else 0.04):
                cause.broken = not cause.broken
        version = f"2.14.0.dev{(START + number * DAY):%Y%m%d}"
        failing_now = [cause for cause in self.causes if cause.broken and self.chance.random() < 0.9]
        findings = [
            cause.finding(self.chance.choice(["loss", "grad"]), self.chance.random() < 0.9, version)
            for cause in failing_now
        ]
        passing = [cause for cause in self.causes if cause not in failing_now]
        evidence = [
            Evidence(key=record.key, build=build(version), script=script_hash(SCRIPT), runs=3, passed=3)
            for record in self.records()
            if self.cause_of(record) in {cause.name for cause in passing if not cause.broken}
        ]
        complete = self.chance.random() < 0.95
        started = START + number * DAY
        run = night(folder, number, started, findings, evidence=evidence, complete=complete)
        return file_run(run, self.tracker, started + DAY / 6), complete


def held(world: World, before: list[Record], decisions: list[Decision], complete: bool, now: datetime) -> None:
    """Check what must hold after every night, whatever it was like."""
    records = world.records()
    by_cause = Counter(world.cause_of(record) for record in records)
    assert max(by_cause.values(), default=0) <= 1, "one record a bug, however it shows"
    old = {record.key: record for record in before}
    if not complete:
        assert {record.key: record for record in records} == old, "a night without data moves nothing"
        assert {decision.action for decision in decisions} <= {"delay", "skip"}
    actions = Counter(decision.action for decision in decisions)
    assert actions["file"] <= DEFAULT.per_run + 1
    assert actions["close"] <= DEFAULT.closes
    assert all(decision.reason and "\n" not in decision.reason for decision in decisions)
    for record in records:
        was = old.get(record.key)
        if record.key in world.silenced:
            assert record.state == "closed", "what a person silenced stays silent"
        if was is None:
            continue
        if was.state == "closed" and record.state == "open":
            assert now - (was.closed_at or was.last_seen) >= DEFAULT.quiet, "a fix has time to reach a build"
        if was.state == "open" and record.state == "closed":
            assert record.closed_by == "d3bot"
            assert record.kind not in ("hung", "died")
        assert record.auto_closed <= 1, "never a second time"
        assert record.auto_closed >= was.auto_closed
        assert record.first_seen == was.first_seen
        assert set(was.aliases) <= set(record.aliases)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_two_hundred_nights(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("nights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        world = World(FolderTracker(folder / "issues"), random.Random(seed))
        for number in range(1, NIGHTS + 1):
            world.person()
            before = world.records()
            decisions, complete = world.night(folder, number)
            held(world, before, decisions, complete, START + number * DAY + DAY / 6)
    assert environment_class(build().environment)
    assert len(world.records()) <= len(world.causes)
