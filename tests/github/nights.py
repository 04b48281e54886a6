"""Run folders as the unprivileged half leaves them, without running anything."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from d3bot.findings import Symptom, failure_key
from d3bot.history.check import Check, Row, write_check
from d3bot.history.evidence import write_evidence
from d3bot.history.finding_folder import write_finding
from d3bot.history.folder import RunWriter
from d3bot.spec import Build, Evidence, Finding, Setting, Verdict
from tests.findings.samples import BUILD, FIRST, finding, run, verdict

SCRIPT = "print(1)\n"


def build(version: str = "2.14.0.dev20261130", **facts: Any) -> Build:
    """A nightly of torch; a later date is a newer build."""
    return BUILD.model_copy(update={"version": version, "environment": {"machine": "x86_64"}} | facts)


def failing(name: str, kind: str = "diverged", family: str = "fsdp2", **facts: Any) -> Finding:
    """A finding with a key of its own for each name."""
    setting = Setting.parse(f"{family}(world=2)")
    key = facts.pop("key", "") or failure_key(
        "torch",
        setting,
        Symptom(kind, FIRST.role, "weight", name),  # type: ignore[arg-type]
    )
    seen = verdict(kind, f"c{name}", str(setting), key=key, first=FIRST, error=0.2, bound=0.0, diagnosis=name)
    title = f"{family}: weight gradients differ: {name}"
    made = finding(key, title=title, verdict=seen)
    return made.model_copy(update={"setting": setting, "build": build()} | facts)


def checked(folder: Path, found: Finding, commit: str = "") -> Path:
    """Write what a check of a pull request leaves: one failure that its base does not have."""
    folder.mkdir(parents=True)
    rows = (Row(key=found.key, title=f"{found.title} of @octocat", setting=str(found.setting)),)
    told = Check(
        outcome="worse", reason="1 failure", base=BUILD, head=BUILD, baseline=commit, seed=1, trials=2, worse=rows
    )
    write_check(folder, told)
    (folder / "summary.md").write_text("1 failure\n")
    night(folder, 0, datetime(2026, 11, 30, tzinfo=UTC), [found]).rename(folder / "head")
    return folder


def night(
    folder: Path,
    number: int,
    started: datetime,
    findings: Sequence[Finding] = (),
    verdicts: Sequence[Verdict] = (),
    evidence: Sequence[Evidence] = (),
    script: str = SCRIPT,
    **facts: Any,
) -> Path:
    """Write the finished run of one night."""
    path = folder / f"run{number}"
    header = {"started": started.isoformat(timespec="seconds"), "previous": f"r{number - 1}", **facts}
    writer = RunWriter.create(path, run(f"r{number}", **header))
    for each in verdicts:
        writer.append(each)
    for one in findings:
        write_finding(path, one, script, "bad", None, "@octocat wrote this")
    if evidence:
        write_evidence(path, evidence)
    writer.finish(run(f"r{number}", **header))
    return path
