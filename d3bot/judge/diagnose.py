"""What a wrong number means.  Each diagnosis is a hypothesis that was checked numerically; its residual is told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from d3bot.judge import shares as of_shares
from d3bot.judge.bounds import epsilon
from d3bot.judge.compare import Difference
from d3bot.judge.evidence import Diagnosis, Evidence, join, meaning, ratio_text
from d3bot.spec import AFTER, Arrays

KEYED = frozenset(
    {"missing", "unexpected", "shape", "dtype", "nonfinite", "zero", "not-reduced", "ranks-differ", "scaled"}
    | {"permuted", "stale"}
)
"""Patterns that tell one bug from another in its key.  The finer ones say more about a case than about the bug."""

UNEXPLAINED = frozenset({"other", "part", "ranks-differ"})
"""Patterns behind which the reference on single parts of the batch may show more."""

_HALF = np.finfo(np.float16)


@dataclass(frozen=True)
class Clues:
    """What else is known of a case than the arrays of its reference."""

    shares: tuple[Arrays | None, ...] = ()
    """The reference on each piece of the batch alone, one a rank or a part; empty if it was not run."""
    start: Arrays = field(default_factory=dict)
    """The parameters before the first step."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Layers that have something in common, such as `tied` or `frozen`."""
    without: tuple[Arrays | None, ...] = ()
    """The reference without each piece of the batch; empty if it was not run."""


def diagnose(
    difference: Difference,
    reference: Arrays,
    ranks: Sequence[Arrays],
    world: int,
    parts: int,
    clues: Clues | None = None,
    differences: Sequence[Difference] = (),
) -> Diagnosis:
    """Return the first hypothesis that the numbers bear out, and what sets the wrong arrays apart.

    `differences` are all comparisons of the trial, the earliest first.
    """
    clues = clues or Clues()
    found = _diagnosis(difference, reference, ranks, world, parts, clues)
    if found.kind in ("other", "part"):
        alike = [item for item in differences if item.wrong == "value" and _place(item) == _place(difference)]
        found = _together(_evidence(item, reference, ranks, world, parts, clues) for item in alike) or found
    apart = _counted(ranks, differences, reference) or _apart(difference, differences, reference, clues.groups)
    return Diagnosis(found.kind, f"{found.text}; {apart}") if apart else found


def _diagnosis(
    difference: Difference, reference: Arrays, ranks: Sequence[Arrays], world: int, parts: int, clues: Clues
) -> Diagnosis:
    name = difference.name
    match difference.wrong:
        case "missing":
            return Diagnosis("missing", "no rank has it")
        case "unexpected":
            return Diagnosis("unexpected", "one process has no such array: there it gets no gradient or does not exist")
        case "shape":
            shapes = sorted({str(rank[name].shape) for rank in ranks if name in rank})
            return Diagnosis("shape", f"shape {', '.join(shapes)} instead of {reference[name].shape}")
        case "dtype":
            kinds = sorted({str(rank[name].dtype) for rank in ranks if name in rank})
            return Diagnosis("dtype", f"type {', '.join(kinds)} instead of {reference[name].dtype}")
        case "nonfinite":
            return Diagnosis("nonfinite", "NaN or infinity where one process has finite numbers")
    evidence = _evidence(difference, reference, ranks, world, parts, clues)
    for hypothesis in (_zero, _not_reduced, _ranks_differ, *_OF_ONE, _copies, _rounded, _part):
        found = hypothesis(evidence)
        if found:
            return found
    count, size = int(_beyond(evidence).sum()), evidence.want.size
    return Diagnosis("other", f"no known pattern; {count} of {size} elements are wrong")


def _place(item: Difference) -> tuple[int, str]:
    return item.parsed.step, item.parsed.role


def _evidence(
    difference: Difference, reference: Arrays, ranks: Sequence[Arrays], world: int, parts: int, clues: Clues
) -> Evidence:
    """Return what hypotheses about one array, which ranks hold in the reference's shape, may look at."""
    name = difference.name
    holders = tuple(i for i, rank in enumerate(ranks) if name in rank)
    pieces = [None if share is None else share.get(name) for share in clues.shares]
    own = [piece.astype(np.float64) for piece in pieces if piece is not None and piece.shape == reference[name].shape]
    return Evidence(
        difference,
        reference[name].astype(np.float64),
        tuple(ranks[i][name].astype(np.float64) for i in holders),
        holders,
        reference,
        world,
        parts,
        eps=epsilon(reference[name]),
        own=tuple(own) if len(own) == len(pieces) else (),
        without=tuple(
            None if run is None or name not in run else run[name].astype(np.float64) for run in clues.without
        ),
        seen=ranks[holders[0]],
        before=_before(difference, reference, clues.start),
    )


