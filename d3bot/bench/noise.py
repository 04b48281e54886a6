"""`d3bot bench noise`: what a healthy build is accused of, and how near its passes come to their bounds."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from d3bot.bench.trials import run_each
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.harness import Harness
from d3bot.flow.planning import fresh_trials
from d3bot.flow.resolved import resolved
from d3bot.frameworks import script_env
from d3bot.generate import PER_CASE, fresh_cases
from d3bot.report.terminal import Progress
from d3bot.spec import FAILING, Build, Verdict

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class NoiseReport:
    """What a run of fresh trials on healthy builds gave."""

    seed: int
    rows: tuple[dict[str, object], ...]
    failing: int

    def as_json(self) -> dict[str, object]:
        """Return the report as plain data."""
        return {"seed": self.seed, "failing": self.failing, "builds": list(self.rows)}

    def as_text(self) -> str:
        """Return the report for people."""
        lines = []
        for row in self.rows:
            lines.append(f"{row['build']}: {row['trials']} trials, {row['kinds']}, {row['vacuous']} vacuous")
            lines.append(f"  error / bound of the closest array of each bounded pass: {row['error_over_bound']}")
            lines += [f"  {text}" for text in row["not_passing"]]  # type: ignore[attr-defined]  # a list of texts
        return "\n".join(lines)


def bench_noise(config: Config, trials: int, console: Console) -> NoiseReport:
    """Run that many fresh trials on each build and return what was not a pass and how close the passes came."""
    seed = config.seed or 0
    rows, failing = [], 0
    for spec in config.builds:
        build = resolved(spec, config)
        seen = _run(build, config, trials, seed, console)
        rows.append(_row(build, seen))
        failing += sum(verdict.failing for verdict, _ in seen)
    return NoiseReport(seed, tuple(rows), failing)


def _run(build: Build, config: Config, trials: int, seed: int, console: Console) -> list[tuple[Verdict, float]]:
    """Return each trial's verdict and how near its closest array came to its bound."""
    cases = fresh_cases(build.framework, seed, trials // PER_CASE[build.framework] + 1)
    planned = fresh_trials(build.framework, cases, config.settings, seed, {})[:trials]
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as folder,
        Pool(build, script_env(build.framework), config.workers) as pool,
        Progress(console, len(planned)) as progress,
    ):
        harness = Harness(pool, Path(folder), Pace())
        seen = []
        for item in run_each(harness, planned, config.workers, lambda: True):
            progress.finished(item.verdict)
            seen.append((item.verdict, item.judgement.tightest))
        return seen


def _row(build: Build, seen: Sequence[tuple[Verdict, float]]) -> dict[str, object]:
    ratios = [tightest for verdict, tightest in seen if verdict.kind == "pass" and tightest]
    kinds = Counter(verdict.kind for verdict, _ in seen)
    odd = [verdict for verdict, _ in seen if verdict.kind not in ("pass", "not-applicable")]
    return {
        "build": build.label,
        "trials": len(seen),
        "vacuous": sum(verdict.vacuous for verdict, _ in seen),
        "kinds": dict(sorted(kinds.items())),
        "error_over_bound": {f"p{int(100 * q)}": round(float(np.quantile(ratios, q)), 3) for q in _QUANTILES if ratios},
        "not_passing": [
            f"{v.kind} {v.key or '-'} {v.case} {v.setting} {v.dtype}: {v.reason}"
            for v in sorted(odd, key=lambda v: (v.kind not in FAILING, v.key, v.trial))
        ],
    }
