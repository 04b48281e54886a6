"""What a finished run shows people: summary.md, report.html, and the history page that goes on from the last run's."""

from collections.abc import Sequence
from pathlib import Path

from d3bot.flow.plan_file import PLAN, load_plan
from d3bot.flow.tried import tried
from d3bot.history.evidence import load_evidence
from d3bot.history.files import write_atomic
from d3bot.history.finding_folder import list_findings, read_finding
from d3bot.history.folder import load_changes, load_run
from d3bot.history.timeline import HISTORY, History, extend, load_history, record, write_history
from d3bot.report.history import render_history
from d3bot.report.html import render_html
from d3bot.report.summary import summary_markdown
from d3bot.spec import Change, Finding, Run, Trial, Verdict

REPORT_PAGE, HISTORY_PAGE, SUMMARY = "report.html", "history.html", "summary.md"


def write_pages(
    out: Path,
    run: Run,
    trials: Sequence[Trial],
    verdicts: Sequence[Verdict],
    changes: Sequence[Change],
    findings: Sequence[Finding],
    known: Sequence[Finding],
    previous: Path | None,
    templates: Path | None = None,
    notice: str = "",
) -> None:
    """Write summary.md, report.html, history.json and history.html into a run folder that holds all else already.

    `known` are findings of the `previous` run; `notice` stands above the summary.

    SpecError if a template of the person's own is wrong.
    """
    write_atomic(out / SUMMARY, notice + summary_markdown(run, verdicts, changes, findings, templates))
    write_atomic(out / REPORT_PAGE, _report(out, run, trials, verdicts, changes))
    night = record(run, verdicts, changes, findings, load_evidence(out), known)
    history = extend(history_of(previous) if previous else History(), night, verdicts, [*known, *findings])
    write_history(out, history)
    write_atomic(out / HISTORY_PAGE, render_history(history, REPORT_PAGE))


def history_of(folder: Path) -> History:
    """Return the history up to a run; of a run that carries none, a history of that run alone."""
    if (folder / HISTORY).exists():
        return load_history(folder)
    loaded = load_run(folder)
    findings = [read_finding(path).finding for path in list_findings(folder)]
    night = record(loaded.run, loaded.verdicts, load_changes(folder), findings, load_evidence(folder))
    return extend(History(), night, loaded.verdicts, findings)


def render_site(folder: Path, out: Path) -> None:
    """Write the pages of a finished run anew from its data: index.html, the history, and report.html."""
    loaded = load_run(folder)
    trials = load_plan(folder) if (folder / PLAN).exists() else []
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / REPORT_PAGE, _report(folder, loaded.run, trials, loaded.verdicts, load_changes(folder)))
    write_atomic(out / "index.html", render_history(history_of(folder), REPORT_PAGE))


def _report(
    folder: Path, run: Run, trials: Sequence[Trial], verdicts: Sequence[Verdict], changes: Sequence[Change]
) -> str:
    findings = [read_finding(path) for path in list_findings(folder)]
    by_trial = {verdict.trial: verdict for verdict in verdicts}
    return render_html(run, verdicts, changes, findings, tried(trials, by_trial))
