"""Settings against each other: which of those that are wrong are wrong in the same way."""

from collections.abc import Mapping

import numpy as np

from d3bot.judge.bounds import K
from d3bot.spec import Arrays


def clusters(results: Mapping[str, Arrays], floor: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return the settings in groups that agree with each other, the largest first.

    `results` are what settings with one reference returned, `floor` is that reference's noise.  Two results agree if
    each array that both have is within its noise bound of the other's, and at least one is.
    """
    groups: list[list[str]] = []
    for setting in sorted(results):
        for group in groups:
            if _agree(results[group[0]], results[setting], floor):
                group.append(setting)
                break
        else:
            groups.append([setting])
    return [tuple(group) for group in sorted(groups, key=lambda group: (-len(group), group))]


def _agree(one: Arrays, other: Arrays, floor: Mapping[str, float]) -> bool:
    names = [name for name in floor if name in one and name in other]
    return bool(names) and all(_close(one[name], other[name], K * floor[name]) for name in names)


def _close(one: np.ndarray, other: np.ndarray, bound: float) -> bool:
    if one.shape != other.shape:
        return False
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0)
    return bool(apart <= bound)  # not where either is NaN: nothing agrees with that
