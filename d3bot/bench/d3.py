"""`d3bot bench d3`: D3's models, settings and rule beside ours, on healthy builds and on planted faults.

D3 trains four quarters of models (with embedding tables or chains of layers, each without and with one frozen layer)
for one step of SGD at learning rate 10, under data parallelism over 1 to 8 devices, and compares softmaxed predictions.
Both rules look at the same observations of both kinds of trials, so models, settings and rule can be told apart.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from d3bot.bench.d3_rule import differs
from d3bot.bench.trials import run_each
from d3bot.builds import load_faults, make_overlay
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.harness import Harness
from d3bot.flow.resolved import resolved
from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import canonical_setting, obstacle, script_env, standing_settings
from d3bot.frameworks.layers import KINDS
from d3bot.generate import PER_CASE, fresh_cases, plan
from d3bot.spec import Build, Case, Framework, Freeze, Optimizer, Setting, SpecError, Trial

_SETTINGS: dict[Framework, tuple[str, ...]] = {
    "torch": ("ddp(world=1)", "ddp(world=2)", "ddp(world=3)", "ddp(world=4)", "ddp(world=8)"),
    "tensorflow": tuple(f"mirrored(replicas={n}, ops=collective)" for n in (1, 2, 3, 4, 8)),
}
"""Data parallelism over D3's numbers of devices, the part of its settings that both libraries have of their own.

Its PyTorch settings are those of TorchRec, whose data-parallel sharding is DistributedDataParallel.
"""


@dataclass(frozen=True)
class Sight:
    """What both rules say of one trial."""

    ours: bool
    d3: bool
    ran: bool
    """Whether the trial is one that applies and whose reference works."""


@dataclass(frozen=True)
class Side:
    """What both rules say of one kind of trials on one build; on a faulty one, what the stock build does not show."""

    trials: int
    ours: int
    d3: int

    def shown(self) -> str:
        """Return `12 / 3 of 40`: ours, D3's, and the trials that ran."""
        return f"{self.ours} / {self.d3} of {self.trials}"


@dataclass(frozen=True)
class D3Row:
    """A healthy build, or one fault."""

    name: str
    fault: bool
    theirs: Side
    """D3's models and settings."""
    mine: Side
    """Our models and settings."""

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        sides = {"d3_trials": self.theirs, "our_trials": self.mine}
        shown = {name: {"ran": s.trials, "our_rule": s.ours, "d3_rule": s.d3} for name, s in sides.items()}
        return {"name": self.name, "fault": self.fault, **shown}


def bench_d3(config: Config, faults: Path | None, only: Sequence[str], console: Console) -> list[D3Row]:
    """Return a row for each build and each fault.  `config.fresh` is the number of models of each kind.

    SpecError if a fault is asked for that is not there.
    """
    chosen = [fault for fault in load_faults(faults) if not only or fault.id in only] if faults else []
    if only and (unknown := set(only) - {fault.id for fault in chosen}):
        raise SpecError(f"--only {min(unknown)}: there is no such fault in {faults or '--faults'}")
    rows = []
    for spec in config.builds:
        stock = resolved(spec, config)
        kinds = {"theirs": d3_trials(stock.framework, config.seed or 0, config.fresh), "mine": _ours(stock, config)}
        healthy = {kind: _observe(stock, trials, config.workers) for kind, trials in kinds.items()}
        sides = {kind: _side(seen) for kind, seen in healthy.items()}
        rows.append(_told(D3Row(stock.label, False, **sides), console))
        for fault in chosen:
            if fault.framework != stock.framework:
                continue
            with tempfile.TemporaryDirectory(prefix="d3bot-fault-") as folder:
                overlay = make_overlay(fault.patch, Path(stock.python), Path(folder) / "overlay")
                faulty = resolved(f"overlay:{overlay}+python:{stock.python}", config)
                found = {
                    kind: _side(_observe(faulty, trials, config.workers), healthy[kind])
                    for kind, trials in kinds.items()
                }
            rows.append(_told(D3Row(fault.id, True, **found), console))
    return rows


def d3_trials(framework: Framework, seed: int, count: int) -> list[Trial]:
    """Return D3's trials: `count` models with embedding tables, as many without, all again with a frozen layer."""
    quarters: dict[bool, list[Case]] = {True: [], False: []}
    for case in _all_cases(framework, seed):
        quarter = quarters["embedding" in case.ops()]
        if len(quarter) < count:
            quarter.append(case)
        if all(len(cases) == count for cases in quarters.values()):
            break
    trials = []
    for case in (*quarters[True], *quarters[False]):
        plain = d3_recipe(case)
        frozen = [layer.name for layer in case.layers[:-1] if KINDS[layer.op].trainable][:1]
        for one in (plain, *(plain.model_copy(update={"freeze": (Freeze(layer=name),)}) for name in frozen)):
            for text in _SETTINGS[framework]:
                setting = canonical_setting(framework, Setting.parse(text))
                if obstacle(one, setting) is None:
                    trials.append(Trial(case=one, setting=setting))
    return trials


def d3_recipe(case: Case) -> Case:
    """Return the case's model trained as D3 does: float32, one step of SGD at learning rate 10, the whole batch."""
    return Case(
        framework=case.framework,
        inputs=case.inputs,
        layers=case.layers,
        tie=case.tie,
        loss=case.loss,
        batch=24,  # whole shares on each of D3's numbers of devices
        steps=1,
        optimizer=Optimizer(name="sgd", lr=10.0),
        dtype="float32",
        seed=case.seed,
    )


def _all_cases(framework: Framework, seed: int) -> Iterator[Case]:
    for block in range(100):
        yield from fresh_cases(framework, seed + block, 24)


def _ours(build: Build, config: Config) -> list[Trial]:
    settings, framework = standing_settings(build.framework), build.framework
    fresh = fresh_cases(framework, config.seed or 0, config.fresh)
    return plan(load_seeds(config.seeds, framework), [], fresh, settings, PER_CASE[framework])


def _observe(build: Build, trials: Sequence[Trial], workers: int) -> dict[str, Sight]:
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as folder,
        Pool(build, script_env(build.framework), workers) as pool,
    ):
        harness = Harness(pool, Path(folder), Pace())
        return {
            judged.trial.id: Sight(
                judged.verdict.failing,
                differs(judged),
                judged.verdict.kind not in ("not-applicable", "reference-failed", "no-data"),
            )
            for judged in run_each(harness, trials, workers, lambda: True)
        }


def _side(seen: dict[str, Sight], healthy: dict[str, Sight] | None = None) -> Side:
    """Return the counts; against a healthy build, of the trials that a rule passes there."""
    before = healthy or {}
    nothing = Sight(False, False, False)
    return Side(
        sum(sight.ran for sight in seen.values()),
        sum(sight.ours and not before.get(trial, nothing).ours for trial, sight in seen.items()),
        sum(sight.d3 and not before.get(trial, nothing).d3 for trial, sight in seen.items()),
    )


def _told(row: D3Row, console: Console) -> D3Row:
    console.print(f"{row.name}: D3's trials {row.theirs.shown()}, ours {row.mine.shown()}", markup=False)
    return row
