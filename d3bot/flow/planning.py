"""What a run tries: seeds, what failed last time, fresh cases, and the settings that cover most."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from d3bot.config import Config
from d3bot.flow.evidence import known_findings
from d3bot.flow.plan_file import PLAN, load_plan
from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import families, family_of, find_settings, matches, touched
from d3bot.generate import EXPLORED, EXPLORED_EVERY, PER_CASE, drawn_settings, explored, fresh_cases, grid, plan, shard
from d3bot.generate.costs import NO_COSTS, learned
from d3bot.generate.coverage import pairs_of
from d3bot.generate.mutate import mutants
from d3bot.history.coverage import load_coverage
from d3bot.history.folder import LoadedRun
from d3bot.history.previous import latest_comparable, named
from d3bot.spec import Build, Case, Costs, Finding, Framework, Pair, Seed, Setting, Trial, Verdict

_ROUND = 12
"""Fresh cases of each build in a round of a run that is given minutes."""

_MUTANTS = 6
"""Mutants of each build in such a round."""

_ENERGY = 3.0
"""Weight of all cases that fail under one key, where a seed has 1."""

_DRAWN = 60
"""Settings with all options drawn, among which a run chooses."""


@dataclass(frozen=True)
class Before:
    """The run to compare with, if there is one."""

    folder: Path
    loaded: LoadedRun

    @cached_property
    def findings(self) -> list[Finding]:
        """Its findings, and those that it did not show but kept; read once."""
        return [folder.finding for folder in known_findings(self.folder)]


def find_previous(config: Config, out: Path, builds: Sequence[Build], say: Callable[[str], None]) -> Before | None:
    """Return the previous run that the configuration names; None if there is none that can be compared with.

    Of the latest ones, what is passed over is said with its reason.  SpecError if a run is named that cannot be read or
    is of other inputs.
    """
    if not config.previous:
        return None
    if config.previous != "latest":
        folder = Path(config.previous)
        if folder.resolve() == out.resolve():
            return None
        found = named(folder, builds)
    else:
        found = latest_comparable(out.parent, builds, without=out)
        for text in found.passed_over:
            say(f"not compared with {text}")
    return Before(found.folder, found.loaded) if found.folder and found.loaded else None


def costs_of(before: Before | None) -> Costs:
    """Return what trials cost in the previous run."""
    return learned(before.loaded.run.run, before.loaded.verdicts) if before else Costs()


def plan_trials(
    config: Config,
    builds: Sequence[Build],
    before: Before | None,
    seed: int,
    costs: Costs,
    changed: Sequence[str] = (),
) -> list[Trial]:
    """Return the trials of a run's first round, this shard's: seeds, what failed last time, and fresh cases.

    What covers most per expected second by these `costs` is chosen.

    A run that is given minutes gets its fresh cases in later rounds.  In front comes what the `changed` files of the
    library touch: as many fresh cases again, under the settings of the families whose code they hold.
    """
    count = 0 if config.minutes else config.fresh
    trials: list[Trial] = []
    for build in builds:
        framework = build.framework
        settings = find_settings(framework, config.settings)
        if not settings:
            continue
        ages = _ages(before, framework)
        if first := touched_settings(build, changed, config.settings):
            more = fresh_cases(framework, seed, 2 * count)[count:]
            families_first = {setting.family for setting in first}
            beside = [
                setting for setting in _wider(framework, config.settings, seed) if setting.family in families_first
            ]
            planned = plan([], [], more, first, PER_CASE[framework])
            trials += explored(planned, more, beside, ages, EXPLORED[framework], costs)
        cases = fresh_cases(framework, seed, count)
        planned = plan(
            seeds=[_on(build, seed) for seed in load_seeds(config.seeds, framework)],
            previous=_failing_before(before, framework, config.settings),
            fresh=cases,
            settings=settings,
            per_case=PER_CASE[framework],
            own_settings=not config.settings,
        )
        some = cases[:: EXPLORED_EVERY[framework]]
        wider = _wider(framework, config.settings, seed)
        trials += explored(planned, some, wider, ages, EXPLORED[framework], costs)
    return shard(trials, config.shard.index, config.shard.count)


def touched_settings(build: Build, changed: Sequence[str], globs: Sequence[str]) -> list[Setting]:
    """Return the settings of the families whose code some of these files of the library hold, where a glob allows.

    Of each family those are its standing ones, or its example where it has none.
    """
    found: list[Setting] = []
    for name in touched(build.framework, changed):
        family = families(build.framework)[name]
        if not family.needs or family.needs in build.packages:
            found += [family.canonical(Setting.parse(text)) for text in family.standing] or [family.example]
    return [setting for setting in found if matches(setting, globs)]


def _on(build: Build, seed: Seed) -> Seed:
    """Return a seed without the settings for which the build lacks a package: they must not count as tried."""
    families = [(setting, family_of(build.framework, setting)) for setting in seed.settings]
    kept = tuple(setting for setting, family in families if not family.needs or family.needs in build.packages)
    return replace(seed, settings=kept)


def more_trials(
    config: Config,
    builds: Sequence[Build],
    before: Before | None,
    planned: Sequence[Trial],
    verdicts: Mapping[str, Verdict],
    seed: int,
    costs: Costs,
) -> list[Trial]:
    """Return a further round of a run that is given minutes instead of a number of cases: fresh cases and mutants.

    Of the one stream of fresh cases shard I of N takes every N-th, so that shards never share one.  `verdicts` are
    those so far, by trial: what failed has the most offspring.
    """
    index, count = config.shard.index, config.shard.count
    done = {trial.id for trial in planned}
    trials: list[Trial] = []
    for build in builds:
        framework = build.framework
        if not find_settings(framework, config.settings):
            continue
        mine = [trial for trial in planned if trial.case.framework == framework]
        seen = {trial.case.id for trial in mine if trial.origin == "fresh"}
        start = -(-len(seen) // _ROUND) * _ROUND
        cases = fresh_cases(framework, seed, (start + _ROUND) * count)[index - 1 :: count][start:]
        tried = [trial for trial in mine if trial.id in verdicts and verdicts[trial.id].covers]
        ages = _ages(before, framework) | {pair: 0 for trial in tried for pair in pairs_of(trial.case, trial.setting)}
        now = seed + len(seen) * count + index
        trials += fresh_trials(framework, cases, config.settings, now, ages, costs)
        children = mutants(energies(mine, verdicts), now, _MUTANTS)
        trials += [
            trial.model_copy(update={"origin": "mutant"})
            for trial in fresh_trials(framework, children, config.settings, now, ages, costs)
        ]
    return [trial for trial in trials if trial.id not in done]


def energies(trials: Sequence[Trial], verdicts: Mapping[str, Verdict]) -> list[tuple[Case, float]]:
    """Return each case with its energy, by which parents of mutants are drawn.

    A seed has 1.  The cases that fail under one key share `_ENERGY`, so that a bug that many cases show does not use up
    the offspring of the others.  What neither is a seed nor fails has none.
    """
    cases = {trial.case.id: trial.case for trial in trials}
    energy = {trial.case.id: 1.0 for trial in trials if trial.origin == "seed"}
    showing: dict[str, set[str]] = {}
    for trial in trials:
        verdict = verdicts.get(trial.id)
        if verdict is not None and verdict.failing:
            showing.setdefault(verdict.key, set()).add(trial.case.id)
    for names in showing.values():
        for name in names:
            energy[name] = energy.get(name, 0.0) + _ENERGY / len(names)
    return [(cases[name], weight) for name, weight in sorted(energy.items())]


def fresh_trials(
    framework: Framework,
    cases: Sequence[Case],
    globs: Sequence[str],
    seed: int,
    ages: Mapping[Pair, int],
    costs: Costs = NO_COSTS,
) -> list[Trial]:
    """Return the trials of fresh cases alone: spread over the standing settings, and some that cover most beyond."""
    planned = plan([], [], cases, find_settings(framework, globs), PER_CASE[framework])
    return explored(planned, cases, _wider(framework, globs, seed), ages, EXPLORED[framework], costs)


def _wider(framework: Framework, globs: Sequence[str], seed: int) -> list[Setting]:
    """Return the settings that a run may try beyond the standing ones: every option's values, and drawn mixtures."""
    every = dict.fromkeys((*grid(framework), *drawn_settings(framework, seed, _DRAWN)))
    return [setting for setting in every if matches(setting, globs)]


def _ages(before: Before | None, framework: Framework) -> dict[Pair, int]:
    return load_coverage(before.folder).of(framework) if before else {}


def _failing_before(before: Before | None, framework: Framework, globs: Sequence[str]) -> list[tuple[Case, Setting]]:
    """Return the trials that failed in the previous run, so that none is lost because its case was a fresh one."""
    if before is None or not (before.folder / PLAN).exists():
        return []
    failing = {verdict.trial for verdict in before.loaded.verdicts if verdict.failing or verdict.kind == "flaky"}
    return [
        (trial.case, trial.setting)
        for trial in load_plan(before.folder)
        if trial.id in failing and trial.case.framework == framework and matches(trial.setting, globs)
    ]
