"""One HTML page of a run that needs nothing else: no script, no font, no picture from elsewhere."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from d3bot.findings.markdown import clip, strip_control
from d3bot.history.changes import unknown_since
from d3bot.history.finding_folder import FindingFolder
from d3bot.report.charts import Strip, closeness, family, strip, ticks, time_by_family
from d3bot.report.facts import (
    LISTED,
    SYMBOLS,
    against_each_other,
    duration,
    headline,
    kinds_of,
    matrix,
    numbers,
    reasons,
)
from d3bot.spec import KINDS, Change, Framework, Kind, Run, TensorRow, Verdict
from d3bot.templates import data_folder, environment

MAX_CELLS = 60_000
"""Cells of all grids of cases and settings; beyond, the cases with the least to tell are added up in one row."""

MAX_FAILURES = 1000
"""Failing verdicts that are listed one by one, at most `MAX_OF_KEY` under one key."""

MAX_OF_KEY = 50
MAX_DETAILS = 3
"""Verdicts of one key that show their output: the same failure prints the same."""

_TEXT = 20_000
_SEVERITY = {kind: i for i, kind in enumerate((*KINDS[1:6], "flaky", "no-data", "reference-failed"))}


@dataclass(frozen=True)
class Cell:
    """A verdict in a grid: its kind, what a pointer on it shows, and where its details stand on the page."""

    kind: Kind
    tip: str = ""
    link: str = ""


@dataclass(frozen=True)
class GridRow:
    """One case: a verdict or None for every setting, and what filters look for."""

    name: str
    cells: list[Cell | None]
    families: str
    kinds: str
    words: str


@dataclass(frozen=True)
class Grid:
    """Cases x settings of one framework."""

    framework: Framework
    settings: list[str]
    families: list[str]
    rows: list[GridRow]
    left_out: int
    """How many cases are added up instead of shown."""
    rest: list[str]
    """For every setting, the verdicts of the cases left out: `✓ 12`."""


@dataclass(frozen=True)
class Failing:
    """The failing trials of one key."""

    key: str
    verdicts: list[Verdict]
    more: int


@dataclass(frozen=True)
class Met:
    """How often a feature met an option: trials that said something, how many failed, and whether it never can."""

    trials: int
    failed: int = 0
    excluded: bool = False


@dataclass(frozen=True)
class Tried:
    """Which features of cases met which options of settings in a run."""

    framework: Framework
    columns: tuple[str, ...]
    """`fsdp2:shard_dim=1`, ..."""
    rows: tuple[tuple[str, tuple[Met, ...]], ...]
    """A feature, and how often it met the option of each column."""


def render_html(
    run: Run,
    verdicts: Sequence[Verdict],
    changes: Sequence[Change],
    findings: Sequence[FindingFolder],
    tried: Sequence[Tried] = (),
) -> str:
    """Return the page.  Every text in it is escaped; scripts and outputs are those of the finding folders."""
    failing = _failing(verdicts)
    shown = {verdict.trial for group in failing for verdict in group.verdicts}
    bars, equal = closeness(verdicts)
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            headline=headline(run, verdicts, changes, [folder.finding for folder in findings]),
            trials=len(verdicts),
            changes={name: [change for change in changes if change.change == name] for name in LISTED},
            unknown=unknown_since(changes),
            findings=findings,
            found={folder.finding.key for folder in findings},
            failing=failing,
            more_failing=sum(group.more for group in failing),
            failures=sum(len(group.verdicts) + group.more for group in failing),
            kinds=kinds_of(verdicts),
            rows=matrix(verdicts),
            grids=grids(verdicts, shown),
            against=against_each_other(verdicts)[:MAX_FAILURES],
            reasons=reasons(verdicts, 50),
            symbols=SYMBOLS,
            shown_changes=MAX_FAILURES,
            shown_details=MAX_DETAILS,
            frameworks=sorted({verdict.framework for verdict in verdicts}),
            families=sorted({family(verdict.setting) for verdict in verdicts}),
            tried=tried,
            most=max((cell.trials for each in tried for _, cells in each.rows for cell in cells), default=0),
            times=time_by_family(verdicts),
            closeness=bars,
            bit_equal=equal,
            ticks=ticks(),
            **page_parts(),
        )
    )


def page_environment() -> SandboxedEnvironment:
    """Return the environment of the HTML pages, with the filters that they share."""
    template = environment("report", autoescape=True)
    template.filters.update(
        shown=_shown,
        number=_number,
        numbers=numbers,
        duration=duration,
        family=family,
        strip=_strip,
        row_strip=_row_strip,
        clusters=clusters,
        rare=_rare,
    )
    return template


@cache
def page_parts() -> Mapping[str, object]:
    """Return the style and the script of the pages, and the policy that lets exactly this script run."""
    folder = data_folder("templates") / "report"
    script = (folder / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return {"style": Markup((folder / "page.css").read_text()), "script": Markup(script), "policy": policy}


def clusters(folder: FindingFolder) -> list[tuple[str, int]]:
    """Return the settings under which the run failed with a finding's key, each with its number of cases."""
    counted = Counter(text.partition(" ")[2] for text in folder.finding.trials)
    return counted.most_common() or [(str(folder.finding.setting), 1)]


