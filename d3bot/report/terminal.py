"""A run on the terminal: a bar while it goes, a table when it ends; plain lines where nobody watches."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import rich.progress
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from d3bot.findings.markdown import line
from d3bot.history.changes import unknown_since
from d3bot.report.facts import (
    LISTED,
    SYMBOLS,
    by_family,
    covered,
    duration,
    headline,
    kinds_of,
    matrix,
    numbers,
    reasons,
    times,
)
from d3bot.spec import FAILING, Change, ChangeClass, Finding, Kind, Run, Trial, Verdict

STYLES: dict[Kind, str] = {
    "pass": "green",
    "refused": "dim",
    "not-applicable": "dim",
    "flaky": "yellow",
    "no-data": "yellow",
    "reference-failed": "yellow",
    **dict.fromkeys(FAILING, "bold red"),
}

_ITEMS = 20
_SETTINGS = 12
"""Settings that fit on a screen; of more the table tells the families, and the report the settings."""
_HEARTBEAT_S = 30.0
"""Between two plain lines that only say how far the run is: enough to see it live, few enough to read the log."""


def print_summary(
    console: Console, run: Run, verdicts: Sequence[Verdict], changes: Sequence[Change], findings: Sequence[Finding]
) -> None:
    """Print what the Markdown summary says, as tables."""
    top = headline(run, verdicts, changes, findings)
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = matrix(verdicts)
    many = len(rows) > _SETTINGS
    table.add_column("family" if many else "setting", overflow="fold")
    kinds = kinds_of(verdicts)
    for kind in kinds:
        table.add_column(f"{SYMBOLS[kind]} {kind}", justify="right", style=STYLES[kind])
    for row in by_family(rows) if many else rows:
        table.add_row(Text(f"{row.framework} {line(row.setting)}"), *(str(row.counts.get(kind, "")) for kind in kinds))
    if kinds:
        console.print(table)
        console.print()
    for kind, reason, count in reasons(verdicts, _ITEMS):
        _print(console, f"{count} {kind}: {line(reason, 300)}", STYLES[kind])
    _list_changes(console, changes, _ITEMS)
    for finding in findings:
        _print(console, f"finding {finding.key}: {line(finding.title)}", "bold")
        proof = "verified" if finding.verified else f"unverified ({line(finding.unverified_reason, 200)})"
        _print(console, f"  {line(numbers(finding.verdict)) or finding.verdict.kind}; {proof}; {finding.regression}")
    for text in covered(run, verdicts):
        _print(console, text)
    counts = ", ".join(f"{count} {name}" for name, count in top.counts)
    _print(console, f"{times(len(verdicts), 'trial')} in {duration(run.seconds)}: {counts}")
    _print(console, line(top.text), "bold green" if top.good else "bold red")


def teller(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line of progress as it stands, whatever is written in it."""
    return lambda text: console.print(" ".join(text.split()), highlight=False, markup=False, soft_wrap=True)


def print_rows(console: Console, rows: Sequence[Mapping[str, str]], names: int) -> None:
    """Print rows as entries: the first `names` columns name one, what follows stands below.

    On a terminal it is wrapped to the width there is; elsewhere each text is one line, for grep.
    """
    for row in rows:
        columns = list(row.items())
        _print(console, " ".join(line(value) for _, value in columns[:names]), "bold")
        for at, (column, value) in enumerate(columns[names:]):
            if value:
                text = Text(value if at == 0 else f"{column}: {value}")
                console.print(
                    Padding(text, (0, 0, 0, 4)) if console.is_terminal else Text("    ") + text,
                    soft_wrap=not console.is_terminal,
                )