def _together(alike: Iterable[Evidence]) -> Diagnosis | None:
    """Try the wrong tensors of one step and role together: they may tell what one of them is too small for."""
    items = [item for item in alike if item.own and _agree(item)]
    if len(items) < 2:
        return None
    counts = {(len(item.own), item.before is None) for item in items}
    if len(counts) > 1:
        return None

    def one(arrays: Iterable[np.ndarray]) -> np.ndarray:
        return np.concatenate([array.ravel() for array in arrays])

    first = items[0]
    whole = replace(
        first.with_arrays(one(item.want for item in items), one(item.held[0] for item in items)),
        own=tuple(one(item.own[i] for item in items) for i in range(len(first.own))),
        before=None if first.before is None else one(item.before for item in items if item.before is not None),
    )
    found = next((found for found in (of_shares.update(whole), of_shares.combination(whole)) if found), None)
    return None if found is None else Diagnosis(found.kind, f"all {len(items)} that are wrong there: {found.text}")


def _before(difference: Difference, reference: Arrays, start: Arrays) -> np.ndarray | None:
    """Return a parameter as it was before the step that the array stands behind; None if that is not known."""
    parsed = difference.parsed
    if parsed.role != "param":
        return None
    last = parsed.step - 1
    if parsed.step == AFTER:
        steps = [int(name.split()[1]) for name in reference if name.startswith("step ")]
        last = max(steps, default=0) - 1
    array = reference.get(f"step {last} param {parsed.tensor}")
    if array is None:
        array = start.get(f"param {parsed.tensor}")  # over several steps, the sum of all updates
    return None if array is None or array.shape != reference[difference.name].shape else array.astype(np.float64)


def _counted(ranks: Sequence[Arrays], differences: Sequence[Difference], reference: Arrays) -> str:
    """Return what a counter of forward passes says, where buffers are all that is wrong and one such is among them."""
    wrong = [item for item in differences if item.wrong]
    if not wrong or not all(item.parsed.role == "buffer" for item in wrong):
        return ""
    for item in wrong:
        held = [rank[item.name] for rank in ranks if item.name in rank]
        if item.wrong == "value" and reference[item.name].dtype.kind in "iu" and reference[item.name].size == 1:
            seen, want = int(held[0].sum()), int(reference[item.name].sum())
            return f"only buffers are wrong: {item.parsed.tensor} counts {seen} forward passes instead of {want}"
    return ""


def _apart(
    difference: Difference, differences: Sequence[Difference], reference: Arrays, groups: Mapping[str, frozenset[str]]
) -> str:
    """Return what the wrong arrays have in common that the right ones of their step and role have not."""
    wrong = [item for item in differences if item.wrong]
    if len(wrong) < len(differences) and wrong and all(item.parsed.role == "buffer" for item in wrong):
        return "only buffers are wrong"
    place = (difference.parsed.step, difference.parsed.role)
    group = [item for item in differences if (item.parsed.step, item.parsed.role) == place]
    bad = [item for item in group if item.wrong]
    good = [item for item in group if not item.wrong]
    if difference.parsed.role not in ("grad", "param") or not good:
        return ""

    def in_layers(item: Difference, layers: frozenset[str]) -> bool:
        return any(part in layers for part in item.parsed.tensor.replace("/", ".").split("."))

    def size(item: Difference) -> int:
        return reference[item.name].size if item.name in reference else 0

    for word, layers in groups.items():
        if (
            layers
            and all(in_layers(item, layers) for item in bad)
            and not any(in_layers(item, layers) for item in good)
        ):
            return f"only {word} tensors are wrong"
    for word, most in (("empty", 0), ("one-element", 1)):
        if all(size(item) <= most for item in bad) and all(size(item) > most for item in good):
            return f"only {word} tensors are wrong"
    return f"only this one of {len(group)} tensors is wrong" if len(bad) == 1 and len(group) > 2 else ""


def _zero(evidence: Evidence) -> Diagnosis | None:
    if all(not array.any() for array in evidence.held) and evidence.want.any():
        return Diagnosis("zero", "all zero on every rank" if len(evidence.held) > 1 else "all zero")
    return None


