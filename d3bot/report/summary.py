"""The Markdown summary of a run: the headline first, and never more bytes than GitHub shows."""

from collections.abc import Sequence
from pathlib import Path

from d3bot.findings.markdown import code, plain
from d3bot.history.changes import unknown_since
from d3bot.report.facts import (
    LISTED,
    SYMBOLS,
    against_each_other,
    covered,
    duration,
    headline,
    kinds_of,
    matrix,
    numbers,
    reasons,
)
from d3bot.spec import Change, Finding, Run, Verdict
from d3bot.templates import environment, render_page

MAX_BYTES = 900 * 1024
"""GitHub drops a whole step summary above 1 MiB."""

_ITEMS = 200
"""Entries of one list; what is beyond is counted and stands in the HTML report."""

SECTIONS = {
    "reasons": "why trials gave no data",
    "against": "which settings are wrong in the same way",
    "matrix": "the table of settings",
    "changes": "the list of changes",
    "findings": "the table of findings",
}
"""What may be left out for the size, in this order."""


def summary_markdown(
    run: Run,
    verdicts: Sequence[Verdict],
    changes: Sequence[Change],
    findings: Sequence[Finding],
    templates: Path | None = None,
) -> str:
    """Return the summary, at most 900 KiB encoded; everything that came from a test is made harmless.

    `templates` is a person's own folder.  SpecError if their template is wrong.
    """
    listed = {name: [change for change in changes if change.change == name] for name in LISTED}
    facts = {
        "run": run,
        "headline": headline(run, verdicts, changes, findings),
        "trials": len(verdicts),
        "took": duration(run.seconds),
        "only": _only(run),
        "covered": covered(run, verdicts),
        "changes": {name: items[:_ITEMS] for name, items in listed.items() if items},
        "more": {name: len(items) - _ITEMS for name, items in listed.items() if len(items) > _ITEMS},
        "unknown": unknown_since(changes)[:_ITEMS],
        "findings": findings[:_ITEMS],
        "more_findings": max(0, len(findings) - _ITEMS),
        "kinds": kinds_of(verdicts),
        "rows": matrix(verdicts)[: 5 * _ITEMS],
        "against": against_each_other(verdicts)[:_ITEMS],
        "reasons": reasons(verdicts, 20),
        "symbols": SYMBOLS,
    }
    template = environment("summary", own=templates)
    template.filters.update(plain=plain, code=code, numbers=numbers)
    names = list(SECTIONS)
    for dropped in range(len(names) + 1):
        cut = [SECTIONS[name] for name in names[:dropped]]
        text = render_page(template, "summary.md.j2", facts | {"keep": names[dropped:], "cut": cut})
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def _only(run: Run) -> list[str]:
    """Return the globs to which the run's settings were restricted; none if it ran all of them."""
    settings = run.config.get("settings")
    return [str(glob) for glob in settings] if isinstance(settings, list | tuple) else []
