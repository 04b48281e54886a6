"""What a wrong number means: each pattern is built numerically, and is told only where the numbers bear it out."""

import numpy as np
import pytest

from d3bot.judge.compare import compare
from d3bot.judge.diagnose import Diagnosis, diagnose
from d3bot.spec import Arrays

RNG = np.random.default_rng(0)
NAME, BEFORE = "step 1 grad fc.weight", "step 0 grad fc.weight"
GOOD = RNG.normal(size=(4, 3))
OLD = RNG.normal(size=(4, 3))
OTHER = RNG.normal(size=(4, 3))


def found(*held: np.ndarray | None, world: int = 2, parts: int = 2, want: np.ndarray = GOOD) -> Diagnosis:
    """Return the diagnosis of ranks that hold these gradients; None: the rank holds none."""
    reference: Arrays = {BEFORE: OLD, NAME: want}
    ranks = [{BEFORE: OLD} | ({} if array is None else {NAME: array}) for array in held]
    wrong = [item for item in compare(reference, ranks, {}, lambda name: True) if item.wrong]
    assert [item.name for item in wrong] == [NAME]
    return diagnose(wrong[0], reference, ranks, world, parts)


def replaced(index: object, by: object, of: np.ndarray = GOOD) -> np.ndarray:
    copy = of.copy()
    copy[index] = by  # type: ignore[index]
    return copy


def both(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return array, array


TABLE: list[tuple[str, Diagnosis, str, str]] = [
    ("zero", found(*both(np.zeros((4, 3)))), "zero", "all zero on every rank"),
    ("zero on one rank only", found(np.zeros((4, 3)), GOOD), "ranks-differ", "only rank 0 is wrong"),
    ("each rank its own", found(GOOD + OTHER, GOOD - OTHER), "not-reduced", "each rank holds its own; their mean is"),
    ("one rank is off", found(GOOD, GOOD + 1e-9), "ranks-differ", "differ by up to 1e-09; only rank 1 is wrong"),
    ("a rank holds none", found(None, GOOD, GOOD + 1e-9), "ranks-differ", "only rank 2 is wrong"),
    ("two of three", found(GOOD + OTHER, GOOD, GOOD + 2 * OTHER), "ranks-differ", "ranks 0, 2 are wrong"),
    ("all, each in its way", found(GOOD + OTHER, GOOD + OLD), "ranks-differ", "every rank is wrong"),
    ("summed", found(*both(GOOD * 2)), "scaled", "2 x the expected value, that is the world size"),
    ("averaged twice", found(*both(GOOD / 2)), "scaled", "0.5 x the expected value, that is 1 / world size"),
    ("summed twice", found(*both(GOOD * 4)), "scaled", "that is the world size squared"),
    ("of three ranks", found(*both(GOOD * 3), world=3, parts=4), "scaled", "that is the world size"),
    ("micro-batches", found(*both(GOOD * 4), world=3, parts=4), "scaled", "that is the number of parts"),
    ("no known factor", found(*both(GOOD * 1.7)), "scaled", "1.7 x the expected value (residual"),
    ("a sign", found(*both(-GOOD)), "scaled", "-1 x the expected value"),
    ("a little", found(*both(GOOD * (1 + 1e-9))), "scaled", "(1 +1e-09) x the expected value"),
    ("shifted", found(*both(np.roll(GOOD, 1, axis=0))), "permuted", "the expected numbers in other places"),
    ("transposed in storage", found(*both(GOOD.T.reshape(4, 3))), "permuted", "the expected numbers in other places"),
    ("stale", found(*both(OLD)), "stale", "equals the previous step's"),
    ("one element", found(*both(replaced((2, 1), 5.0))), "part", "1 of 12 elements are wrong, in row 2 of 4"),
    ("last rows", found(*both(replaced(slice(2, 4), 0.0))), "part", "6 of 12 elements are wrong, in rows 2, 3 of 4"),
    ("one column", found(*both(replaced((slice(None), 0), 0.0))), "part", "4 of 12 elements are wrong"),
    ("noise", found(*both(GOOD + OTHER)), "other", "no known pattern; 12 of 12 elements are wrong"),
    (
        "most of it",
        found(*both(replaced(slice(0, 3), OTHER[:3]))),
        "other",
        "no known pattern; 9 of 12 elements are wrong",
    ),
    ("a scalar", found(*both(np.array(2.0)), want=np.array(1.5)), "other", "1 of 1 elements are wrong"),
    ("missing", found(None, None), "missing", "no rank has it"),
    ("shape", found(*both(GOOD[:2])), "shape", "shape (2, 3) instead of (4, 3)"),
    ("dtype", found(GOOD, GOOD.astype(np.float32)), "dtype", "type float32, float64 instead of float64"),
    ("NaN", found(GOOD, replaced((0, 0), np.nan)), "nonfinite", "NaN or infinity where one process has finite"),
]


@pytest.mark.parametrize(("diagnosis", "kind", "text"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_pattern(diagnosis: Diagnosis, kind: str, text: str) -> None:
    assert diagnosis.kind == kind
    assert text in diagnosis.text


def test_unexpected() -> None:
    ranks = [{NAME: GOOD}]
    (wrong,) = compare({}, ranks, {}, lambda name: True)
    assert diagnose(wrong, {}, ranks, 2, 2).kind == "unexpected"


@pytest.mark.parametrize(
    "array",
    [
        GOOD * 2 + 1e-3 * OTHER,
        np.roll(GOOD, 1, axis=0) + 1e-3 * OTHER,
        OLD + 1e-3 * OTHER,
        1e-3 * OTHER,
    ],
    ids=["nearly doubled", "nearly shifted", "nearly stale", "nearly zero"],
)
def test_a_pattern_that_is_only_near_is_not_told(array: np.ndarray) -> None:
    assert found(array, array).kind == "other"


def test_ranks_that_differ_around_another_mean_are_not_called_unreduced() -> None:
    assert found(GOOD + OTHER, GOOD - 1.001 * OTHER).kind == "ranks-differ"
