"""Chance with coverage: choices dealt from a shuffled deck, so that every few cases hold every card."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Dealer:
    """The choices of case `index` in the series that a seed and a framework name.

    A deck of n cards is shuffled anew for every n cases and dealt one card a case: any n cases in a row from a
    multiple of n hold every card, and case i is the same however many cases are asked for.
    """

    series: str
    index: int

    def deal(self, name: str, deck: Sequence[T]) -> T:
        """Return this case's card of the deck; a card that lies twice in the deck comes twice as often."""
        block, place = divmod(self.index, len(deck))
        order = list(range(len(deck)))
        random.Random(f"{self.series}/{name}/{block}").shuffle(order)
        return deck[order[place]]

    def chance(self, name: str) -> random.Random:
        """Return this case's own source of random numbers for one matter, independent of every other matter's."""
        return random.Random(f"{self.series}/{name}/case {self.index}")
