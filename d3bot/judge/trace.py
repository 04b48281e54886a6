"""Where ranks and one process part: the first layer of the forward pass, and what the collectives did.  Pure.

A rank's layer is laid over the rows of the reference's that it was computed from.  Which these are is read off the
model's inputs, never assumed: a rank's input must be the reference's, bit by bit, in the rows that are compared.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from d3bot.judge.bounds import K, epsilon
from d3bot.spec import Arrays, Event, Trace, parse_name

_SUM = 64
"""Roundings that a sum over the ranks may be off by, of the sum of the sizes of what is added."""
_BETWEEN_TWO = ("send", "recv")
_GATHERING = ("allgather", "all_gather")


@dataclass(frozen=True)
class LayerRow:
    """One layer in one step, each rank against the reference."""

    step: int
    name: str
    of: str
    shape: tuple[int, ...]
    """Of the reference's output, over all rows."""
    error: float | None
    """Largest |difference| over the ranks; None if no rank's rows could be laid over the reference's."""
    bound: float
    ranks: tuple[int, ...] = ()
    """Ranks beyond the bound."""
    why: str = ""
    """Why it was not compared."""

    @property
    def wrong(self) -> bool:
        """Whether a rank is beyond the bound."""
        return bool(self.ranks)


@dataclass(frozen=True)
class CollectiveRow:
    """One collective, as the ranks of its group saw it."""

    step: int
    number: int
    """Its place among the collectives of its first rank, from 0."""
    name: str
    group: tuple[int, ...]
    sizes: tuple[int, ...]
    """Elements of each tensor that went in on the first rank."""
    sound: bool | None
    """Whether what came out is what went in: added up, averaged, or gathered; None where that does not tell."""
    found: str = ""
    """What is wrong with it, or which wrong arrays it carried, in words."""
    ranks: tuple[int, ...] = ()
    """Ranks on which what came out is wrong."""


@dataclass(frozen=True)
class Traced:
    """What a trace shows."""

    layers: tuple[LayerRow, ...]
    collectives: tuple[CollectiveRow, ...]
    dropped: int = 0
    """Events beyond the limits of a trace."""

    @property
    def first_layer(self) -> LayerRow | None:
        """The earliest layer of the forward pass that is beyond its bound."""
        return next((row for row in self.layers if row.wrong), None)

    @property
    def first_collective(self) -> CollectiveRow | None:
        """The earliest collective that did not add up, else the earliest that carried a wrong array."""
        unsound = next((row for row in self.collectives if row.sound is False), None)
        return unsound or next((row for row in self.collectives if row.found), None)


def trace_of(
    reference: Trace,
    moved: Sequence[Trace],
    ranks: Sequence[Trace],
    wrong: Mapping[str, Sequence[Arrays]] | None = None,
) -> Traced:
    """Return the layers and collectives of a traced trial.

    `moved` are the reference's noise re-runs with every number moved by one unit in the last place.  `wrong` holds for
    the earliest arrays that are wrong what each rank returned; a collective that carried one of them is named.
    """
    ranks = [_in_steps(trace, _inputs(reference)) for trace in ranks]
    sides = [side for rank, trace in enumerate(ranks) for side in _replicas(rank, trace)]
    layers = _layers(reference, moved, sides)
    collectives = _collectives(ranks, wrong or {})
    dropped = reference.dropped + sum(trace.dropped for trace in ranks)
    return Traced(tuple(layers), tuple(collectives), dropped)


def _inputs(reference: Trace) -> dict[int, np.ndarray]:
    """Return what the model was given in each step, over all rows."""
    return {step: array for (step, name), array in _whole(reference).items() if not name}


def _in_steps(trace: Trace, inputs: Mapping[int, np.ndarray]) -> Trace:
    """Return a rank's trace with the steps that its inputs say.

    A script may ask for all batches before the first step, and then the last one asked for says nothing.
    """
    rows = {step: {row.tobytes() for row in array} for step, array in inputs.items()}
    now: dict[int, int] = {}
    latest: int | None = None
    events = []
    for event in trace.events:
        if event.kind == "input" and event.value is not None and event.offset is None and event.step in rows:
            given = {row.tobytes() for row in event.value}
            steps = [step for step in (event.step, *rows) if given <= rows[step]]
            now[event.replica] = latest = steps[0] if steps else event.step
        step = latest if event.kind == "collective" else now.get(event.replica)
        events.append(event if step is None else replace(event, step=step))
    return Trace(tuple(events), trace.dropped)


def _replicas(rank: int, trace: Trace) -> list[tuple[int, Trace]]:
    """Return a process's replicas, which count as ranks where one process has several."""
    numbers = sorted({event.replica for event in trace.events if event.kind != "collective"})
    if len(numbers) < 2:
        return [(rank, trace)]
    return [
        (number, Trace(tuple(event for event in trace.events if event.replica == number), trace.dropped))
        for number in numbers
    ]


