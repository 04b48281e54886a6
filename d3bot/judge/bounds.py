"""The noise bound: how far each tensor of a healthy run may lie from the reference.

A bound is K times the tensor's own floor, and the floor is what this case's own arithmetic moves when its sums are
reordered and its parameters and inputs are moved by one unit in the last place (TTrace's idea, arXiv 2506.09280).
"""

from collections.abc import Sequence

import numpy as np

from d3bot.spec import Arrays, parse_name

K = 4.0
"""Measured: 2.0 was the largest multiple ever needed over 119 models x 4 optimizers x 2 dtypes; twice that is kept."""


def floors(reference: Arrays, noise: Sequence[Arrays], rounding: float = 0.0) -> dict[str, float]:
    """Return array name -> largest |difference| among the noise re-runs, never below one rounding of its scale.

    The scale of an array is its largest element; of a gradient at least the largest gradient element of its step,
    because a gradient that is zero by structure is computed from terms of that size.  `rounding` is the relative
    rounding unit of a lower type that the numbers pass through on their way, 0 if they keep their own.
    """
    step_scale: dict[int, float] = {}
    for name, array in reference.items():
        parsed = parse_name(name)
        if parsed.role == "grad":
            step_scale[parsed.step] = max(step_scale.get(parsed.step, 0.0), _largest(array))
    result = {}
    for name, array in reference.items():
        parsed = parse_name(name)
        scale = _largest(array)
        if parsed.role == "grad":
            scale = max(scale, step_scale[parsed.step])
        seen = [_deviation(array, run[name]) for run in noise if name in run]
        result[name] = max([max(epsilon(array), rounding) * scale, *seen])
    return result


def epsilon(array: np.ndarray) -> float:
    """Return the rounding unit of the array's type; 0 for integers, which do not round."""
    return float(np.finfo(array.dtype).eps) if np.issubdtype(array.dtype, np.floating) else 0.0


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0)) if np.issubdtype(array.dtype, np.floating) else 0.0


def _deviation(array: np.ndarray, other: np.ndarray) -> float:
    if array.shape != other.shape:
        return 0.0
    difference = float(np.abs(array.astype(np.float64) - other).max(initial=0))
    return difference if np.isfinite(difference) else 0.0
