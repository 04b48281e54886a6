"""`d3bot bench findings`: known faults planted one by one; how many findings does each make, and how long are they?

A fault is one cause, so each should make one finding, under a name that no other fault's finding has.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from d3bot.bench.recall import Healthy, chosen_faults, stock_builds
from d3bot.bench.trials import run_each
from d3bot.builds import Fault, make_overlay
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.findings.group import group_failing
from d3bot.flow.confirm import again
from d3bot.flow.finding import Context
from d3bot.flow.harness import Harness
from d3bot.flow.look import look_into
from d3bot.flow.resolved import resolved
from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import find_settings, script_env
from d3bot.generate import PER_CASE, fresh_cases, plan
from d3bot.history.finding_folder import FINDINGS, read_finding
from d3bot.spec import Build, Finding, Trial, Verdict

LOOK_SECONDS = 90.0


@dataclass(frozen=True)
class Row:
    """What one fault came to."""

    fault: str
    trials: int
    failing: int
    seconds: float
    """For shrinking and confirming all of its failures."""
    findings: tuple[Finding, ...]
    lines: tuple[int, ...]
    """Of each finding's script, formatted."""

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        items = [
            {"key": finding.key, "verified": finding.verified, "regression": finding.regression, "lines": lines}
            for finding, lines in zip(self.findings, self.lines, strict=True)
        ]
        return {
            "fault": self.fault,
            "trials": self.trials,
            "failing": self.failing,
            "seconds": round(self.seconds, 1),
            "findings": items,
        }


def bench_findings(
    config: Config, folder: Path, only: Sequence[str], cap: float, keep: Path | None, console: Console
) -> list[Row]:
    """Return one row a fault.  `cap` is the number of seconds that its trials may take.

    The findings are written below `keep` if it is given.  SpecError if the folder holds no faults or `only` names one
    that it has not.
    """
    chosen = chosen_faults(folder, only)
    stocks = stock_builds(config, {fault.framework for fault in chosen})
    rows = []
    for framework, stock in stocks.items():
        with (
            tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as scripts,
            Pool(stock, script_env(framework), config.workers) as pool,
        ):
            healthy = Healthy(Harness(pool, Path(scripts), Pace()))
            for fault in (fault for fault in chosen if fault.framework == framework):
                row = _row(fault, stock, healthy, config, cap, keep)
                rows.append(row)
                console.print(
                    f"{fault.id}: {row.failing} of {row.trials} trials fail, {row.seconds:.0f} s", highlight=False
                )
                for finding, lines in zip(row.findings, row.lines, strict=True):
                    console.print(f"  {finding.key}  {lines} lines", markup=False, highlight=False, soft_wrap=True)
    return rows


def told(rows: Sequence[Row]) -> list[str]:
    """Return the totals in words: findings a fault, names that two faults share, lines of the scripts."""
    found = [row for row in rows if row.findings]
    names: dict[str, set[str]] = {}
    for row in found:
        for finding in row.findings:
            for name in finding.names:
                names.setdefault(name, set()).add(row.fault)
    shared = sorted({" and ".join(sorted(faults)) for faults in names.values() if len(faults) > 1})
    lines = [count for row in found for count in row.lines]
    count = sum(len(row.findings) for row in found)
    if not found:
        return ["no fault was found"]
    return [
        f"{count} findings of {len(found)} faults: {count / len(found):.2f} a fault",
        f"faults under one name: {'; '.join(shared) or 'none'}",
        f"lines of the scripts: median {statistics.median(lines):.0f}, most {max(lines)}",
        f"verified: {sum(finding.verified for row in found for finding in row.findings)} of {count}",
    ]


def _row(fault: Fault, stock: Build, healthy: Healthy, config: Config, cap: float, keep: Path | None) -> Row:
    framework = fault.framework
    planned = _planned(fault, config)
    by_id = {trial.id: trial for trial in planned}
    ends = time.monotonic() + cap
    with tempfile.TemporaryDirectory(prefix="d3bot-fault-") as temporary:
        overlay = make_overlay(fault.patch, Path(stock.python), Path(temporary) / "overlay")
        faulty = resolved(f"overlay:{overlay}+python:{stock.python}", config)
        out = (keep or Path(temporary)) / fault.id
        out.mkdir(parents=True, exist_ok=True)
        with Pool(faulty, script_env(framework), config.workers) as pool:
            harness = Harness(pool, Path(temporary) / "scripts", Pace())
            seen: list[Verdict] = []
            for judged in run_each(harness, planned, config.workers, lambda: time.monotonic() < ends):
                fails = judged.verdict.failing or judged.verdict.kind == "refused"
                if fails and not healthy.passes(judged.trial):
                    continue  # fails without the fault as well
                seen.append(again(harness, judged).verdict if fails else judged.verdict)
            refused = {verdict.trial for verdict in seen if verdict.kind == "refused"}
            cases = {trial.case.id: trial.case for trial in planned}
            groups = [group for group in group_failing(seen, cases, refused) if not group.catch_all]
            began = time.monotonic()
            context = Context(out, "bench", config.confirmations, stock, seen, config.shrink_seconds)
            looked = look_into(harness, groups, by_id, context, [], config.workers, LOOK_SECONDS, lambda text: None)
        scripts = [read_finding(out / FINDINGS / finding.key).script for finding in looked.findings]
    return Row(
        fault=fault.id,
        trials=len(seen),
        failing=sum(len(group.members) for group in groups),
        seconds=time.monotonic() - began,
        findings=tuple(looked.findings),
        lines=tuple(len(script.splitlines()) for script in scripts),
    )


def _planned(fault: Fault, config: Config) -> list[Trial]:
    """Return trials of seeds and fresh cases in turns, so that whichever shows the fault comes early."""
    framework = fault.framework
    settings = find_settings(framework, config.settings)
    fresh = fresh_cases(framework, config.seed or 0, config.fresh)
    own = not config.settings
    old = plan(load_seeds(config.seeds, framework), [], [], settings, len(settings), own_settings=own)
    new = plan([], [], fresh, settings, PER_CASE[framework])
    mixed = [trial for pair in zip(old, new, strict=False) for trial in pair]
    return [*mixed, *old[len(mixed) // 2 :], *new[len(mixed) // 2 :]]
