"""Coverage by pairs: what a pair is, which exist, and how a run chooses what is not covered yet."""

import tomllib
from collections import Counter
from typing import Any

import pytest

from d3bot.frameworks import families, features, matches, obstacle, standing_settings
from d3bot.generate import drawn_settings, explored, fresh_cases, grid
from d3bot.generate.costs import NO_COSTS
from d3bot.generate.coverage import NEVER, Pairs, known_pairs, option_words, pairs_of, words_of
from d3bot.generate.pairs import FILE, surveyed
from d3bot.generate.risky import RISKY, is_triple, parts, together
from d3bot.generate.survey import dump_pairs, survey
from d3bot.spec import FRAMEWORKS, Costs, Framework, Setting, Trial

both = pytest.mark.parametrize("framework", FRAMEWORKS)
CASES = fresh_cases("torch", 3, 24)
LITTLE: dict[str, Any] = {"settings": grid("torch"), "ages": {}, "per_case": 2}


def covered(trials: list[Trial]) -> set[tuple[str, str]]:
    runs = [trial for trial in trials if obstacle(trial.case, trial.setting) is None]
    return {pair for trial in runs for pair in pairs_of(trial.case, trial.setting)}


def test_the_options_of_a_setting_have_their_defaults_among_them() -> None:
    words = option_words("torch", Setting.parse("fsdp2(world=3, wrap=root)"))
    assert {"fsdp2:world=3", "fsdp2:wrap=root", "fsdp2:reshard_after_forward=true"} <= words


def test_a_pair_is_a_feature_and_an_option() -> None:
    setting = Setting.parse("ddp(world=2)")
    pairs = [pair for pair in pairs_of(CASES[0], setting) if not is_triple(pair)]
    assert {word for word, _ in pairs} == features(CASES[0])
    assert {option for _, option in pairs} == option_words("torch", setting)


def test_a_triple_is_two_risky_features_and_an_option() -> None:
    assert together("torch", {"tied", "linear", "frozen", "clip-norm"}) == {
        "clip-norm+tied",
        "clip-norm+frozen",
        "frozen+tied",
    }
    assert together("torch", {"tied", "linear"}) == frozenset()
    for case in CASES:
        for word in words_of(case) - features(case):
            assert set(parts(word)) <= set(RISKY["torch"]) & features(case)
            assert is_triple((word, "ddp:world=2"))


@both
def test_every_two_risky_features_are_accounted_for(framework: Framework) -> None:
    """Each combination meets every option, or is excluded with a reason, or is listed as never in one case."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))[framework]
    assert {*table["together"], *table["never_together"]} == together(framework, RISKY[framework])
    assert set(RISKY[framework]) <= set(table["features"])
    known = known_pairs(framework)
    for word in table["together"]:
        for option in table["options"]:
            assert ((word, option) in known.reachable) != ((word, option) in known.excluded)
            if any((part, option) in known.excluded for part in parts(word)):
                assert known.excluded[word, option]


@both
def test_the_grid_holds_every_standing_setting_and_every_value_that_is_drawn(framework: Framework) -> None:
    settings = grid(framework)
    assert set(standing_settings(framework)) <= set(settings)
    held = {word for setting in settings for word in option_words(framework, setting)}
    for setting in drawn_settings(framework, 1, 200):
        assert option_words(framework, setting) <= held, setting


@both
def test_drawn_settings_depend_on_the_seed_alone(framework: Framework) -> None:
    assert drawn_settings(framework, 5, 30) == drawn_settings(framework, 5, 30) != drawn_settings(framework, 6, 30)


@both
def test_the_committed_list_of_pairs_is_the_one_that_the_contracts_give(framework: Framework) -> None:
    """After a change to layers, features, settings or contracts: `make pairs`, and look at what it changed."""
    assert FILE.read_text(encoding="utf-8") == dump_pairs(surveyed())
    assert known_pairs(framework) == surveyed()[framework]


def test_every_excluded_pair_has_a_reason() -> None:
    found = survey("torch", CASES)
    assert found.excluded["late-freeze", "ddp:world=2"] == "parameters must not change after DDP has wrapped them"
    assert all(found.excluded.values())
    assert not found.reachable & found.excluded.keys()


def test_a_list_of_pairs_is_read_back_as_it_was_written() -> None:
    pairs = Pairs(frozenset({("tied", "ddp:world=2")}), {("tied", "tp:world=2"): 'a "quoted" \\ reason'})
    table = tomllib.loads(dump_pairs({"torch": pairs, "tensorflow": Pairs(frozenset(), {})}))["torch"]
    assert {name: table[name] for name in ("features", "together", "options", "excluded")} == {
        "features": ["tied"],
        "together": [],
        "options": ["ddp:world=2", "tp:world=2"],
        "excluded": {"tp:world=2": {"tied": 'a "quoted" \\ reason'}},
    }


def test_exploring_covers_more_than_the_same_number_of_standing_trials() -> None:
    standing = [Trial(case=case, setting=Setting.parse("ddp(world=2)")) for case in CASES]
    trials = explored(standing, CASES, **LITTLE)
    assert len(trials) == 3 * len(CASES)
    assert len(covered(trials)) > 3 * len(covered(standing))


def test_exploring_keeps_what_was_planned_and_groups_trials_by_case() -> None:
    standing = [Trial(case=case, setting=Setting.parse("ddp(world=2)")) for case in CASES]
    trials = explored(standing, CASES, **LITTLE)
    assert [trial for trial in trials if trial in standing] == standing
    order = [trial.case.id for trial in trials]
    assert order == sorted(order, key=[case.id for case in CASES].index)


def test_what_no_run_has_had_for_long_comes_first() -> None:
    """With everything seen last night but one option, that option is what a night tries."""
    ages = {pair: 1 for pair in known_pairs("torch").reachable if not pair[1].startswith("zero1:")}
    trials = explored([], CASES[:1], grid("torch"), ages, 1)
    assert [trial.setting.family for trial in trials] == ["zero1"]
    assert NEVER > 1


def test_what_earlier_runs_found_dear_is_tried_less() -> None:
    """With what each family is said to cost, and with a run in which FSDP2 took a minute a trial."""
    slow = Costs(run="r1", seconds={"torch": {f"{family} 2": 0.2 for family in families("torch")} | {"fsdp2 2": 60.0}})
    usual, wary = (
        Counter(trial.setting.family for trial in explored([], CASES[:8], **LITTLE, costs=costs))
        for costs in (NO_COSTS, slow)
    )
    assert usual["fsdp2"] > wary["fsdp2"] == 0
    assert sum(usual.values()) == sum(wary.values())


def test_nothing_is_tried_only_because_there_is_room() -> None:
    once = explored([], CASES[:1], grid("torch"), {}, 500)
    assert len(covered(once)) == len(covered(explored(once, CASES[:1], grid("torch"), {}, 500)))
    assert len(once) < len(grid("torch"))


@pytest.mark.parametrize(
    ("text", "globs", "held"),
    [
        ("ddp(world=2)", (), True),
        ("ddp(world=2)", ("ddp",), True),
        ("ddp(world=2)", ("ddp(world=2)",), True),
        ("ddp(world=3)", ("ddp(world=2)",), False),
        ("fsdp2(world=2, wrap=root)", ("fsdp2*",), True),
        ("fsdp2(world=2)", ("ddp", "tp"), False),
    ],
)
def test_a_glob_names_a_family_or_a_one_line_form(text: str, globs: tuple[str, ...], held: bool) -> None:
    assert matches(Setting.parse(text), globs) is held
