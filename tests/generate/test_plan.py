"""Which trials a run has: every rule by a small plan, the balance by the default one."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from d3bot.frameworks import cost, obstacle, standing_settings
from d3bot.generate import PER_CASE, fresh_cases, plan, shard
from d3bot.generate.plan import FEWEST
from d3bot.spec import FRAMEWORKS, Case, Framework, Seed, Setting, SpecError, Trial, load_seed

SEEDS = [load_seed(path) for path in sorted((Path(__file__).parents[2] / "seeds" / "torch").glob("*.toml"))]
FRESH = fresh_cases("torch", 1, 24)
STANDING = standing_settings("torch")
PIPELINE = Setting.parse("pp(world=2)")
UNUSUAL = Setting.parse("ddp(world=4)")


def runnable(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if obstacle(trial.case, trial.setting) is None]


def idle(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if obstacle(trial.case, trial.setting) is not None]


def by_case(trials: list[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.case.id, []).append(trial)
    return found


def default_plan() -> list[Trial]:
    return plan(SEEDS, [], FRESH, STANDING, PER_CASE["torch"])


def refuses(case: Case, setting: Setting) -> bool:
    return obstacle(case, setting) is not None


# The default run


def test_every_standing_setting_gets_eight_cases_or_most_that_allow_it() -> None:
    counts = Counter(trial.setting for trial in runnable(plan(SEEDS[:8], [], FRESH, STANDING, PER_CASE["torch"])))
    cases = [*(seed.case for seed in SEEDS[:8]), *FRESH]
    allowed = {setting: sum(not refuses(case, setting) for case in cases) for setting in STANDING}
    assert [str(s) for s in STANDING if counts[s] < min(8, 0.6 * allowed[s])] == []


def test_settings_that_most_cases_allow_are_balanced() -> None:
    counts = Counter(trial.setting for trial in runnable(plan([], [], FRESH, STANDING, PER_CASE["torch"])))
    common = [s for s in STANDING if sum(not refuses(case, s) for case in FRESH) >= 14]
    assert len(common) >= 8
    assert max(counts[s] for s in common) - min(counts[s] for s in common) <= 2, counts


def test_a_setting_that_few_cases_allow_gets_nearly_all_of_them() -> None:
    counts = Counter(trial.setting for trial in runnable(plan([], [], FRESH, STANDING, PER_CASE["torch"])))
    assert counts[PIPELINE] >= 0.9 * sum(not refuses(case, PIPELINE) for case in FRESH)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_case_runs_under_three_settings(framework: Framework) -> None:
    trials = plan([], [], fresh_cases(framework, 3, 24), standing_settings(framework), PER_CASE[framework])
    for mine in by_case(trials).values():
        assert 3 <= len(runnable(mine)) <= PER_CASE[framework]


def test_the_plan_is_deterministic_and_has_no_trial_twice() -> None:
    trials = default_plan()
    assert trials == default_plan()
    assert len({trial.id for trial in trials}) == len(trials)


def test_seeds_come_first_then_previous_failures_then_fresh_cases() -> None:
    old = fresh_cases("torch", 99, 1)[0]
    trials = plan(SEEDS[:3], [(old, STANDING[0])], FRESH[:3], STANDING, 3)
    origins = [trial.origin for trial in trials]
    assert origins == sorted(origins, key=["seed", "previous", "fresh"].index)
    assert set(origins) == {"seed", "previous", "fresh"}


def test_cheap_settings_come_first_within_a_case() -> None:
    for mine in by_case(default_plan()).values():
        costs = [cost("torch", trial.setting) for trial in mine]
        assert costs == sorted(costs)


# Not applicable


def test_one_setting_a_case_that_does_not_apply_is_on_record() -> None:
    for mine in by_case(default_plan()).values():
        refused = [setting for setting in STANDING if refuses(mine[0].case, setting)]
        assert len(idle(mine)) == min(1, len(refused))


def test_what_does_not_apply_counts_for_nothing() -> None:
    case = next(case for case in FRESH if refuses(case, PIPELINE))
    usable = [setting for setting in STANDING if not refuses(case, setting)][:2]
    trials = plan([], [], [case], [PIPELINE, *usable], per_case=2)
    assert {trial.setting for trial in runnable(trials)} == set(usable)
    assert [trial.setting for trial in idle(trials)] == [PIPELINE]


# Seeds' own settings


def test_a_seeds_own_settings_come_before_the_balance() -> None:
    seed = replace(SEEDS[0], settings=(UNUSUAL, STANDING[2]))
    trials = plan([seed], [], [], STANDING, per_case=3)
    settings = [trial.setting for trial in runnable(trials)]
    assert len(settings) == 3
    assert {UNUSUAL, STANDING[2]} <= set(settings)
    assert {trial.seed for trial in trials} == {seed.name}


def test_a_person_who_names_settings_gets_no_others() -> None:
    seed = replace(SEEDS[0], settings=(UNUSUAL, STANDING[0]))
    trials = plan([seed], [], [], STANDING[:2], per_case=3, own_settings=False)
    assert {trial.setting for trial in trials} <= set(STANDING[:2])


def test_all_of_a_seeds_own_settings_run_even_beyond_the_number_a_case_gets() -> None:
    seed = replace(SEEDS[0], settings=tuple(STANDING[:4]))
    assert {trial.setting for trial in runnable(plan([seed], [], [], STANDING, per_case=1))} == set(STANDING[:4])


def test_a_seed_that_names_settings_is_filled_up_to_three() -> None:
    seed = replace(SEEDS[0], settings=(STANDING[0],))
    assert len(runnable(plan([seed], [], [], STANDING, per_case=8))) == FEWEST


def test_a_seed_that_names_no_settings_gets_balanced_ones() -> None:
    trials = plan([Seed("plain", FRESH[0], "made up")], [], [], STANDING, per_case=4)
    assert len(runnable(trials)) == 4


# Previous failures


def test_a_previous_failure_is_planned_alone() -> None:
    old = fresh_cases("torch", 99, 1)[0]
    trials = plan([], [(old, UNUSUAL)], FRESH[:1], STANDING, per_case=3)
    mine = by_case(trials)[old.id]
    assert [(trial.setting, trial.origin) for trial in mine] == [(UNUSUAL, "previous")]


def test_a_previous_failure_of_a_seed_stays_the_seeds() -> None:
    seed = replace(SEEDS[0], settings=(STANDING[0],))
    trials = plan([seed], [(seed.case, UNUSUAL), (seed.case, STANDING[0])], [], STANDING, per_case=1)
    assert {trial.setting for trial in runnable(trials)} == {UNUSUAL, STANDING[0]}
    assert {(trial.origin, trial.seed) for trial in trials} == {("seed", seed.name)}


def test_a_previous_failure_among_the_fresh_cases_gets_the_other_settings_too() -> None:
    trials = plan([], [(FRESH[0], UNUSUAL)], FRESH[:1], STANDING, per_case=3)
    assert UNUSUAL in {trial.setting for trial in trials}
    assert len(runnable(trials)) == 3


# Wrong use


def test_one_plan_holds_one_framework() -> None:
    with pytest.raises(SpecError, match="one framework"):
        plan([], [], [FRESH[0], *fresh_cases("tensorflow", 1, 1)], STANDING, 3)


def test_nothing_a_case_is_no_plan() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        plan([], [], FRESH, STANDING, 0)


# Shards


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_a_partition_that_keeps_cases_whole_and_the_order(count: int) -> None:
    trials = default_plan()
    shards = [shard(trials, index, count) for index in range(1, count + 1)]
    assert sorted(trial.id for part in shards for trial in part) == sorted(trial.id for trial in trials)
    assert sum(len(by_case(part)) for part in shards) == len(by_case(trials))
    for part in shards:
        places = [trials.index(trial) for trial in part]
        assert places == sorted(places)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shards_have_nearly_the_same_work(count: int) -> None:
    trials = default_plan()
    work = [
        sum(cost("torch", trial.setting) for trial in runnable(shard(trials, i, count))) for i in range(1, count + 1)
    ]
    assert max(work) <= 1.1 * min(work)


def test_both_frameworks_share_the_shards() -> None:
    """A tensorflow trial costs several of PyTorch's, and the shards of a run hold both."""
    slow = plan([], [], fresh_cases("tensorflow", 3, 24), standing_settings("tensorflow"), PER_CASE["tensorflow"])
    trials = [*default_plan(), *slow]
    counts = [Counter(trial.case.framework for trial in shard(trials, i, 4)) for i in (1, 2, 3, 4)]
    assert all(15 <= count["tensorflow"] <= 30 for count in counts), counts


def test_a_shard_more_than_there_are_cases_is_empty() -> None:
    trials = plan([], [], FRESH[:2], STANDING, 3)
    assert [len(shard(trials, i, 3)) for i in (1, 2, 3)].count(0) == 1


@pytest.mark.parametrize(("index", "count"), [(0, 2), (3, 2), (1, 0)])
def test_there_is_no_such_shard(index: int, count: int) -> None:
    with pytest.raises(SpecError, match="I/N"):
        shard([], index, count)
