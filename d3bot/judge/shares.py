"""Hypotheses about the share of each rank: which is left out, counted twice, or stands for all.

What a rank's rows give alone comes from the reference, run on these rows.  At the first step the gradients, losses and
statistics of the whole batch are the mean of the ranks' own; later the ranks' own have trained apart, and nothing fits.
"""

from itertools import combinations

import numpy as np

from d3bot.judge.evidence import Diagnosis, Evidence, join, ratio_text

_NEAR = 0.01
"""The part of the error that training without some rows may leave unexplained."""


def combination(evidence: Evidence) -> Diagnosis | None:
    """Return how the held value is made of the ranks' own, if it is."""
    found = _made_of(evidence, evidence.held[0], evidence.own)
    return None if found is None else Diagnosis("share", found)


def update(evidence: Evidence) -> Diagnosis | None:
    """Return what a parameter's last update is: none at all, a multiple of the expected one, or made of some ranks'."""
    if evidence.before is None:
        return None
    held, want = evidence.held[0] - evidence.before, evidence.want - evidence.before
    residual = evidence.residual(evidence.held[0], evidence.before)
    if residual is not None:
        return Diagnosis("update", f"it was not updated: equals its value before the step (residual {residual:.1e})")
    power = float((want * want).sum())
    ratio = float((held * want).sum()) / power if power else 0.0
    residual = evidence.residual(held, ratio * want)
    if want.size > 1 and residual is not None:
        text = ratio_text(ratio, evidence).replace("the expected value", "the expected update")
        return Diagnosis("update", f"it moved by {text} (residual {residual:.1e})")
    found = _made_of(evidence, held, tuple(own - evidence.before for own in evidence.own))
    return None if found is None else Diagnosis("update", f"its update {found}")


def left_out(evidence: Evidence) -> Diagnosis | None:
    """Return whose rows are left out, if training without them gives what is held.

    This holds at any step and under any optimizer, also where the held value is no sum of the ranks' own.  An optimizer
    that takes out the gradient's scale does so but for its epsilon, so a hundredth of the error may be left.
    """
    held, error = evidence.held[0], evidence.difference.error
    for number, array in enumerate(evidence.without):
        if array is None or array.shape != held.shape:
            continue
        residual = float(np.abs(held - array).max(initial=0))
        near = evidence.residual(held, array) is not None or (held.size > 3 and residual <= _NEAR * error)
        if near:
            word = "rank" if len(evidence.without) == evidence.world else "part"
            text = f"as one process has it without the rows of {word} {number} (residual {residual:.1e})"
            return Diagnosis("share", text)
    return None


def decay(evidence: Evidence) -> Diagnosis | None:
    """Return whether a parameter is off by a multiple of itself, as a weight decay left out or applied twice does."""
    before = evidence.before
    if before is None or before.size < 2 or not before.any():
        return None
    off = evidence.held[0] - evidence.want
    factor = float((off * before).sum() / (before * before).sum())
    residual = evidence.residual(off, factor * before)
    if residual is None:
        return None
    text = f"off by {factor:.4g} x the parameter itself, as a weight decay left out or applied again would be"
    return Diagnosis("decay", f"{text} (residual {residual:.1e})")


def _made_of(evidence: Evidence, held: np.ndarray, own: tuple[np.ndarray, ...]) -> str | None:
    count = len(own)
    if count < 2 or not any(array.any() for array in own):
        return None
    word = "rank" if count == evidence.world else "part"
    for chosen in _subsets(count):
        part = np.sum([own[i] for i in chosen], axis=0)
        factors = {"mean over all": 1 / count, "sum": 1.0, "mean over those": 1 / len(chosen)}
        for how, factor in factors.items():
            residual = evidence.residual(held, factor * part)
            if residual is not None and (held.size > 1 or residual <= 64 * evidence.eps * np.abs(held).max(initial=0)):
                return f"{_named(chosen, count, how, word)} (residual {residual:.1e})"
    matrix = np.stack([array.ravel() for array in own], axis=1)
    if matrix.shape[0] < count + 2 or np.linalg.matrix_rank(matrix) < count:
        return None
    weights = np.linalg.lstsq(matrix, held.ravel(), rcond=None)[0]
    residual = evidence.residual(held.ravel(), matrix @ weights)
    if residual is None:
        return None
    shown = ", ".join(f"{round(float(weight), 4):g}" for weight in weights)
    return f"is a sum over the {word}s' own with weights {shown} (residual {residual:.1e})"


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Return the choices of one rank, of all but one, and of all; of two and all but two where that is something else.

    More of them would make a single number fit by chance.
    """
    sizes = [size for size in (1, count - 1, count, 2, count - 2) if 0 < size <= count]
    return [chosen for size in dict.fromkeys(sizes) for chosen in combinations(range(count), size)]


def _named(chosen: tuple[int, ...], count: int, how: str, word: str) -> str:
    if len(chosen) == 1:
        rank = chosen[0]
        return f"is {word} {rank}'s own" if how != "mean over all" else f"is {word} {rank}'s own / {count}"
    left = [i for i in range(count) if i not in chosen]
    if not left:
        return f"is the {how.removesuffix(' over all')} of the {word}s' own"
    if len(left) <= len(chosen):
        missing = f"the share of {word} {join(left)} is missing"
    else:
        missing = f"only the shares of {word}s {join(chosen)} are in it"
    return f"is a {how}: {missing}"
