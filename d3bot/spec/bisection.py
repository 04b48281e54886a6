"""Bisection: between which two builds a failure came or went, and what every build between answered."""

from typing import Literal

from pydantic import Field

from d3bot.spec.base import SCHEMA, Noun
from d3bot.spec.build import Text

BisectStatus = Literal[
    "found", "already-failing", "not-failing-now", "still-failing", "never-failed", "unknown", "out-of-time"
]


class Point(Noun):
    """One build that a bisection tried, or could not try."""

    version: Text
    spec: Text
    answer: Literal["good", "bad", "unknown", "gap"]
    """`gap`: it exists, or should, but cannot be installed here."""
    seen: Text = ""
    """How often of how many tries: `3/3` failures of the same key (bad) or passes (good)."""
    reason: Text = ""
    label: Text = ""
    commit: Text = ""


class Bisection(Noun):
    """The result, and everything that it rests on."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    subject: Text
    """The distribution whose versions were tried."""
    direction: Literal["broke", "mended"]
    """`broke`: from an old good build to a new bad one; `mended`: from an old bad one to a new good one."""
    status: BisectStatus
    key: Text = ""
    good: Point | None = None
    """The good build nearest to the change that was run."""
    bad: Point | None = None
    """The bad build nearest to the change that was run."""
    between: tuple[Point, ...] = ()
    """What lies between the two: gaps and unknowns, so the change is in one of them or in the newer one."""
    points: tuple[Point, ...] = ()
    """Every build of the range, oldest first, as far as it was tried."""
    compare: Text = ""
    """Address that shows what changed upstream, or empty."""
    compare_checked: bool | None = None
    """Whether both its ends were found upstream; None if nobody could be asked."""
    rechecked: tuple[Text, ...] = ()
    """What `python repro.py` did on both ends afterwards."""
    agrees: bool | None = None
    """Whether that agrees; None if it was not tried."""
    notes: tuple[Text, ...] = ()

    model_config = {**Noun.model_config, "populate_by_name": True}
