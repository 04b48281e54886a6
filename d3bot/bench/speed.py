"""`d3bot bench speed`: trials by the engine, and the same trials by running each script by itself, in one run.

The engine's time holds all that a verdict needs: the distributed side, its share of the reference with the noise
re-runs, reading, comparing; not the one import of the library with which an engine starts.  A script by itself launches
its ranks by fork, the fastest way it has; it runs one reference and no noise.  The floor is the trial's own training,
warm, in one process.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from rich.console import Console

from d3bot.config import Config
from d3bot.engine.jobs import Job
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.engine.script import run_script
from d3bot.flow.format import format_files
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.resolved import resolved
from d3bot.frameworks import find_settings, render, script_env
from d3bot.generate import PER_CASE, fresh_cases, plan
from d3bot.spec import Build, Trial

_SCRIPT_SECONDS = 300.0
_NOISE: tuple[Literal["move", "order"], ...] = ("order",)
_WARM = 6
"""Runs of the reference in a process that has done it before, over which the floor is taken."""


@dataclass(frozen=True)
class SpeedRow:
    """One family of settings of one build: seconds a trial."""

    build: str
    family: str
    loop: str
    trials: int
    engine: float
    scripts: int
    script: float
    """Seconds of `python repro.py`, the mean over the `scripts` trials that were run so."""
    floor: float

    @property
    def ratio(self) -> float:
        """How many trials the engine does while one script runs."""
        return self.script / self.engine

    @property
    def over_floor(self) -> float:
        """Engine time in units of the trial's own training in one process."""
        return self.engine / self.floor if self.floor else float("inf")

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data, seconds rounded."""
        return {
            "build": self.build,
            "family": self.family,
            "loop": self.loop,
            "trials": self.trials,
            "engine_seconds": round(self.engine, 4),
            "scripts": self.scripts,
            "script_seconds": round(self.script, 3),
            "floor_seconds": round(self.floor, 5),
            "ratio": round(self.ratio, 1),
            "engine_over_floor": round(self.over_floor, 1),
        }


@dataclass(frozen=True)
class SpeedReport:
    """Every family of every build, and the whole."""

    rows: tuple[SpeedRow, ...]

    def whole(self, build: str) -> dict[str, object]:
        """Return what holds for all of a build's trials: how many a second, and how many times the scripts' pace."""
        mine = [row for row in self.rows if row.build == build]
        engine = sum(row.engine * row.trials for row in mine)
        script = sum(row.script * row.trials for row in mine)
        trials = sum(row.trials for row in mine)
        return {
            "build": build,
            "trials": trials,
            "trials_per_second": round(trials / engine, 2),
            "scripts_per_second": round(trials / script, 3),
            "ratio": round(script / engine, 1),
        }

    def as_json(self) -> dict[str, object]:
        """Return the report as plain data."""
        builds = dict.fromkeys(row.build for row in self.rows)
        return {"builds": [self.whole(build) for build in builds], "families": [row.as_json() for row in self.rows]}


def bench_speed(config: Config, trials: int, scripts: int, console: Console) -> SpeedReport:
    """Time that many fresh trials of each build by the engine, one after the other, and `scripts` of each family alone.

    Trials that give no result on either way, because they do not apply or fail, are left out on both.
    """
    rows: list[SpeedRow] = []
    for spec in config.builds:
        rows += _rows(resolved(spec, config), config, trials, scripts, console)
    return SpeedReport(tuple(rows))


def _rows(build: Build, config: Config, trials: int, scripts: int, console: Console) -> list[SpeedRow]:
    framework = build.framework
    settings = find_settings(framework, config.settings)
    cases = fresh_cases(framework, config.seed or 0, trials // PER_CASE[framework] + 1)
    planned = plan([], [], cases, settings, PER_CASE[framework])[:trials]
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as folder,
        Pool(build, script_env(framework), 1) as pool,
    ):
        harness = Harness(pool, Path(folder) / "engine", Pace())
        harness.prepare(planned)
        Harness(pool, Path(folder) / "start", Pace()).run(planned[0])  # starts the engine
        groups: dict[tuple[str, str], _Times] = {}
        for trial in planned:
            began = time.perf_counter()
            judged = harness.run(trial)
            seconds = time.perf_counter() - began
            if judged.verdict.kind != "pass":
                continue
            times = groups.setdefault((trial.setting.family, trial.case.loop), _Times())
            times.engine.append(seconds)
            if len(times.script) < scripts:  # beside the engine's trials, so that other work on the machine slows both
                times.script.append(_alone(build, trial, Path(folder)))
                times.floor.append(_floor(pool, judged, Path(folder)))
                engine, script = times.engine[-1], times.script[-1]
                console.print(f"{trial.setting}: {engine:.3f} s, its script {script:.1f} s", markup=False)
    return [
        SpeedRow(
            build.label,
            family,
            loop,
            len(times.engine),
            fmean(times.engine),
            len(times.script),
            fmean(times.script),
            fmean(times.floor),
        )
        for (family, loop), times in sorted(groups.items())
    ]


@dataclass
class _Times:
    """Seconds of one family's trials."""

    engine: list[float] = field(default_factory=list)
    script: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


def _alone(build: Build, trial: Trial, folder: Path) -> float:
    """Return the seconds of the trial's script by itself."""
    path = folder / "alone.py"
    path.write_text(render(trial.case, trial.setting, "Timed by itself.").text)
    format_files([path])
    began = time.perf_counter()
    run_script(build, path, _SCRIPT_SECONDS)
    return time.perf_counter() - began


def _floor(pool: Pool, judged: Judged, folder: Path) -> float:
    """Return the seconds of the trial's training in one process that has done it before.

    Re-runs differ from each other by their noise alone, so the time of many less that of one is the time of the rest.
    """
    assert judged.script is not None
    path = folder / "floor.py"
    path.write_text(judged.script.text)
    framework, parts, steps = judged.trial.case.framework, judged.script.parts, judged.script.steps
    once = Job(path, "reference", framework, parts=parts, steps=steps, noise=_NOISE)
    often = replace(once, noise=_NOISE * (1 + _WARM))
    return max(pool.run(often).seconds - pool.run(once).seconds, 0.0) / _WARM


def table_rows(report: SpeedReport) -> Sequence[tuple[str, ...]]:
    """Return the families for people."""
    return [
        (
            f"{row.build} {row.family} {row.loop}",
            str(row.trials),
            f"{row.engine:.3f}",
            f"{row.script:.1f}",
            f"{row.ratio:.0f} x",
            f"{row.floor:.4f}",
            f"{row.over_floor:.0f} x",
        )
        for row in report.rows
    ]
