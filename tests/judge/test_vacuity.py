"""A pass must be able to fail: which cases could not show a planted fault."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from d3bot.judge import floors
from d3bot.judge.compare import compare
from d3bot.judge.vacuity import vacuity
from d3bot.spec import Arrays

WEIGHT, BIAS = np.arange(1.0, 7).reshape(2, 3), np.array([0.5, -2.0])
PLAIN: Arrays = {
    "step 0 loss 0": np.array(2.0),
    "step 0 grad fc.weight": WEIGHT,
    "step 0 grad fc.bias": BIAS,
    "param fc.weight": WEIGHT + 1,
    "predict": np.arange(8.0).reshape(4, 2),
}
SHARE: Arrays = {name: array * 1.5 for name, array in PLAIN.items()}


def reason(shares: list[Arrays | None] | None = None, without: str = "nothing", **changed: np.ndarray) -> str:
    names = {"weight": "step 0 grad fc.weight", "bias": "step 0 grad fc.bias", "predict": "predict"}
    arrays = {name: array for name, array in PLAIN.items() if without not in name}
    arrays |= {names[name]: array for name, array in changed.items()}
    return vacuity(arrays, [SHARE] if shares is None else shares, floors(arrays, [])).reason


FINE = ""
TABLE: list[tuple[str, str, str]] = [
    ("a plain case", reason(), FINE),
    ("one tensor without a gradient", reason(bias=np.zeros(2)), FINE),
    ("no gradient at all", reason(weight=np.zeros((2, 3)), bias=np.zeros(2)), "every gradient is zero"),
    ("gradients of rounding", reason(weight=WEIGHT * 1e-30), FINE),
    ("equal gradients cannot show a shift", reason(weight=np.ones((2, 3)), bias=np.ones(2)), "every gradient rolled"),
    ("one element has no order", reason(without="grad", weight=np.ones((1, 1)), bias=np.ones(1)), FINE),
    ("parameters stand in for gradients", reason(without="grad"), FINE),
    ("the same prediction for every row", reason(predict=np.ones((4, 2))), "the predictions are the same for every"),
    ("the same prediction but for rounding", reason(predict=1 + 1e-16 * PLAIN["predict"]), "the predictions are"),
    ("one row does not tell", reason(predict=np.ones((1, 2))), FINE),
    ("a scalar prediction does not tell", reason(predict=np.array(1.0)), FINE),
    ("a share that gives the same", reason([PLAIN]), "training on a part of the rows gives the same"),
    ("a loss alone tells, where nothing is trained", reason([PLAIN | {"step 0 loss 0": np.array(9.0)}]), FINE),
    ("a share of another shape", reason([PLAIN | {"step 0 grad fc.bias": np.ones(3)}]), FINE),
    ("a share that could not be run", reason([None]), FINE),
    ("nothing", vacuity({}, [], {}).reason, "one process returned no array"),
]


@pytest.mark.parametrize(("found", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_reason(found: str, expected: str) -> None:
    assert found[: len(expected) or None] == expected


def test_noise_counts() -> None:
    noisy = PLAIN | {name: array + 1 for name, array in PLAIN.items() if "grad" in name}
    assert vacuity(PLAIN, [SHARE], floors(PLAIN, [])).blind == 0
    assert vacuity(PLAIN, [SHARE], floors(PLAIN, [noisy])).blind == 1, "the bias is below four times its noise"


@given(
    npst.arrays(np.float64, 6, elements=st.floats(-1e3, 1e3)),
    st.sampled_from(["zeroed", "halved", "rolled"]),
    st.floats(0, 1e3),
)
def test_what_is_not_called_vacuous_is_found_when_it_is_planted(gradient: np.ndarray, fault: str, noise: float) -> None:
    name = "step 0 grad w"
    arrays: Arrays = {name: gradient}
    floor = floors(arrays, [{name: gradient + noise}])
    planted = {"zeroed": gradient * 0, "halved": gradient / 2, "rolled": np.roll(gradient, 1)}[fault]
    (difference,) = compare(arrays, [{name: planted}], floor, lambda _: False)
    assert difference.wrong or vacuity(arrays, [], floor).reason
