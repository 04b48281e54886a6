"""The features that bugs sit behind two at a time, for which coverage counts three-way: two of them and an option.

Reports of users name such combinations again and again: a tied weight that is frozen under a clipped norm, an uneven
last shard of accumulated micro-batches.  Two risky words of one case make a third, `clip-norm+tied`, which meets the
options of a setting as a single feature does: a triple is a pair whose feature is such a word.
"""

from collections.abc import Collection, Mapping
from itertools import combinations

from d3bot.spec import Framework, Pair

_BOTH = "+"

RISKY: Mapping[Framework, tuple[str, ...]] = {
    "torch": (
        *("tied", "frozen", "late-freeze", "thaw", "unused", "conditional"),  # which parameters take part
        *("clip-norm", "accumulate", "groups", "late-group", "ignored-rows"),  # what happens to their gradients
        *("odd-size", "uneven-batch", "embedding-bag", "batch-norm", "scale"),  # what does not divide, or has a state
        *("mixed", "cast", "recompute", "dropout"),  # in which type, how often, by which masks
    ),
    "tensorflow": (
        *("tied", "frozen", "late-freeze", "thaw", "clip-norm", "l2", "average"),
        *("odd-size", "uneven-batch", "embedding", "batch-norm", "sync-batch-norm", "dropout"),
        *("sample-weights", "class-weights", "ignored-rows", "sum-loss", "metrics", "fit", "train-on-batch"),
    ),
}
"""Features of which every two are covered together.  Words are those of `frameworks.features`."""


def together(framework: Framework, words: Collection[str]) -> frozenset[str]:
    """Return a word for every two risky ones among these."""
    risky = sorted(word for word in RISKY[framework] if word in words)
    return frozenset(_BOTH.join(two) for two in combinations(risky, 2))


def parts(word: str) -> tuple[str, ...]:
    """Return the features behind a word: two for a word of `together`, else the word itself."""
    return tuple(word.split(_BOTH))


def is_triple(pair: Pair) -> bool:
    """Whether the pair's feature is two features together."""
    return _BOTH in pair[0]
