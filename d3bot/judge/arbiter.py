"""float64 as the arbiter of low precision: rounding shrinks with the unit in the last place, a bug does not."""

import numpy as np

from d3bot.judge.compare import Difference

_RATIO = float(np.finfo(np.float32).eps / np.finfo(np.float64).eps)
_SLACK = 64.0
_BEYOND = 100 * _SLACK
"""So many bounds are beyond rounding: within its own bound, float64 allows an error of the slack times the bound."""


def beyond_rounding(low: Difference, linear: bool) -> bool:
    """Return whether a float32 divergence is so large that float64 need not be asked (see `is_rounding`).

    `linear` says that updates are in proportion to gradients.  Otherwise only what comes before the first update is
    told: an optimizer that divides by the gradient's size makes a step of any rounding.
    """
    early = low.parsed.step == 0 and low.parsed.role in ("loss", "grad")
    return low.wrong == "value" and (linear or early) and low.error > _BEYOND * low.bound


def is_rounding(low: Difference, double: Difference | None) -> bool:
    """Return whether a float32 divergence is only rounding.

    `double` is the same array of the same trial in float64.  The relative float32 error must be no more than the
    relative float64 error (or, if that is zero, one rounding) times the ratio of the two rounding units, with a slack
    of 64 for the different path that rounding takes; and float64 must be within its own bound.
    """
    if double is None or double.wrong or low.wrong != "value" or not low.scale:
        return False
    relative = max(double.error / double.scale if double.scale else 0.0, float(np.finfo(np.float64).eps))
    return low.error / low.scale <= _SLACK * _RATIO * relative
