"""Differentiable collectives: which layer is exchanged, when the rows fit, what is written."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.settings.collectives import FAMILY, exchanged_layer, shares
from d3bot.spec import Case, Setting

OPS = next(option for option in FAMILY.options if option.name == "op").choices
IMPOSSIBLE = ("broadcast", "reduce", "scatter", "all_to_all")
"""Of these the functional collectives know no gradient."""


def text(setting: str, **changes: object) -> str:
    return render(case(**changes), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("one", "layer"),
    [
        (case(), "out"),
        (chain("linear", "linear", "linear"), "b"),
        (chain("linear", "layer_norm", "tanh"), "b"),
        (chain("tanh"), ""),
    ],
)
def test_the_middle_one_of_the_layers_that_can_be_is_exchanged(one: Case, layer: str) -> None:
    assert exchanged_layer(one) == layer


@pytest.mark.parametrize(
    ("setting", "one", "why"),
    [
        ("collectives(world=2)", case(batch=8), ""),
        ("collectives(world=3)", case(batch=8), "do not divide by 3"),
        ("collectives(world=2)", chain("tanh"), "no layer that takes one"),
        ("collectives(world=2, op=all_to_all)", case(batch=8), ""),
        ("collectives(world=2, op=all_to_all)", case(batch=6), "into equal parts for 2"),
        ("collectives(world=2, op=all_to_all_single)", case(batch=6), ""),
        ("collectives(world=4, op=all_to_all_single)", case(batch=8), "leave one of 4 without any"),
        ("collectives(world=2)", case(dtype="float32", mixed="bfloat16"), "rounded to the lower type"),
        ("collectives(world=2)", case(accumulate=2), ""),
        *((f"collectives(world=2, api=functional, op={op})", case(), f"has no {op}") for op in IMPOSSIBLE),
    ],
)
def test_where_the_promise_holds(setting: str, one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize("world", range(1, 9))
def test_shares_add_up_to_one_and_round_nothing(world: int) -> None:
    assert sum(shares(world)) == 1
    assert len(shares(world)) == world
    assert all((1 / share).is_integer() for share in shares(world))


@pytest.mark.parametrize("op", OPS)
def test_every_collective_is_named_once_imported_and_called_in_the_graph(op: str) -> None:
    script = text(f"collectives(world=2, op={op}, group=tail)")
    assert op in script.partition("def build")[0]
    assert "@" not in script
    assert "group=group" in script.partition("def before")[2].partition("hooks")[0]
    compile(script, "script", "exec")


@pytest.mark.parametrize("op", [op for op in OPS if op not in IMPOSSIBLE])
def test_functional_collectives_always_name_their_group(op: str) -> None:
    hooks = text(f"collectives(world=2, api=functional, op={op})").partition("def before")[2].partition("hooks")[0]
    assert hooks.count("dist.group.WORLD") >= 2


def test_roots_are_global_ranks() -> None:
    assert "RANKS = [0, 1]" in text("collectives(world=2, op=broadcast)")
    assert "RANKS = [1, 2]" in text("collectives(world=2, op=broadcast, group=tail)")


def test_rows_that_do_not_divide_are_sent_in_uneven_parts() -> None:
    assert "SIZES = [2, 1]" in text("collectives(world=2, op=all_to_all_single)", batch=6)
    assert "SIZES = [1, 1]" in text("collectives(world=2, op=all_to_all_single)", batch=8, accumulate=2)


def test_the_reference_exchanges_nothing() -> None:
    reference = text("collectives(world=2)").partition("def reference")[2].partition("def distributed")[0]
    assert "(loss / WORLD).backward()" in reference
    assert "gather" not in reference
