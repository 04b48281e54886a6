"""Trace: what a process recorded on its way, in the order in which it came."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

EventKind = Literal["input", "layer", "collective"]
_KINDS: tuple[EventKind, ...] = ("input", "layer", "collective")


@dataclass(frozen=True)
class Event:
    """One layer's output, the model's input, or one collective."""

    kind: EventKind
    name: str
    step: int
    """The last step whose batch was asked for."""
    value: npt.NDArray[np.generic] | None = None
    """A layer's output, or all that came out of a collective, flat (a row for each replica of one process)."""
    given: npt.NDArray[np.generic] | None = None
    """All that went into a collective, flat (a row for each replica of one process)."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of the output, or of each tensor that went into a collective."""
    group: tuple[int, ...] = ()
    """The ranks that take part in a collective, if they are known."""
    reduces: bool = False
    """Whether a collective adds up (or averages) what went in."""
    offset: tuple[int, ...] | None = None
    """Where in the whole output this rank's part begins; None if it has all of its rows."""
    partial: bool = False
    """Whether the ranks' parts are still to be added up."""
    replica: int = 0
    """Which replica of one process."""
    of: str = ""
    """The layer's type."""


@dataclass(frozen=True)
class Trace:
    """All events of a process."""

    events: tuple[Event, ...]
    dropped: int = 0
    """How many were beyond the limits and are not there."""


def read_trace(data: dict[str, Any], arrays: dict[str, npt.NDArray[np.generic]]) -> Trace:
    """Return the trace that a worker wrote; ValueError, KeyError or TypeError if it is not of that form."""
    events = []
    for item in data["events"]:
        if item["kind"] not in _KINDS:
            raise ValueError(f"no kind of event: {item['kind']!r}")
        kept = [None if number is None else arrays[f"a{int(number)}"] for number in item["arrays"]]
        place = item.get("place") or {}
        collective = item["kind"] == "collective"
        shapes = item["sizes"] if collective else [item["shape"]]
        events.append(
            Event(
                kind=item["kind"],
                name=str(item["name"])[:200],
                step=int(item["step"]),
                value=kept[-1],
                given=kept[0] if collective else None,
                shapes=tuple(tuple(int(size) for size in shape) for shape in shapes),
                group=tuple(int(rank) for rank in item.get("group") or ()),
                reduces=bool(item.get("reduces")),
                offset=tuple(int(start) for start in place["offset"]) if place else None,
                partial=bool(place.get("partial")),
                replica=int(item.get("replica", 0)),
                of=str(item.get("of", ""))[:200],
            )
        )
    return Trace(tuple(events), int(data["dropped"]))
