"""Costs: how long trials took in an earlier run, by which a later one chooses what to try."""

from d3bot.spec.base import Noun
from d3bot.spec.case import Framework


class Costs(Noun):
    """Seconds a trial, learned from one run and written into the plan of the next, so that its choice can be explained.

    Empty where no earlier run is known: what families are said to cost is then all there is.
    """

    run: str = ""
    """Id of the run that they were learned from."""
    seconds: dict[Framework, dict[str, float]] = {}
    """Framework -> family and number of ranks, such as `fsdp2 4` -> median seconds of a pass, to two digits."""
