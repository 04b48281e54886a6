from hypothesis import given
from hypothesis import strategies as st

from d3bot.generate.deal import Dealer

DECK = st.lists(st.integers(), min_size=1, max_size=9)


@given(series=st.text(max_size=8), deck=DECK, block=st.integers(0, 50))
def test_as_many_cases_as_there_are_cards_hold_every_card(series: str, deck: list[int], block: int) -> None:
    first = block * len(deck)
    dealt = [Dealer(series, first + i).deal("name", deck) for i in range(len(deck))]
    assert sorted(dealt) == sorted(deck)


def test_the_order_differs_between_blocks_series_and_names() -> None:
    deck = list(range(20))

    def order(series: str, name: str, block: int) -> list[int]:
        return [Dealer(series, 20 * block + i).deal(name, deck) for i in range(20)]

    orders = [order("a", "x", 0), order("a", "x", 1), order("b", "x", 0), order("a", "y", 0)]
    assert len({tuple(item) for item in orders}) == 4


def test_each_matter_has_its_own_chance() -> None:
    dealer = Dealer("a", 3)
    assert dealer.chance("x").random() == dealer.chance("x").random()
    assert dealer.chance("x").random() != dealer.chance("y").random()
    assert dealer.chance("x").random() != Dealer("a", 4).chance("x").random()
