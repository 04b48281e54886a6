"""Which cases have offspring, and what a further round of a run by minutes holds."""

from pathlib import Path

from d3bot.config import Config
from d3bot.flow.planning import energies, more_trials, plan_trials, touched_settings
from d3bot.frameworks import obstacle
from d3bot.generate import fresh_cases
from d3bot.generate.costs import NO_COSTS
from d3bot.spec import Setting, Trial
from tests.findings.samples import BUILD, verdict

CASES = fresh_cases("torch", 1, 4)
SETTING = Setting.parse("ddp(world=2)")
SEEDS = Path(__file__).parents[2] / "seeds"


def trial(index, origin="fresh"):
    return Trial(case=CASES[index], setting=SETTING, origin=origin)


def judged(trials, **keys):
    failing = {name: verdict("diverged", "any", key=key) for name, key in keys.items()}
    return {each.id: failing.get(f"c{i}", verdict("pass", "any")) for i, each in enumerate(trials)}


def test_a_seed_has_offspring_and_a_passing_fresh_case_has_none():
    trials = [trial(0, "seed"), trial(1)]
    assert energies(trials, judged(trials)) == [(CASES[0], 1.0)]


def test_cases_that_fail_under_one_key_share_its_energy():
    trials = [trial(0), trial(1), trial(2)]
    found = {case.id: weight for case, weight in energies(trials, judged(trials, c0="k1", c1="k1", c2="k2"))}
    assert found == {CASES[0].id: 1.5, CASES[1].id: 1.5, CASES[2].id: 3.0}


def test_a_further_round_holds_fresh_cases_and_mutants_and_no_trial_twice():
    config = Config(builds=("torch==2.13.0",), minutes=1.0, seeds=SEEDS, settings=("ddp",))
    planned = plan_trials(config, [BUILD], None, 7, NO_COSTS)
    more = more_trials(config, [BUILD], None, planned, {}, 7, NO_COSTS)
    assert {each.origin for each in more} == {"fresh", "mutant"}
    assert not {each.id for each in planned} & {each.id for each in more}
    assert more == more_trials(config, [BUILD], None, planned, {}, 7, NO_COSTS)
    third = more_trials(config, [BUILD], None, [*planned, *more], {}, 7, NO_COSTS)
    assert not {each.case.id for each in more if each.origin == "fresh"} & {each.case.id for each in third}


def test_a_seed_whose_family_the_build_has_no_package_for_gets_other_settings():
    config = Config(builds=("torch==2.13.0",), fresh=0, seeds=SEEDS)
    bags = [each for each in plan_trials(config, [BUILD], None, 7, NO_COSTS) if each.seed == "bags-of-tokens"]
    runs = [each for each in bags if obstacle(each.case, each.setting) is None]
    assert "torchrec" not in {each.setting.family for each in runs}
    assert len(runs) >= 3
    whole = BUILD.model_copy(update={"packages": {**BUILD.packages, "torchrec": "1.8.0"}})
    assert "torchrec" in {each.setting.family for each in plan_trials(config, [whole], None, 7, NO_COSTS)}


FULLY_SHARD = "torch/distributed/fsdp/_fully_shard/_fsdp_param.py"


def test_d8_what_a_change_touches_comes_first_on_cases_of_its_own_and_nothing_else_is_dropped():
    config = Config(builds=("torch==2.13.0",), fresh=4, seeds=SEEDS)
    everything = plan_trials(config, [BUILD], None, 7, NO_COSTS)
    assert plan_trials(config, [BUILD], None, 7, NO_COSTS, ["README.md", "torch/nn/modules/linear.py"]) == everything
    trials = plan_trials(config, [BUILD], None, 7, NO_COSTS, [FULLY_SHARD])
    first = trials[: len(trials) - len(everything)]
    assert trials[len(first) :] == everything
    assert {each.setting.family for each in first} >= {"fsdp2", "hsdp", "fsdp2_tp"}
    assert all(each.setting.family.startswith(("fsdp2", "hsdp", "pp_fsdp2")) for each in first)
    assert len({each.case.id for each in first}) == config.fresh
    assert {each.case.id for each in first}.isdisjoint(each.case.id for each in everything)


def test_d8_a_change_gives_more_only_where_the_globs_allow_and_the_build_has_the_package():
    assert {each.family for each in touched_settings(BUILD, [FULLY_SHARD], ["fsdp2*"])} == {"fsdp2", "fsdp2_tp"}
    assert touched_settings(BUILD, [FULLY_SHARD], ["ddp"]) == []
    assert touched_settings(BUILD, ["torchrec/distributed/embedding.py"], []) == []