def _layers(reference: Trace, moved: Sequence[Trace], sides: Sequence[tuple[int, Trace]]) -> list[LayerRow]:
    whole = _whole(reference)
    noise = [_whole(trace) for trace in moved]
    theirs = {rank: _grouped(trace) for rank, trace in sides}
    rows_of: dict[tuple[int, int], np.ndarray | None] = {}
    result = []
    for (step, name), want in whole.items():
        if not name:
            continue
        others = [run[step, name] for run in noise if (step, name) in run and run[step, name].shape == want.shape]
        scale = float(np.abs(want).max(initial=0))
        seen = [float(np.abs(want - other).max(initial=0)) for other in others]
        bound = K * max([epsilon(want) * scale, *seen])
        error, beyond, why = None, [], "no rank computes it"
        for rank, groups in theirs.items():
            events = groups.get((step, name))
            if not events:
                continue
            if (rank, step) not in rows_of:
                rows_of[rank, step] = _rows(whole.get((step, "")), groups.get((step, "")))
            apart = _apart(want, events, rows_of[rank, step], len(whole.get((step, ""), ())))
            if apart is None:
                why = "its rows could not be laid over the reference's"
                continue
            error = max(error or 0.0, apart)
            if not apart <= bound:
                beyond.append(rank)
        of = next(event.of for event in reference.events if event.name == name)
        result.append(
            LayerRow(step, name, of, want.shape, error, bound, tuple(beyond), "" if error is not None else why)
        )
    return result


def _grouped(trace: Trace) -> dict[tuple[int, str], list[Event]]:
    """Return the events of each step and layer (`` is the model's input), in the order in which they come first."""
    result: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in trace.events:
        if event.kind != "collective":
            result[event.step, event.name].append(event)
    return result


def _whole(trace: Trace) -> dict[tuple[int, str], np.ndarray]:
    """Return each layer of each step over all rows; parts of the batch that follow one another are put together."""
    result = {}
    for place, events in _grouped(trace).items():
        array = _joined(events)
        if array is not None:
            result[place] = array
    return result