def print_changes(console: Console, changes: Sequence[Change], counts: Mapping[ChangeClass, int]) -> None:
    """Print how many changes there are of each class, and each one that somebody should look at."""
    _list_changes(console, changes, len(changes))
    _print(console, ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing to compare")


class Progress:
    """Shows what runs, what just failed and the time left.  Use as a context; may be called from several threads.

    On a terminal it is a bar below the failures; elsewhere each verdict that is not a pass is a line, and a line every
    half minute says how far the run is.  `total` is the number of trials, None for a run that goes on for `seconds`.
    `clock` returns seconds.
    """

    def __init__(
        self,
        console: Console,
        total: int | None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._total = total
        self._seconds = seconds
        self._clock = clock
        self._began = self._spoke = clock()
        self._kinds: Counter[Kind] = Counter()
        self._lock = threading.Lock()
        self._bar: rich.progress.Progress | None = None
        if console.is_terminal and not console.quiet:
            self._bar = rich.progress.Progress(
                rich.progress.BarColumn(bar_width=24),
                rich.progress.MofNCompleteColumn(),
                rich.progress.TimeElapsedColumn(),
                rich.progress.TimeRemainingColumn(),
                rich.progress.TextColumn("{task.description}", markup=False),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def grow(self, count: int) -> None:
        """Add trials that the plan did not have."""
        if self._total is not None:
            self._total += count
            if self._bar:
                self._bar.update(self._task, total=self._total)

    def running(self, trial: Trial) -> None:
        """Say which trial began."""
        if self._bar:
            self._bar.update(self._task, description=self._doing(str(trial.setting)))

    def finished(self, verdict: Verdict) -> None:
        """Count a verdict, and show it where it is not a pass."""
        with self._lock:
            self._kinds[verdict.kind] += 1
            if verdict.kind in FAILING or verdict.kind in ("flaky", "no-data", "reference-failed"):
                shown = f"{verdict.kind} {verdict.framework} {verdict.setting} {verdict.case}: {verdict.reason}"
                _print(self._console, f"{SYMBOLS[verdict.kind]} {line(shown, 300)}", STYLES[verdict.kind])
            if self._bar:
                self._bar.update(self._task, advance=1, description=self._doing(line(verdict.setting)))
            elif self._clock() - self._spoke >= _HEARTBEAT_S:
                self._spoke = self._clock()
                _print(self._console, self._state())

    def note(self, text: str) -> None:
        """Show one line about the run itself: a stage that begins, a zygote that had to be started anew."""
        _print(self._console, line(text, 300), "dim")

    def _failures(self) -> str:
        failing = sum(self._kinds[kind] for kind in FAILING)
        return f"{failing} failing · " if failing else ""

    def _doing(self, setting: str) -> str:
        left = self._left(self._clock() - self._began, 0)
        return f"{self._failures()}{left.removeprefix(', ') + ' · ' if left else ''}{setting}"

    def _left(self, elapsed: float, done: int) -> str:
        """Return the time left in words, empty where it is not known."""
        if self._seconds is not None:
            return f", about {duration(max(0.0, self._seconds - elapsed))} left"
        if self._total and done:
            return f", about {duration(elapsed / done * (self._total - done))} left"
        return ""

    def _state(self) -> str:
        done = self._kinds.total()
        elapsed = self._clock() - self._began
        trials = f"{done} of {times(self._total, 'trial')}" if self._total else times(done, "trial")
        left = self._left(elapsed, done)
        return f"{trials} in {duration(elapsed)}, {self._failures() or '0 failing · '}".rstrip(" ·") + left


def _list_changes(console: Console, changes: Sequence[Change], limit: int) -> None:
    """Print up to `limit` changes of each class that somebody should look at, and how many more there are."""
    listed: dict[str, list[Change]] = {name: [item for item in changes if item.change == name] for name in LISTED}
    listed["failing, unknown since when"] = unknown_since(changes)
    for name, items in listed.items():
        for change in items[:limit]:
            _print(console, f"{name}: {_describe(change)}", "green" if name == "fixed" else "red")
        if len(items) > limit:
            _print(console, f"{name}: {len(items) - limit} more", "dim")


def _describe(change: Change) -> str:
    key = change.after_key or change.before_key
    sides = f"{change.before or 'not run'} -> {change.after or 'no verdict'}"
    return line(f"{change.framework} {change.setting} {change.case}: {sides}" + (f" ({key})" if key else ""))


def _print(console: Console, text: str, style: str = "") -> None:
    # As a Text and unwrapped: what a test printed can neither hold markup nor begin a line of its own.
    console.print(Text(text, style=style), soft_wrap=True)
