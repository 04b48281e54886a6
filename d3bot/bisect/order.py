"""The order of builds by their code, where a night may hold older code than the night before.  Pure."""

from collections.abc import Sequence


def by_commit(commits: Sequence[tuple[str, int] | None]) -> list[int]:
    """Return the places of builds, dated oldest first, in the order of their code.

    `commits` holds (tag, number of commits after it), or None where that is not known.  A build of older code than one
    before it moves there, in front of the first newer one of its tag; all others keep their order.
    """
    order: list[int] = []
    for place, commit in enumerate(commits):
        newer = (at for at, other in enumerate(order) if _newer(commits[other], commit))
        order.insert(next(newer, len(order)), place)
    return order


def _newer(one: tuple[str, int] | None, than: tuple[str, int] | None) -> bool:
    return one is not None and than is not None and one[0] == than[0] and one[1] > than[1]
