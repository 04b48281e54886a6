"""`d3bot bench recall`: known faults planted in a stock build one by one; is each found, how fast, and by what?

Detected means: a trial that passes on the stock build fails on the faulty one, is seen again three times in fresh
processes, and has a key that is not a catch-all.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from d3bot.bench.d3_rule import differs
from d3bot.bench.trials import run_each
from d3bot.builds import Fault, load_faults, make_overlay
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.findings.key import is_catch_all
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.planning import fresh_trials
from d3bot.flow.resolved import resolved
from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import script_env, standing_settings
from d3bot.generate import fresh_cases, plan
from d3bot.spec import Build, Framework, SpecError, Trial, Verdict

CONFIRMATIONS = 3


@dataclass(frozen=True)
class Column:
    """One source of cases: was the fault found, after how many seconds and trials, under which key."""

    found: bool
    seconds: float
    trials: int
    key: str = ""
    by: str = ""
    reason: str = ""
    diagnosis: str = ""
    d3: bool = False
    """Whether D3's rule tells a trial of the stream apart from one process, one that passes on the stock build."""


@dataclass(frozen=True)
class Row:
    """One fault."""

    id: str
    framework: Framework
    columns: dict[str, Column]

    @property
    def best(self) -> Column | None:
        """The column that found it first."""
        return min((c for c in self.columns.values() if c.found), key=lambda c: c.seconds, default=None)

    @property
    def found(self) -> bool:
        """Whether any column found it."""
        return self.best is not None

    @property
    def seconds(self) -> float:
        """Seconds to the first confirmed detection; if there was none, all that was spent."""
        return self.best.seconds if self.best else sum(column.seconds for column in self.columns.values())

    @property
    def key(self) -> str:
        """The key of the detection, or empty."""
        return self.best.key if self.best else ""

    @property
    def diagnosis(self) -> str:
        """What the detection's numbers mean, or empty."""
        return self.best.diagnosis if self.best else ""

    @property
    def d3(self) -> bool:
        """Whether D3's rule finds it in the same observations, up to our first detection."""
        return any(column.d3 for column in self.columns.values())

    @property
    def verdict(self) -> str:
        """`found` or `missed`."""
        return "found" if self.found else "missed"

    def shown(self, name: str) -> str:
        """Return one column for the table."""
        column = self.columns[name]
        return f"{column.seconds:.0f} s" if column.found else f"missed ({column.trials} trials)"

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        best = self.best
        return {
            "id": self.id,
            "framework": self.framework,
            "found": self.found,
            "seconds": round(self.seconds, 1),
            "key": self.key,
            "by": best.by if best else "",
            "reason": best.reason if best else "",
            "diagnosis": self.diagnosis,
            "d3": self.d3,
            "columns": {
                name: asdict(column) | {"seconds": round(column.seconds, 1)} for name, column in self.columns.items()
            },
        }


def bench_recall(config: Config, folder: Path, only: Sequence[str], cap: float, console: Console) -> list[Row]:
    """Return one row a fault.  `cap` is the number of seconds for each fault and column.

    SpecError if the folder holds no faults or `only` names one that it has not.
    """
    chosen = chosen_faults(folder, only)
    stocks = stock_builds(config, {fault.framework for fault in chosen})
    rows = []
    for framework, stock in stocks.items():
        mine = [fault for fault in chosen if fault.framework == framework]
        with (
            tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as scripts,
            Pool(stock, script_env(framework), config.workers) as pool,
        ):
            healthy = Healthy(Harness(pool, Path(scripts), Pace()))
            for fault in mine:
                row = _row(fault, stock, healthy, config, cap)
                rows.append(row)
                shown = {name: row.shown(name) for name in row.columns}
                console.print(f"{fault.id}: {row.verdict} {shown} {row.key}", markup=False, soft_wrap=True)
    return rows


def chosen_faults(folder: Path, only: Sequence[str]) -> list[Fault]:
    """Return the faults of a folder, or those that `only` names; SpecError if one of them is not there."""
    faults = load_faults(folder)
    unknown = set(only) - {fault.id for fault in faults}
    if unknown:
        raise SpecError(f"--only {min(unknown)}: {folder} has no such fault")
    return [fault for fault in faults if not only or fault.id in only]


class Healthy:
    """Verdicts of the stock build, each trial run there once."""

    def __init__(self, harness: Harness):
        self._harness = harness
        self._known: dict[str, Verdict] = {}

    def passes(self, trial: Trial) -> bool:
        """Whether the stock build passes the trial."""
        if trial.id not in self._known:
            self._known[trial.id] = self._harness.run(trial).verdict
        return self._known[trial.id].kind == "pass"


def stock_builds(config: Config, needed: set[Framework]) -> dict[Framework, Build]:
    """Return the stock build of each framework of which a fault is to be planted."""
    found = (resolved(spec, config) for spec in config.builds)
    builds = {build.framework: build for build in found}
    missing = needed - builds.keys()
    if missing:
        raise SpecError(f"--build: no build of {min(missing)} for its faults; name one, or choose faults with --only")
    return {framework: build for framework, build in builds.items() if framework in needed}


def _row(fault: Fault, stock: Build, healthy: Healthy, config: Config, cap: float) -> Row:
    framework = fault.framework
    settings = standing_settings(framework)
    seed = config.seed or 0
    planned = {
        "seeds": plan(load_seeds(config.seeds, framework), [], [], settings, len(settings)),
        "fresh": fresh_trials(framework, fresh_cases(framework, seed, config.fresh), (), seed, {}),
    }
    with tempfile.TemporaryDirectory(prefix="d3bot-fault-") as folder:
        overlay = make_overlay(fault.patch, Path(stock.python), Path(folder) / "overlay")
        faulty = resolved(f"overlay:{overlay}+python:{stock.python}", config)
        with Pool(faulty, script_env(framework), config.workers) as pool:
            harness = Harness(pool, Path(folder) / "scripts", Pace())
            columns = {name: _hunt(harness, healthy, trials, config.workers, cap) for name, trials in planned.items()}
    return Row(fault.id, framework, columns)


def _hunt(harness: Harness, healthy: Healthy, trials: Sequence[Trial], workers: int, cap: float) -> Column:
    """Run trials on the faulty build until one of them is a confirmed detection or the time is over."""
    began = time.monotonic()
    count = 0
    found: list[Column] = []
    d3 = False

    def wanted() -> bool:
        return not found and time.monotonic() - began < cap

    for judged in run_each(harness, trials, workers, wanted):
        count += 1
        d3 = d3 or (differs(judged) and healthy.passes(judged.trial))
        if not found and _detects(harness, healthy, judged):
            verdict = harness.explained(judged).verdict
            by = f"{verdict.seed or verdict.case} {verdict.setting}"
            seconds = time.monotonic() - began
            found.append(Column(True, seconds, count, verdict.key, by, verdict.reason, verdict.diagnosis))
    return replace(found[0] if found else Column(False, time.monotonic() - began, count), d3=d3)


def _detects(harness: Harness, healthy: Healthy, judged: Judged) -> bool:
    verdict = judged.verdict
    if not (verdict.failing or verdict.kind == "refused") or is_catch_all(verdict.key):
        return False
    if not healthy.passes(judged.trial):
        return False
    return all(harness.run(judged.trial, fresh=True).verdict.key == verdict.key for _ in range(CONFIRMATIONS))
