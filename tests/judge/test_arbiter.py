"""float64 as the arbiter: rounding shrinks with the unit in the last place, a bug does not."""

import pytest

from d3bot.judge import Difference, beyond_rounding, is_rounding
from d3bot.judge.compare import Wrong
from d3bot.spec import parse_name


def difference(error: float, scale: float = 1.0, wrong: Wrong = "", bound: float = 1e-9) -> Difference:
    return Difference("predict", parse_name("predict"), error, bound, scale, wrong)


@pytest.mark.parametrize(
    ("low", "double", "rounding"),
    [
        # The same relative error in float64: a bug.
        (difference(1e-3, wrong="value"), difference(1e-3, wrong="value"), False),
        # Smaller by the ratio of the rounding units (5.4e8), within a slack of 64: rounding.
        (difference(1e-5, wrong="value"), difference(1e-14), True),
        (difference(3e-4, wrong="value"), difference(1e-14), True),
        (difference(4e-4, wrong="value"), difference(1e-14), False),
        # Bit-equal in float64: one rounding is granted.
        (difference(1e-6, wrong="value"), difference(0.0), True),
        (difference(7e-6, wrong="value"), difference(0.0), True),
        (difference(1e-5, wrong="value"), difference(0.0), False),
        # The size is relative to each array's own scale.
        (difference(1e-3, scale=1e3, wrong="value"), difference(1e-14), True),
        (difference(1e-6, scale=1e-3, wrong="value"), difference(0.0, scale=1e-3), False),
        # Nothing to say: no float64 run, float64 itself wrong, another kind of wrong, no scale.
        (difference(1e-6, wrong="value"), None, False),
        (difference(1e-6, wrong="value"), difference(1e-14, wrong="value"), False),
        (difference(1e-6, wrong="value"), difference(float("inf"), wrong="nonfinite"), False),
        (difference(1e-6, wrong="missing"), difference(0.0), False),
        (difference(float("inf"), wrong="nonfinite"), difference(0.0), False),
        (difference(1e-6, scale=0.0, wrong="value"), difference(0.0), False),
    ],
)
def test_d11_what_float64_shows_no_more_is_rounding_and_what_it_shows_is_a_bug(
    low: Difference, double: Difference | None, rounding: bool
) -> None:
    assert is_rounding(low, double) == rounding


@pytest.mark.parametrize(
    ("name", "linear", "error", "beyond"),
    [
        ("step 0 grad w", False, 1e-5, True),
        ("step 0 grad w", False, 1e-6, False),
        ("step 0 loss 0", False, 1e-5, True),
        ("step 1 loss 0", False, 1e-5, False),
        ("step 1 loss 0", True, 1e-5, True),
        ("param w", False, 1.0, False),
        ("param w", True, 1.0, True),
        ("param w", True, 6.4e-6, False),
    ],
)
def test_what_float64_need_not_be_asked(name: str, linear: bool, error: float, beyond: bool) -> None:
    low = Difference(name, parse_name(name), error, 1e-9, 1.0, "value")
    assert beyond_rounding(low, linear) == beyond
    if beyond:
        within = Difference(name, parse_name(name), 1e-9 * 2**-29, 1e-9 * 2**-29, 1.0)
        assert not is_rounding(low, within), "whatever float64 says within the bound that goes with its unit"
