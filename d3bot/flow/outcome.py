"""The result of a run in the words that exit codes, outputs of a step and `--json` share."""

from collections.abc import Collection
from typing import Any, Literal

from d3bot.flow.night import Night
from d3bot.report.facts import headline
from d3bot.spec import SCHEMA, Finding

Verdict = Literal["nothing-new", "new", "no-data"]

EXIT_CODES: dict[Verdict, int] = {"nothing-new": 0, "new": 1, "no-data": 3}


def verdict_of(night: Night, known: Collection[str] = ()) -> Verdict:
    """Return what a run says as a whole; `known` are the keys that upstream knows of."""
    if not night.run.complete:
        return "no-data"
    return "new" if night.new_and_confirmed(known) else "nothing-new"


def outcome(night: Night, known: Collection[str] = ()) -> dict[str, Any]:
    """Return a run's result as plain data, for machines; all the rest stands in its folder."""
    verdict = verdict_of(night, known)
    top = headline(night.run, night.verdicts, night.changes, night.findings)
    return {
        "schema": SCHEMA,
        "run": night.run.run,
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "headline": top.text,
        "counts": dict(top.counts),
        "builds": [build.label for build in night.run.builds],
        "seed": night.run.seed,
        "seconds": night.run.seconds,
        "new": [_finding(night, item) for item in night.new_and_confirmed(known)],
        "findings": [_finding(night, item) for item in night.findings],
        "folder": str(night.folder),
        "report": str(night.folder / "report.html"),
    }


def _finding(night: Night, finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.key,
        "title": finding.title,
        "setting": str(finding.setting),
        "kind": finding.verdict.kind,
        "verified": finding.verified,
        "regression": finding.regression,
        "folder": str(night.folder / "findings" / finding.key),
    }
