"""Observation: the named arrays of one trial, and the names that they may have.

A script names what it saw in plain words, and the judge reads the words back:

    step 0 rows                   the numbers of the rows that step 0 took, in order
    step 0 loss 1                 the loss of shard (or micro-batch, or epoch) 1 in step 0
    step 0 grad fc.weight         a gradient after backward, before clipping
    step 0 norm                   the total norm that clipping returned
    step 0 metric accuracy        a metric after step 0
    param fc.weight               a parameter after the last step
    buffer norm.running_mean 1    a buffer after the last step, of rank 1 where ranks keep their own
    predict                       the model's output on a probe batch after the last step
"""

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from d3bot.spec.trace import Trace

Arrays = dict[str, npt.NDArray[np.generic]]

Role = Literal["rows", "loss", "grad", "norm", "metric", "param", "buffer", "predict"]
ROLES: tuple[Role, ...] = ("rows", "loss", "grad", "norm", "param", "buffer", "metric", "predict")

_NAME = re.compile(r"(?:step ([0-9]{1,5}) )?(rows|loss|grad|norm|metric|param|buffer|predict)(?: (\S+(?: [0-9]+)?))?")


@dataclass(frozen=True, order=True)
class ArrayName:
    """A parsed array name.  Sorting gives the order in which a divergence is reported: the earliest first."""

    step: int
    order: int
    """Position of the role in ROLES."""
    role: Role
    tensor: str


AFTER = 1_000_000
"""The step of arrays taken after the last step, so that they sort after every step's own."""


def parse_name(name: str) -> ArrayName:
    """Read an array name; ValueError if a script used a word that no judge knows."""
    match = _NAME.fullmatch(name)
    if not match:
        raise ValueError(f"array name {name[:200]!r} is not of the documented form")
    role: Role = match[2]  # type: ignore[assignment]  # the pattern lists exactly the roles
    step = int(match[1]) if match[1] is not None else AFTER
    return ArrayName(step, ROLES.index(role), role, match[3] or "")


@dataclass(frozen=True)
class ErrorReport:
    """An exception in a rank.  `frames` are `module:function` inside the library, outermost first."""

    type: str
    message: str
    frames: tuple[str, ...] = ()
    text: str = ""
    at: float = 0.0
    """Seconds since the epoch: the rank that failed first is the one to look at."""


@dataclass(frozen=True)
class RankObservation:
    """How one process ended, and what it returned or raised."""

    code: int
    """Exit code; negative for a signal."""
    why: str = ""
    """Empty if it ended by itself, else why it was killed: deadline, memory, output, or peer (another rank failed)."""
    seconds: float = 0.0
    arrays: Arrays | None = None
    error: ErrorReport | None = None
    output: str = ""
    """Tail of what it printed; after a deadline it ends with the stacks of all threads."""
    trace: Trace | None = None
    """What it recorded on its way, where that was asked for."""


@dataclass(frozen=True)
class Observation:
    """What one side of a trial produced: every process, and for a reference its noise re-runs."""

    ranks: tuple[RankObservation, ...]
    seconds: float = 0.0
    noise: tuple[Arrays, ...] = ()
    shares: tuple[Arrays | None, ...] = ()
    """Of a reference: what it returns on one piece of the batch alone; None where that could not be run."""
    start: Arrays = field(default_factory=dict)
    """Of a reference: the parameters before the first step, as `param NAME`."""
    moved: tuple[Trace, ...] = ()
    """Of a traced reference: what its noise re-runs recorded."""
    without: tuple[Arrays | None, ...] = ()
    """Of a reference: what it returns without one piece of the batch; None where that could not be run."""

    @property
    def ok(self) -> bool:
        """Whether every process returned its arrays."""
        return all(rank.code == 0 and rank.arrays is not None for rank in self.ranks)