def grids(verdicts: Sequence[Verdict], shown: frozenset[str] | set[str] = frozenset()) -> list[Grid]:
    """Return one grid per framework, the cases with the worst verdicts first.

    `shown` holds the trials that stand elsewhere on the page and can be linked to.
    """
    frameworks = sorted({verdict.framework for verdict in verdicts})
    return [_grid(framework, verdicts, shown, MAX_CELLS // len(frameworks)) for framework in frameworks]


def _grid(framework: Framework, verdicts: Sequence[Verdict], shown: frozenset[str] | set[str], cells: int) -> Grid:
    own = [verdict for verdict in verdicts if verdict.framework == framework]
    settings = sorted({verdict.setting for verdict in own})
    cases: dict[str, dict[str, Verdict]] = {}
    for verdict in own:
        cases.setdefault(verdict.case, {})[verdict.setting] = verdict
    ordered = sorted(cases.items(), key=lambda item: (_worst(item[1]), item[0]))
    room = max(1, cells // len(settings))
    rest: dict[str, Counter[Kind]] = {name: Counter() for name in settings}
    for _, seen in ordered[room:]:
        for name, verdict in seen.items():
            rest[name][verdict.kind] += 1
    return Grid(
        framework,
        settings,
        [family(name) for name in settings],
        [_row(case, seen, settings, shown) for case, seen in ordered[:room]],
        max(0, len(ordered) - room),
        [" ".join(f"{SYMBOLS[kind]} {count}" for kind, count in rest[name].most_common()) for name in settings],
    )


def _row(case: str, seen: Mapping[str, Verdict], settings: Sequence[str], shown: frozenset[str] | set[str]) -> GridRow:
    name = next((verdict.seed for verdict in seen.values() if verdict.seed), case)
    kinds = " ".join(sorted({verdict.kind for verdict in seen.values()}))
    keys = sorted({verdict.key for verdict in seen.values() if verdict.key})
    cells = [_cell(seen[setting], shown) if setting in seen else None for setting in settings]
    families = " ".join(sorted({family(setting) for setting in seen}))
    return GridRow(name, cells, families, kinds, " ".join([name, case, *keys]))


def _worst(seen: Mapping[str, Verdict]) -> int:
    return min(_SEVERITY.get(verdict.kind, len(_SEVERITY)) for verdict in seen.values())


def _cell(verdict: Verdict, shown: frozenset[str] | set[str]) -> Cell:
    if verdict.kind == "pass":
        return Cell("pass")
    return Cell(
        verdict.kind,
        f"{verdict.kind}: {_shown(verdict.reason)[:200]}",
        verdict.trial if verdict.trial in shown else "",
    )


def _failing(verdicts: Sequence[Verdict]) -> list[Failing]:
    """Return the failing verdicts by key, the key with the most first, and no more than a page can hold."""
    by_key: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.failing:
            by_key.setdefault(verdict.key or verdict.kind, []).append(verdict)
    room, groups = MAX_FAILURES, []
    for key, own in sorted(by_key.items(), key=lambda item: (-len(item[1]), item[0])):
        kept = own[: min(MAX_OF_KEY, room)]
        room -= len(kept)
        groups.append(Failing(key, kept, len(own) - len(kept)))
    return groups


def _strip(verdict: Verdict) -> Strip | None:
    return strip(verdict.error, verdict.bound, verdict.failing)


def _row_strip(row: TensorRow) -> Strip | None:
    return strip(row.error, row.bound, bool(row.wrong))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _rare(trials: int, most: int) -> int:
    """Return how often a cell was tried in words of the style, from 0 (never) to 4."""
    return 0 if not trials else 1 if trials < 3 else 2 if trials < 10 else 3 if trials < max(30, most // 4) else 4


def _shown(text: str) -> str:
    return clip(strip_control(text), _TEXT)