def _joined(events: Sequence[Event]) -> np.ndarray | None:
    arrays = [event.value for event in events if event.value is not None]
    if not arrays or any(array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        return None
    return np.concatenate(arrays)


def _rows(whole: np.ndarray | None, events: Sequence[Event] | None) -> np.ndarray | None:
    """Return which rows of the reference's input a rank was given; None if they are not found there.

    A rank without an input of its own, as a later stage of a pipeline, has all rows.
    """
    if whole is None:
        return None
    if not events:
        return np.arange(len(whole))
    if any(event.offset is not None for event in events):  # one process may predict more often than the ranks
        return np.arange(min(len(whole), sum(event.shapes[0][0] for event in events)))
    given = _joined(events)
    if given is None or given.shape[1:] != whole.shape[1:]:
        return None
    count = len(given)
    for start in range(len(whole) - count + 1):  # rows that follow one another, if there are such
        if np.array_equal(whole[start : start + count], given):
            return np.arange(start, start + count)
    places = {row.tobytes(): i for i, row in enumerate(whole)}
    found = [places.get(row.tobytes()) for row in given]
    return None if None in found else np.array(found)


def _apart(want: np.ndarray, events: Sequence[Event], rows: np.ndarray | None, count: int) -> float | None:
    """Return the largest |difference| of a rank's layer from the reference's; None if they cannot be compared."""
    if any(event.partial for event in events) or rows is None or not count or len(want) % count:
        return None
    times = len(want) // count  # a layer may see several rows for each of the batch
    wanted = want[(rows[:, None] * times + np.arange(times)).ravel()]
    if all(event.offset is not None for event in events):
        pairs = _placed(wanted, events)
    else:
        joined = _joined(events)
        value = want[:0] if joined is None else joined
        if len(rows) == count:  # a stage of a pipeline runs once more before, to learn its shapes
            value = value[-len(wanted) :]
        pairs = [(wanted, value)]
    if pairs is None or any(wanted.shape != value.shape for wanted, value in pairs):
        return None
    with np.errstate(invalid="ignore"):
        apart = [np.abs(wanted.astype(np.float64) - value.astype(np.float64)).max(initial=0) for wanted, value in pairs]
    return float(max(apart)) if np.isfinite(apart).all() else float("inf")


def _placed(want: np.ndarray, events: Sequence[Event]) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return each part of an output beside its place in the reference's; None if the passes have other rows in all."""
    pairs, start = [], 0
    for event in events:
        if event.value is None or event.offset is None or len(event.offset) != want.ndim:
            return None
        block = want[start : start + event.shapes[0][0]]
        start += event.shapes[0][0]
        place = tuple(slice(at, at + size) for at, size in zip(event.offset, event.value.shape, strict=True))
        pairs.append((block[place], event.value))
    return pairs if start == len(want) else None


def _collectives(ranks: Sequence[Trace], wrong: Mapping[str, Sequence[Arrays]]) -> list[CollectiveRow]:
    """Return the collectives in the order of each group's first rank, the ranks of a group side by side."""
    queues: dict[tuple[tuple[int, ...], int], list[tuple[int, Event]]] = defaultdict(list)
    for rank, trace in enumerate(ranks):
        for number, event in enumerate(event for event in trace.events if event.kind == "collective"):
            queues[event.group or (rank,), rank].append((number, event))
    rows = []
    for (group, rank), mine in queues.items():
        if rank != min(group) and len(ranks) > 1:
            continue
        for i, (number, event) in enumerate(mine):
            peers = [queues.get((group, other), []) for other in group] if len(ranks) > 1 else [mine]
            same = [peer[i][1] if i < len(peer) else None for peer in peers]
            rows.append(_collective(number, event, group, same, wrong))
    return sorted(rows, key=lambda row: (row.step, row.number, row.group))


def _collective(
    number: int,
    event: Event,
    group: tuple[int, ...],
    same: Sequence[Event | None],
    wrong: Mapping[str, Sequence[Arrays]],
) -> CollectiveRow:
    sound, found, bad = None, "", []
    together = [item for item in same if item is not None and item.name == event.name]
    given = [row for item in together if item.given is not None for row in np.atleast_2d(item.given)]
    made = [row for item in together if item.value is not None for row in np.atleast_2d(item.value)]
    if event.name.startswith(_BETWEEN_TWO):
        together = []
    elif len(together) < len(same):
        found = "not every rank of the group takes part"
    if together and not found and event.name.startswith(_GATHERING) and len(given) == len(group):
        bad = [group[i] for i, array in enumerate(made) if not np.array_equal(array, np.concatenate(given))]
        sound = not bad if all(array.size == sum(item.size for item in given) for array in made) else None
        if sound is False:
            found = "what came out is not what went in, one after the other"
    if not found and event.reduces and len(given) == len(group) and made and _alike(given):
        errors, sound = _unsound(given, made)
        bad = [group[i] for i in errors] if len(made) == len(group) else []
        if sound is False:
            found = "what came out is not what went in added up" + _fitted(given, made)
    if not found:
        for name, arrays in wrong.items():
            held = [
                rank
                for i, (rank, item) in enumerate(zip(group, same, strict=False))
                if item and _carries(item, name, arrays, i, len(group))
            ]
            if held:
                found, bad = f"carried {name}", held
                break
    sizes = tuple(int(np.prod(shape)) for shape in event.shapes)
    return CollectiveRow(event.step, number, event.name, group, sizes, sound, found, tuple(bad))


def _alike(arrays: Sequence[np.ndarray]) -> bool:
    return all(array.shape == arrays[0].shape and np.isfinite(array).all() for array in arrays)


def _unsound(given: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> tuple[list[int], bool | None]:
    """Return who got something else than the sum or the mean, and whether nobody did; None where sizes tell nothing."""
    total = np.sum([array.astype(np.float64) for array in given], axis=0)
    room = _SUM * epsilon(given[0]) * np.sum([np.abs(array) for array in given], axis=0)
    bad, count = [], len(given)
    for i, array in enumerate(made):
        whole, limit = total, room
        if array.size * count == total.size:  # a shard for each
            whole, limit = np.split(total, count)[i], np.split(room, count)[i]
        elif array.size != total.size:
            return [], None
        if not any((np.abs(array - whole * by) <= limit).all() for by in (1.0, 1 / count)):
            bad.append(i)
    return bad, not bad


def _fitted(given: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> str:
    """Return by how much each rank's counts in what came out on the first, if that explains it."""
    matrix = np.stack([array.astype(np.float64) for array in given], axis=1)
    if matrix.shape[0] != made[0].size or np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        return ""
    weights = np.linalg.lstsq(matrix, made[0].astype(np.float64), rcond=None)[0]
    residual = float(np.abs(matrix @ weights - made[0]).max(initial=0))
    if residual > 1e-5 * float(np.abs(made[0]).max(initial=0)) or matrix.shape[0] <= matrix.shape[1]:
        return ""
    shown = ", ".join(f"{round(float(weight), 4) + 0.0:g}" for weight in weights)
    for word, factor in (("sum", 1.0), ("mean", 1 / len(given))):
        off = float(np.abs(weights - factor).max()) / factor
        if off < 1e-4:
            return f": it is off by {off:.1e} of their {word}"
    return f": it is their sum with weights {shown}"


def _carries(event: Event, name: str, arrays: Sequence[Arrays], index: int, count: int) -> bool:
    """Whether a collective's output holds, in order, the numbers of a gradient that a rank returned.

    All of it, or the rank's shard of its rows; as they are, or before or after they are divided by the ranks.
    """
    parsed = parse_name(name)
    if event.value is None or parsed.role != "grad" or parsed.step != event.step:
        return False
    out = np.ravel(event.value).astype(np.float64)
    for held in arrays:
        array = np.atleast_1d(held[name]).astype(np.float64)
        rows = -(-len(array) // count)
        for part in (array, array[index * rows : (index + 1) * rows]):
            if part.any() and any(_holds(out, part.ravel() * factor) for factor in (1.0, count, 1 / count)):
                return True
    return False


def _holds(out: np.ndarray, part: np.ndarray) -> bool:
    if part.size > out.size:
        return False
    starts = np.flatnonzero(np.isclose(out[: out.size - part.size + 1], part[0], rtol=1e-6, atol=0))
    return any(np.allclose(out[start : start + part.size], part, rtol=1e-6, atol=0) for start in starts)
