"""The whole job on real libraries: a planted fault is found, proved, filed once, and seen to be fixed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from planted import FIRST_REPLICA_ONLY, HALVED_SHARDS, Plant, plant
from rich.console import Console

from d3bot.builds import default_cache
from d3bot.config import Config
from d3bot.engine.script import run_script
from d3bot.flow.finding import issue_of
from d3bot.flow.night import Night, run_night
from d3bot.history.finding_folder import list_findings, read_finding
from d3bot.history.folder import load_run
from d3bot.spec import Build
from d3bot.templates import data_folder
from d3bot.tracker.filing import file_run
from d3bot.tracker.folder import FolderTracker

PLANTED: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "torch": (HALVED_SHARDS, ("fsdp2(world=2)", "ddp(world=2)")),
    "tensorflow": (
        FIRST_REPLICA_ONLY,
        ("mirrored(replicas=2, ops=one_device)", "mirrored(replicas=2, ops=hierarchical)"),
    ),
}
HEALTHY_SEEDS = ("clip-value-gated", "schedule-adamw", "conv-dense", "fit-sgd-metrics", "fit-schedule-momentum")
"""Seeds that pass on the stock builds under those settings, so that what fails is what was planted."""


def healthy_seeds(folder: Path) -> Path:
    for path in data_folder("seeds").glob("*/*.toml"):
        if path.stem in HEALTHY_SEEDS:
            (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path.parent.name)
    return folder


def night(spec: str, out: Path, settings: tuple[str, ...], previous: str = "", base: str = "") -> Night:
    config = Config(
        builds=(spec,),
        base=base,
        seeds=healthy_seeds(out.parent / "seeds"),
        fresh=0,
        settings=settings,
        previous=previous,
        cache=default_cache(),
        workers=2,
        seed=7,
    )
    return run_night(config, out, Console(file=StringIO()))


def spec_of(build: Build) -> str:
    return f"overlay:{build.overlay}+python:{build.python}" if build.overlay else f"python:{build.python}"


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_planted_fault_is_found_proved_filed_once_and_seen_fixed(
    framework: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stock: Build = request.getfixturevalue(f"{framework}_build")
    fault, settings = PLANTED[framework]
    bad = plant(stock, fault, tmp_path / "fault")
    tracker = FolderTracker(tmp_path / "issues")

    healthy = night(spec_of(stock), tmp_path / "0", settings)
    assert healthy.run.complete
    assert {verdict.kind for verdict in healthy.verdicts} <= {"pass", "not-applicable"}
    assert not healthy.findings

    first = night(spec_of(bad), tmp_path / "1", settings, previous=str(tmp_path / "0"), base=spec_of(stock))
    found = first.new_and_confirmed()
    assert found, [verdict.reason for verdict in first.verdicts]
    assert {change.change for change in first.changes if change.after_key} == {"regressed"}
    for path in list_findings(first.folder):
        folder = read_finding(path)
        assert folder.finding.verified, folder.finding.unverified_reason
        assert folder.finding.verdict.confirmed == "3/3"
        assert folder.finding.regression == "regression"
        assert folder.output_good is not None
        assert run_script(bad, path / "repro.py", 120).code == 1
        assert run_script(stock, path / "repro.py", 120).code == 0
        assert len(folder.finding.case.layers) <= 3, "the shrunk model is small"
        assert folder.script in folder.issue_md
    now = datetime.now(UTC)
    decisions = file_run(first.folder, tracker, now, render=issue_of)
    assert {decision.action for decision in decisions} == {"file"}
    filed = {path.name for path in (tmp_path / "issues").glob("*.md")}
    assert filed == {f"{finding.key}.md" for finding in first.findings}

    again = night(spec_of(bad), tmp_path / "2", settings, previous=str(first.folder))
    assert not again.new_and_confirmed()
    assert {change.change for change in again.changes if change.after_key} == {"still-failing"}
    decisions = file_run(again.folder, tracker, datetime.now(UTC), render=issue_of)
    assert {decision.action for decision in decisions} == {"update"}
    assert {path.name for path in (tmp_path / "issues").glob("*.md")} == filed

    mended = night(spec_of(stock), tmp_path / "3", settings, previous=str(again.folder))
    assert {change.change for change in mended.changes if change.before_key} == {"fixed"}


def test_a_killed_run_loses_at_most_the_trials_in_flight_and_is_resumed(torch_build: Build, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "d3bot", "run", "--build", spec_of(torch_build), "--seeds", "none"]
    command += ["--fresh", "6", "--settings", "ddp(world=2)", "--settings", "fsdp2(world=2)"]
    command += ["--workers", "2", "--out", str(out)]
    process = subprocess.Popen([*command, "--seed", "3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    verdicts = out / "verdicts.jsonl"
    ends = time.monotonic() + 120
    while time.monotonic() < ends and (not verdicts.exists() or verdicts.read_bytes().count(b"\n") < 5):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = verdicts.read_bytes()
    assert before.count(b"\n") >= 5
    assert not json.loads((out / "run.json").read_text())["complete"]
    with verdicts.open("ab") as file:
        file.write(b'{"schema": 1, "trial": "t0')  # what a kill in the middle of a write leaves behind

    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert verdicts.read_bytes().startswith(before), "no verdict of before is lost or changed"
    planned = json.loads((out / "plan.json").read_text())["trials"]
    assert len(lines) == len({line["trial"] for line in lines}) == len(planned)
    assert load_run(out).run.complete
