"""The words in which a script names what it saw, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.spec import AFTER, ROLES, Observation, RankObservation, parse_name


@pytest.mark.parametrize(
    ("name", "step", "role", "tensor"),
    [
        ("step 0 loss 1", 0, "loss", "1"),
        ("step 12 grad fc.weight", 12, "grad", "fc.weight"),
        ("step 2 rows", 2, "rows", ""),
        ("step 0 norm", 0, "norm", ""),
        ("step 0 metric accuracy", 0, "metric", "accuracy"),
        ("step 0 param dense_1/kernel", 0, "param", "dense_1/kernel"),
        ("param 0.weight", AFTER, "param", "0.weight"),
        ("buffer norm.running_mean 1", AFTER, "buffer", "norm.running_mean 1"),
        ("predict", AFTER, "predict", ""),
        ("predict 1", AFTER, "predict", "1"),
    ],
)
def test_name(name: str, step: int, role: str, tensor: str) -> None:
    parsed = parse_name(name)
    assert (parsed.step, parsed.role, parsed.tensor) == (step, role, tensor)
    assert ROLES[parsed.order] == role
    assert parsed.step <= AFTER


def test_the_earliest_array_is_what_is_computed_first_and_what_is_derived_from_it_comes_last() -> None:
    names = [
        *("step 0 loss 0", "step 0 grad fc.weight", "step 0 norm", "step 0 param fc.weight", "step 0 metric mae"),
        *("step 1 loss 0", "param fc.weight", "buffer norm.running_mean", "metric best", "predict"),
    ]
    assert sorted({*names}, key=parse_name) == names


@pytest.mark.parametrize(
    "name",
    [
        "",
        "weights",
        "Step 0 grad a",
        "step grad a",
        "step -1 grad a",
        "step 9999999 grad a",
        "step \u0661 grad a",
        "step 0 grad a b",
        "step 0 grad a 1 2",
        "step 0  grad a",
        "predict\n",
        "predict 1\n",
        "param a\nparam b",
        " predict",
        "predict ",
    ],
)
def test_a_name_that_no_judge_knows(name: str) -> None:
    with pytest.raises(ValueError, match="not of the documented form") as caught:
        parse_name(name)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 99_999), st.sampled_from(ROLES), st.from_regex(r"[a-z0-9_.]{1,20}( [0-9]{1,3})?", fullmatch=True))
def test_what_a_script_writes_is_read_back(step: int, role: str, tensor: str) -> None:
    parsed = parse_name(f"step {step} {role} {tensor}")
    assert f"step {parsed.step} {parsed.role} {parsed.tensor}" == f"step {step} {role} {tensor}"


@pytest.mark.parametrize(
    ("ranks", "ok"),
    [
        ((RankObservation(0, arrays={}),), True),
        ((RankObservation(0, arrays={}), RankObservation(0)), False),
        ((RankObservation(0, arrays={}), RankObservation(1, arrays={})), False),
        ((RankObservation(-9, why="peer"),), False),
    ],
)
def test_an_observation_is_whole_only_if_every_rank_returned(ranks: tuple[RankObservation, ...], ok: bool) -> None:
    assert Observation(ranks).ok == ok
