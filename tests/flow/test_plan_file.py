"""plan.json: the trials of a run read back as they were planned, or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d3bot.flow.plan_file import PLAN, load_costs, load_plan, write_plan
from d3bot.frameworks import standing_settings
from d3bot.generate import fresh_cases
from d3bot.generate.costs import NO_COSTS
from d3bot.spec import Costs, Origin, SpecError, Trial

CASES = fresh_cases("torch", 1, 8)
ORIGINS: tuple[Origin, ...] = ("seed", "fresh", "previous")
TRIALS = st.builds(
    Trial,
    case=st.sampled_from(CASES),
    setting=st.sampled_from(standing_settings("torch")),
    origin=st.sampled_from(ORIGINS),
    seed=st.sampled_from(["", "tied-embedding"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(trials=st.lists(TRIALS, max_size=8))
def test_round_trip(tmp_path: Path, trials: list[Trial]) -> None:
    write_plan(tmp_path, trials, NO_COSTS)
    again = load_plan(tmp_path)
    assert again == trials
    assert [trial.id for trial in again] == [trial.id for trial in trials]
    assert [path.name for path in tmp_path.iterdir()] == [PLAN], "no half-written file stays beside it"


def test_a_plan_says_by_which_costs_it_was_chosen(tmp_path: Path) -> None:
    costs = Costs(run="r1", seconds={"torch": {"ddp 2": 0.21}})
    write_plan(tmp_path, [], costs)
    assert load_costs(tmp_path) == costs
    data = json.loads((tmp_path / PLAN).read_text())
    del data["costs"]  # as a version before wrote it
    (tmp_path / PLAN).write_text(json.dumps(data))
    assert load_costs(tmp_path) == NO_COSTS


def test_a_case_is_written_once(tmp_path: Path) -> None:
    trials = [Trial(case=CASES[0], setting=setting) for setting in standing_settings("torch")]
    write_plan(tmp_path, trials, NO_COSTS)
    assert list(json.loads((tmp_path / PLAN).read_text())["cases"]) == [CASES[0].id]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 99}, "schema 99 is newer"),
        ({"schema": "1"}, "has no schema number"),
        ({"cases": {}}, "names the case"),
        ({"cases": {CASES[0].id: {"framework": "torch"}}}, "not a plan of this version"),
        ({"trials": [{"case": CASES[0].id, "setting": "ddp(", "origin": "seed"}]}, "not a plan of this version"),
        ({"trials": [{"case": CASES[0].id, "setting": "ddp", "origin": "rumour"}]}, "not a plan of this version"),
        ({"extra\n": 1}, "not a plan of this version"),
    ],
)
def test_a_garbled_plan_is_refused_on_one_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    write_plan(tmp_path, [Trial(case=CASES[0], setting=standing_settings("torch")[0])], NO_COSTS)
    path = tmp_path / PLAN
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SpecError) as caught:
        load_plan(tmp_path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(SpecError):
        load_plan(tmp_path)


def test_a_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_plan(tmp_path)
