"""Mutants of seeds: valid, different, the same for the same seed, and reaching every kind of change."""

from pathlib import Path

import pytest

from d3bot.frameworks import features, obstacle, standing_settings
from d3bot.frameworks.layers import infer_shapes
from d3bot.generate.mutate import mutants
from d3bot.spec import FRAMEWORKS, Case, Framework, load_seed

both = pytest.mark.parametrize("framework", FRAMEWORKS)


def parents(framework: Framework) -> list[tuple[Case, float]]:
    seeds = Path(__file__).parents[2] / "seeds" / framework
    return [(load_seed(path).case, 1.0) for path in sorted(seeds.glob("*.toml"))]


@both
def test_mutants_are_new_valid_cases_that_settings_can_run(framework: Framework) -> None:
    found = mutants(parents(framework), 1, 60)
    assert len(found) == 60
    assert len({case.id for case in found} | {case.id for case, _ in parents(framework)}) == 60 + len(
        parents(framework)
    )
    for case in found:
        infer_shapes(case)
        assert sum(obstacle(case, setting) is None for setting in standing_settings(framework)) >= 3


@both
def test_mutants_depend_on_the_seed_alone(framework: Framework) -> None:
    assert (
        mutants(parents(framework), 4, 10) == mutants(parents(framework), 4, 10) != mutants(parents(framework), 5, 10)
    )


def test_energy_decides_who_has_offspring() -> None:
    first, second = parents("torch")[:2]
    found = mutants([(first[0], 1.0), (second[0], 0.0)], 2, 20)
    assert {case.inputs for case in found} == {first[0].inputs}


def test_a_few_dozen_mutants_hold_what_their_parents_had_not() -> None:
    plain = next(case for case, _ in parents("torch") if not case.freeze and not case.tie and not case.clip)
    words = frozenset[str]().union(*(features(case) for case in mutants([(plain, 1.0)], 3, 80)))
    assert {"late-freeze", "clip-norm", "clip-value", "nesterov", "adamw", "odd-size", "float32"} <= words


def test_no_parents_no_mutants() -> None:
    assert mutants([], 1, 5) == []
