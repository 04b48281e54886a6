"""The report of a pull request's check, the same in the comment, the check run and the step summary.  Pure."""

from pathlib import Path

from d3bot.findings.markdown import code, plain
from d3bot.history.check import Check
from d3bot.templates import environment, render_page

_ROWS = 50


def check_markdown(check: Check, templates: Path | None = None, run_url: str = "") -> str:
    """Return the report; everything that came from a test is made harmless, and long lists are counted."""
    page = environment("comment", own=templates)
    page.filters.update(plain=plain, code=code)
    return render_page(page, "check.md.j2", {"check": check, "rows": _ROWS, "run_url": run_url}).strip() + "\n"


def title_of_check(check: Check) -> str:
    """Return the check's result on one line."""
    return {
        "same": "No difference to the base",
        "better": "Better than the base",
        "worse": f"{len(check.worse)} new failure{'s' if len(check.worse) != 1 else ''}",
        "mixed": f"Mixed: {len(check.worse)} new, {check.fixed} fixed",
        "no-data": "No result",
    }[check.outcome]
