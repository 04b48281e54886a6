"""Array by array: what counts as wrong, how large the floor is, and what comes first."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from d3bot.judge import floors, judge
from d3bot.judge.bounds import K
from d3bot.judge.compare import Wrong, compare
from d3bot.spec import Arrays, Observation, RankObservation

EPS = float(np.finfo(np.float64).eps)
EPS32 = float(np.finfo(np.float32).eps)
ONE: Arrays = {"predict": np.array([1.0, -4.0])}


def wrong(reference: Arrays, *ranks: Arrays, floor: Mapping[str, float] | None = None) -> dict[str, Wrong]:
    found = compare(reference, ranks, floor or dict.fromkeys(reference, 0.0), lambda name: floor is None)
    return {item.name: item.wrong for item in found}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([{"predict": np.array([1.0, -4.0])}], ""),
        ([{"predict": np.array([1.0, -4.0])}, {}], ""),
        ([{"predict": np.array([1.0, np.nextafter(-4.0, 0)])}], "value"),
        ([{"predict": np.array([1.0, -4.0])}, {"predict": np.array([1.0, 4.0])}], "value"),
        ([{}, {}], "missing"),
        ([{"predict": np.array([[1.0, -4.0]])}], "shape"),
        ([{"predict": np.array([1.0])}], "shape"),
        ([{"predict": np.array([1.0, -4.0], np.float32)}], "dtype"),
        ([{"predict": np.array([1.0, np.nan])}], "nonfinite"),
        ([{"predict": np.array([1.0, -4.0])}, {"predict": np.array([np.inf, -4.0])}], "nonfinite"),
    ],
)
def test_wrong(held: list[Arrays], expected: Wrong) -> None:
    assert wrong(ONE, *held) == {"predict": expected}


def test_what_the_reference_has_not_is_unexpected() -> None:
    assert wrong(ONE, ONE | {"param w": np.zeros(0)}) == {"predict": "", "param w": "unexpected"}


@pytest.mark.parametrize(
    ("array", "other"),
    [(np.zeros((0, 3)), np.zeros((0, 3))), (np.array(7), np.array(7)), (np.array([True]), np.array([True]))],
)
def test_empty_scalar_and_integer_arrays_compare(array: np.ndarray, other: np.ndarray) -> None:
    assert wrong({"predict": array}, {"predict": other}) == {"predict": ""}


@pytest.mark.parametrize(("error", "expected"), [(K * 1e-9, ""), (K * 1e-9 * 1.01, "value")])
def test_the_bound_is_k_times_the_floor(error: float, expected: Wrong) -> None:
    held = {"predict": np.array([1.0, 0.0])}
    assert wrong({"predict": np.array([1.0, error])}, held, floor={"predict": 1e-9}) == {"predict": expected}


def test_the_earliest_comes_first() -> None:
    order = [
        "step 0 loss 0",
        "step 0 loss 1",
        "step 0 grad a",
        "step 0 grad b",
        "step 0 norm",
        "step 0 metric mae",
        "step 1 loss 0",
        "step 1 grad a",
        "step 10 loss 0",
        "param a",
        "buffer a 1",
        "predict",
    ]
    arrays = {name: np.ones(1) for name in reversed(order)}
    assert list(wrong(arrays, arrays)) == order


@pytest.mark.parametrize(
    ("reference", "noise", "floor"),
    [
        ({"predict": np.array([1.0, -4.0])}, [], 4 * EPS),
        ({"predict": np.array([1.0, -4.0], np.float32)}, [], 4 * EPS32),
        ({"predict": np.array([3])}, [], 0.0),
        ({"predict": np.zeros(2)}, [], 0.0),
        ({"predict": np.zeros(0)}, [], 0.0),
        ({"predict": np.array([1.0])}, [{"predict": np.array([1.5])}, {"predict": np.array([0.75])}], 0.5),
        ({"predict": np.array([1.0])}, [{"predict": np.array([np.nan])}], EPS),
        ({"predict": np.array([1.0])}, [{"predict": np.array([1.0, 2.0])}, {}], EPS),
    ],
)
def test_floor(reference: Arrays, noise: list[Arrays], floor: float) -> None:
    assert floors(reference, noise) == {"predict": floor}


@pytest.mark.parametrize(("array", "floor"), [([4.0], 4 * 2.0**-7), ([0.0], 0.0)])
def test_a_lower_type_on_the_way_raises_the_floor(array: list[float], floor: float) -> None:
    assert floors({"predict": np.array(array)}, [], rounding=2.0**-7) == {"predict": floor}
    assert floors({"metric best": np.array([3])}, [], rounding=2.0**-7) == {"metric best": 0.0}


def test_a_gradient_is_measured_on_the_scale_of_its_step() -> None:
    """One that is zero by structure (an attention's key bias) is a sum of terms of that size."""
    reference = {
        "step 0 grad a": np.array([8.0]),
        "step 0 grad key_bias": np.array([1e-19]),
        "step 1 grad key_bias": np.array([1e-19]),
        "param key_bias": np.array([1e-19]),
    }
    found = floors(reference, [])
    assert found["step 0 grad key_bias"] == 8 * EPS
    assert found["step 1 grad key_bias"] == 1e-19 * EPS
    assert found["param key_bias"] == 1e-19 * EPS


def _gradients(dtype: type[np.floating]) -> st.SearchStrategy[np.ndarray]:
    width = np.finfo(dtype).bits
    number = st.floats(2.0**-60, 2.0**60, width=width) | st.floats(-(2.0**60), -(2.0**-60), width=width)
    return npst.arrays(dtype, npst.array_shapes(max_dims=3, max_side=4), elements=number)


@settings(deadline=None)
@given(data=st.data(), low=st.booleans(), rank=st.integers(0, 1))
def test_a_gradient_scaled_by_the_smallest_factor_is_always_seen(data: st.DataObject, low: bool, rank: int) -> None:
    """In an exact class: 1 + 1e-9 in float64, 1 + 1e-7 (one unit in the last place) in float32, on any one rank."""
    dtype, factor = (np.float32, np.float32(1 + 1e-7)) if low else (np.float64, np.float64(1 + 1e-9))
    good: Arrays = {
        f"step {step} grad {name}": data.draw(_gradients(dtype)) for step in range(2) for name in ("a", "b")
    }
    name = data.draw(st.sampled_from(sorted(good)))
    ranks = [good, good]
    ranks[rank] = good | {name: good[name] * factor}
    found = judge(
        Observation((RankObservation(0, arrays=good),)),
        Observation(tuple(RankObservation(0, arrays=arrays) for arrays in ranks)),
        lambda array: True,
        2,
        2,
        (),
    )
    assert found.kind == "diverged"
    assert found.first is not None
    assert f"step {found.first.step} grad {found.first.tensor}" == name