def _not_reduced(evidence: Evidence) -> Diagnosis | None:
    if len(evidence.held) < 2 or _agree(evidence):
        return None
    residual = evidence.residual(np.mean(evidence.held, axis=0), evidence.want)
    if residual is None:
        return None
    text = f"each rank holds its own; their mean is the expected value (residual {residual:.1e})"
    return Diagnosis("not-reduced", text)


def _ranks_differ(evidence: Evidence) -> Diagnosis | None:
    if len(evidence.held) < 2 or _agree(evidence):
        return None
    apart = max(float(np.abs(array - evidence.held[0]).max(initial=0)) for array in evidence.held)
    wrong = [
        (rank, array)
        for rank, array in zip(evidence.holders, evidence.held, strict=True)
        if np.abs(array - evidence.want).max(initial=0) > evidence.difference.bound
    ]
    names = join([rank for rank, _ in wrong])
    only = f"only rank {names} is wrong" if len(wrong) == 1 else f"ranks {names} are wrong"
    which = "every rank is wrong" if len(wrong) == len(evidence.held) else only
    meant = [(rank, _of_one(evidence.of_rank(rank, array))) for rank, array in wrong]
    explained = "".join(f"; rank {rank}: {found.text}" for rank, found in meant[:4] if found)
    return Diagnosis("ranks-differ", f"the ranks' copies differ by up to {apart:.3g}; {which}{explained}")


def _of_one(evidence: Evidence) -> Diagnosis | None:
    """Return what one rank's array is, taken by itself."""
    return next((found for found in (hypothesis(evidence) for hypothesis in (_zero, *_OF_ONE)) if found), None)


def _scaled(evidence: Evidence) -> Diagnosis | None:
    want, held = evidence.want, evidence.held[0]
    power = float((want * want).sum())
    if want.size < 2 or not power:
        return None
    ratio = float((held * want).sum()) / power
    residual = evidence.residual(held, ratio * want)
    if residual is None:
        return None
    return Diagnosis("scaled", f"{ratio_text(ratio, evidence)} (residual {residual:.1e})")


def _ratio(evidence: Evidence) -> Diagnosis | None:
    """One number is some multiple of any other: only a factor with a meaning counts."""
    want, held = evidence.want, evidence.held[0]
    if want.size != 1 or not want.any():
        return None
    ratio = float(held.sum() / want.sum())
    found = meaning(ratio, evidence, 64 * evidence.eps)
    if found is None:
        return None
    residual = abs(float(held.sum() - found[1] * want.sum()))
    return Diagnosis("ratio", f"{ratio_text(ratio, evidence)} (residual {residual:.1e})")


def _permuted(evidence: Evidence) -> Diagnosis | None:
    want, held = evidence.want, evidence.held[0]
    if want.size < 3 or want.shape != held.shape:
        return None
    residual = evidence.residual(np.sort(held, axis=None), np.sort(want, axis=None))
    if residual is None:
        return None
    return Diagnosis("permuted", f"the expected numbers in other places (sorted, residual {residual:.1e})")


def _stale(evidence: Evidence) -> Diagnosis | None:
    parsed = evidence.difference.parsed
    before = evidence.reference.get(f"step {parsed.step - 1} {parsed.role} {parsed.tensor}")
    if before is None or not before.any():
        return None
    residual = evidence.residual(evidence.held[0], before.astype(np.float64))
    return None if residual is None else Diagnosis("stale", f"equals the previous step's (residual {residual:.1e})")


def _another(evidence: Evidence) -> Diagnosis | None:
    """Another part's loss, another rank's buffer: the same kind of array of the same step."""
    parsed, held = evidence.difference.parsed, evidence.held[0]
    start = evidence.difference.name.rsplit(" ", 1)[0] + " "
    if parsed.role not in ("loss", "buffer", "predict") or not held.any():
        return None
    for name, array in evidence.reference.items():
        if name.startswith(start) and name[len(start) :].isdigit() and name != evidence.difference.name:
            residual = evidence.residual(held, array.astype(np.float64))
            if residual is not None:
                return Diagnosis("another", f"equals {name} (residual {residual:.1e})")
    return None


