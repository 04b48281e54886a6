"""One HTML page of a run that needs nothing else: no script, no font, no picture from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from d3bot.findings.markdown import clip, strip_control
from d3bot.history.changes import unknown_since
from d3bot.history.finding_folder import FindingFolder
from d3bot.report.facts import LISTED, SYMBOLS, duration, headline, kinds_of, matrix, numbers, reasons
from d3bot.spec import KINDS, Change, Framework, Kind, Run, Verdict
from d3bot.templates import environment

MAX_CASES = 400
"""Rows of the grid of cases and settings; those in which nothing but passes are left out first."""

MAX_FAILURES = 1000
"""Failing verdicts that open to their text."""

_TEXT = 20_000
_SEVERITY = {kind: i for i, kind in enumerate((*KINDS[1:6], "flaky", "no-data", "reference-failed"))}


@dataclass(frozen=True)
class Grid:
    """Cases x settings of one framework; a cell is a verdict's kind and text, or None where there was no trial."""

    framework: Framework
    settings: list[str]
    rows: list[tuple[str, list[tuple[Kind, str] | None]]]
    left_out: int


def render_html(
    run: Run, verdicts: Sequence[Verdict], changes: Sequence[Change], findings: Sequence[FindingFolder]
) -> str:
    """Return the page.  Every text in it is escaped; scripts and outputs are those of the finding folders."""
    failing = [verdict for verdict in verdicts if verdict.failing]
    template = environment("report", autoescape=True)
    template.filters.update(shown=_shown, numbers=numbers, duration=duration)
    return template.get_template("report.html.j2").render(
        run=run,
        headline=headline(run, verdicts, changes, [folder.finding for folder in findings]),
        trials=len(verdicts),
        changes={name: [change for change in changes if change.change == name] for name in LISTED},
        unknown=unknown_since(changes),
        findings=findings,
        failing=failing[:MAX_FAILURES],
        more_failing=max(0, len(failing) - MAX_FAILURES),
        kinds=kinds_of(verdicts),
        rows=matrix(verdicts),
        grids=grids(verdicts),
        reasons=reasons(verdicts, 50),
        symbols=SYMBOLS,
        shown_changes=MAX_FAILURES,
    )


def grids(verdicts: Sequence[Verdict]) -> list[Grid]:
    """Return one grid per framework, the cases with the worst verdicts first."""
    made = []
    for framework in sorted({verdict.framework for verdict in verdicts}):
        own = [verdict for verdict in verdicts if verdict.framework == framework]
        settings = sorted({verdict.setting for verdict in own})
        cases: dict[str, dict[str, Verdict]] = {}
        for verdict in own:
            cases.setdefault(verdict.case, {})[verdict.setting] = verdict
        ordered = sorted(cases.items(), key=lambda item: (_worst(item[1]), item[0]))
        rows = [(_name(case, seen), [_cell(seen.get(name)) for name in settings]) for case, seen in ordered[:MAX_CASES]]
        made.append(Grid(framework, settings, rows, max(0, len(ordered) - MAX_CASES)))
    return made


def _worst(seen: dict[str, Verdict]) -> int:
    return min(_SEVERITY.get(verdict.kind, len(_SEVERITY)) for verdict in seen.values())


def _name(case: str, seen: dict[str, Verdict]) -> str:
    return next((verdict.seed for verdict in seen.values() if verdict.seed), case)


def _cell(verdict: Verdict | None) -> tuple[Kind, str] | None:
    if verdict is None:
        return None
    tip = verdict.kind if verdict.kind == "pass" else f"{verdict.kind}: {_shown(verdict.reason)[:200]}"
    return verdict.kind, tip


def _shown(text: str) -> str:
    return clip(strip_control(text), _TEXT)
