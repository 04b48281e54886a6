"""Settings against each other: who is wrong in the same way."""

import numpy as np
import pytest

from d3bot.judge import clusters
from d3bot.spec import Arrays

FLOOR = {"step 0 grad w": 1e-12, "param w": 1e-12}
ONE: Arrays = {"step 0 grad w": np.arange(3.0), "param w": np.ones(3)}
NEAR: Arrays = {"step 0 grad w": np.arange(3.0) + 3e-12, "param w": np.ones(3)}
OTHER: Arrays = {"step 0 grad w": np.arange(3.0) * 2, "param w": np.ones(3)}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({}, []),
        ({"a": ONE}, [("a",)]),
        ({"a": ONE, "b": NEAR, "c": OTHER}, [("a", "b"), ("c",)]),
        ({"a": OTHER, "b": NEAR, "c": ONE}, [("b", "c"), ("a",)]),
        ({"a": ONE, "b": {"param w": np.ones(3)}}, [("a", "b")]),
        ({"a": ONE, "b": {"param v": np.ones(3)}}, [("a",), ("b",)]),
        ({"a": ONE, "b": {"param w": np.ones(2)}}, [("a",), ("b",)]),
        ({"a": ONE, "b": {"param w": np.full(3, np.nan)}}, [("a",), ("b",)]),
        ({"a": {"param w": np.full(3, np.nan)}, "b": {"param w": np.full(3, np.nan)}}, [("a",), ("b",)]),
    ],
)
def test_groups(results: dict[str, Arrays], expected: list[tuple[str, ...]]) -> None:
    assert clusters(results, FLOOR) == expected