def _copies(evidence: Evidence) -> Diagnosis | None:
    """One process holds a copy for each replica, which ought to be equal, and their mean is what each ought to be."""
    start = evidence.difference.name.rsplit(" ", 1)[0] + " "
    names = [name for name in evidence.reference if name.startswith(start) and name[len(start) :].isdigit()]
    copies = [evidence.seen[name] for name in names if name in evidence.seen]
    if evidence.difference.parsed.role != "buffer" or len(copies) < 2 or len(copies) != len(names):
        return None
    if any(copy.shape != evidence.want.shape for copy in copies):
        return None
    residual = evidence.residual(np.mean([copy.astype(np.float64) for copy in copies], axis=0), evidence.want)
    if residual is None:
        return None
    text = f"each replica's copy is its own; their mean is the expected value (residual {residual:.1e})"
    return Diagnosis("copies", text)


def _rounded(evidence: Evidence) -> Diagnosis | None:
    """Whether numbers passed through a lower type than their own on the way.

    Of float64 the size of the error tells float32; of a half type, that every number is one of that type's.
    """
    error, scale, held = evidence.difference.error, evidence.difference.scale, evidence.held[0]
    unit = float(np.finfo(np.float32).eps)
    if evidence.eps == np.finfo(np.float64).eps and 1e-3 * unit * scale <= error <= unit * scale:
        text = f"off by {error / scale:.1e} of its size, within one rounding of float32: it passes through that type"
        return Diagnosis("rounded", text)
    if held.size > 3 and evidence.eps < _HALF.eps and error <= _HALF.eps * scale:
        ranks, one = _are_halves(held), _are_halves(evidence.want)
        if ranks and not one:
            return Diagnosis(
                "rounded", "each number is one of float16, the nearest or next to it; one process's are not"
            )
        if one and not ranks:
            return Diagnosis(
                "rounded", "one process's numbers are float16's; these are not: they never were in that type"
            )
    return None


def _are_halves(array: np.ndarray) -> bool:
    if not array.any() or np.abs(array).max() >= _HALF.max:
        return False
    return bool(np.array_equal(array.astype(np.float16).astype(np.float64), array))


def _part(evidence: Evidence) -> Diagnosis | None:
    want, wrong = evidence.want, _beyond(evidence)
    count, size = int(wrong.sum()), want.size
    if size < 4 or count * 2 > size:
        return None
    where = ""
    if want.ndim and wrong.any():
        rows = np.flatnonzero(wrong.reshape(want.shape[0], -1).any(axis=1))
        if len(rows) < want.shape[0]:
            where = f", in row{'s' if len(rows) > 1 else ''} {join(rows[:6])} of {want.shape[0]}"
    return Diagnosis("part", f"{count} of {size} elements are wrong{where}{_block(evidence, wrong)}")


def _block(evidence: Evidence, wrong: np.ndarray) -> str:
    """Return which rank's shard the wrong elements lie in, if they do, and what its numbers are."""
    want, held, world = evidence.want, evidence.held[0], evidence.world
    for dim in range(want.ndim):
        size = want.shape[dim]
        others = tuple(axis for axis in range(want.ndim) if axis != dim)
        places = np.flatnonzero(wrong.any(axis=others))
        length = -(-size // world)  # as torch.chunk and DTensor split: the last shards may be short
        rank = int(places[0]) // length
        if world < 2 or size < world or rank != int(places[-1]) // length:
            continue
        block = (slice(None),) * dim + (slice(rank * length, (rank + 1) * length),)
        last = rank == (size - 1) // length
        uneven = ", the short one" if last and size % length else ", the last one" if last else ""
        found = _of_one(replace(evidence.with_arrays(want[block], held[block]), own=(), before=None, without=()))
        what = f": {found.text}" if found else ""
        return f", in the shard of rank {rank} along dimension {dim}{uneven}{what}"
    return ""


def _beyond(evidence: Evidence) -> np.ndarray:
    """Return which elements of the first holder's array are wrong."""
    apart: np.ndarray = np.abs(evidence.held[0] - evidence.want)
    return apart > max(evidence.difference.bound, evidence.difference.error * 1e-6)


def _agree(evidence: Evidence) -> bool:
    first = evidence.held[0]
    apart = max(float(np.abs(array - first).max(initial=0)) for array in evidence.held)
    return apart <= max(evidence.difference.bound, 1e-3 * evidence.difference.error)


_OF_ONE: tuple[Callable[[Evidence], Diagnosis | None], ...] = (
    _scaled,
    _permuted,
    _stale,
    _ratio,
    of_shares.update,
    of_shares.combination,
    of_shares.left_out,
    of_shares.decay,
    _another,
)
"""Hypotheses about one array, whichever rank holds it.  The first three are in keys and come first."""
