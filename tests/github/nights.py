"""Run folders as the unprivileged half leaves them, without running anything."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from d3bot.findings import Symptom, failure_key
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
