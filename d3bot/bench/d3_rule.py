"""The rule of D3, for comparison: the softmax of the prediction, and one tolerance for everything.

Wang et al., "D3: Differential Testing of Distributed Deep Learning With Model Generation", IEEE TSE 51(1), 2025, as its
published harness has it: `allclose(atol=5e-4, rtol=1e-4)` of what the trained models predict.  A prediction that is
missing counts as equal, and a run that raises, dies or hangs has no verdict.
"""

from collections.abc import Sequence

import numpy as np

from d3bot.flow.harness import Judged
from d3bot.spec import Arrays, parse_name

ATOL, RTOL = 5e-4, 1e-4


def differs(judged: Judged) -> bool:
    """Return whether D3's rule, on what a trial returned, says that distributed and undistributed training differ."""
    one, many = judged.reference, judged.distributed
    if one is None or many is None or not (one.ok and many.ok) or not many.ranks:
        return False
    return predictions_differ(one.ranks[0].arrays or {}, [rank.arrays or {} for rank in many.ranks])


def predictions_differ(reference: Arrays, ranks: Sequence[Arrays]) -> bool:
    """Return whether any rank's prediction is not close to the reference's after softmax."""
    for name, want in reference.items():
        if parse_name(name).role == "predict" and want.ndim and want.size:
            for rank in ranks:
                if name in rank and not _close(want, rank[name]):
                    return True
    return False


def _close(want: np.ndarray, held: np.ndarray) -> bool:
    return want.shape == held.shape and np.allclose(_softmax(held), _softmax(want), rtol=RTOL, atol=ATOL)


def _softmax(array: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    double = array.astype(np.float64)
    raised = np.exp(double - double.max(axis=-1, keepdims=True))
    result: np.ndarray = raised / raised.sum(axis=-1, keepdims=True)
    return result
