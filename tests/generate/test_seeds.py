"""The seeds in the repository: each says where its kind of trigger was reported, and runs under three settings."""

import re
from pathlib import Path

import pytest

from d3bot.frameworks import canonical_setting, features, obstacle, render, standing_settings
from d3bot.spec import Seed, load_seed

PATHS = sorted((Path(__file__).parents[2] / "seeds" / "torch").glob("*.toml"))
SEEDS = [load_seed(path) for path in PATHS]
each = pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)


@each
def test_it_names_the_public_report_whose_kind_of_trigger_it_carries(seed: Seed) -> None:
    assert re.search(r"[\w.-]+/[\w.-]+#\d+", seed.comment)


@each
def test_its_own_settings_apply(seed: Seed) -> None:
    assert seed.settings
    for setting in seed.settings:
        assert obstacle(seed.case, canonical_setting(seed.case.framework, setting)) is None


@each
def test_three_standing_settings_apply(seed: Seed) -> None:
    assert sum(obstacle(seed.case, setting) is None for setting in standing_settings(seed.case.framework)) >= 3


@each
def test_it_renders_to_a_script_under_each_of_its_settings(seed: Seed) -> None:
    for setting in seed.settings:
        compile(render(seed.case, setting, "doc").text, seed.name, "exec")


def test_together_they_hold_every_kind_of_trigger() -> None:
    found = frozenset().union(*(features(seed.case) for seed in SEEDS))
    wanted = {"tied", "frozen", "late-freeze", "clip-norm", "clip-value", "odd-linear", "odd-size", "uneven-batch"}
    wanted |= {
        "batch-norm",
        "lstm",
        "attention",
        "skip",
        "branch",
        "gate",
        "layer-norm",
        "conv1d",
        "conv2d",
        "schedule",
    }
    wanted |= {"adam", "adamw", "momentum", "nesterov", "several-inputs", "float32"}
    assert wanted <= found


def test_clipping_by_norm_is_within_reach_of_tensor_parallelism() -> None:
    tp = canonical_setting("torch", next(s for s in standing_settings("torch") if s.family == "tp"))
    assert any("clip-norm" in features(seed.case) and obstacle(seed.case, tp) is None for seed in SEEDS)


def test_no_two_seeds_are_one_case() -> None:
    assert len({seed.case.id for seed in SEEDS}) == len(SEEDS)
