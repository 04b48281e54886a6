"""Findings as SARIF 2.1.0, for code scanning.  Pure."""

import json
from collections.abc import Sequence
from typing import Any

from d3bot import __version__
from d3bot.findings.markdown import line, strip_control
from d3bot.spec import Finding

MAX_RESULTS = 5_000
"""GitHub shows no more, and refuses files of more than 25,000."""


def sarif(findings: Sequence[Finding]) -> str:
    """Return one SARIF run of the verified findings; equal failures have equal fingerprints in every run.

    A rule is a kind of failure in a setting family; the place of a result is the finding's own script.
    """
    shown = [finding for finding in findings if finding.verified][:MAX_RESULTS]
    rules = sorted({_rule(finding) for finding in shown})
    results: list[dict[str, Any]] = [
        {
            "ruleId": _rule(finding),
            "ruleIndex": rules.index(_rule(finding)),
            "level": "warning" if finding.regression == "pre-existing" else "error",
            "message": {"text": f"{line(finding.title, 300)}\n{strip_control(finding.verdict.reason)[:1000]}"},
            "locations": [{"physicalLocation": _place(finding)}],
            "partialFingerprints": {"d3bot/v1": finding.key},
        }
        for finding in shown
    ]
    driver = {
        "name": "d3bot",
        "version": __version__,
        "rules": [
            {"id": rule, "shortDescription": {"text": f"{rule}: not equivalent to one process"}} for rule in rules
        ],
    }
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    data = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(data, indent=1) + "\n"


def _place(finding: Finding) -> dict[str, Any]:
    return {"artifactLocation": {"uri": f"findings/{finding.key}/repro.py"}, "region": {"startLine": 1}}


def _rule(finding: Finding) -> str:
    return f"{finding.build.framework}/{finding.setting.family}/{finding.verdict.kind}"
