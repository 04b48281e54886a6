"""ZeroRedundancyOptimizer: when its promise holds, and what its script says."""

import ast

import pytest
from torch_cases import case

from d3bot.frameworks import obstacle, render
from d3bot.generate import fresh_cases
from d3bot.spec import Case, Freeze, Group, Optimizer, Setting

TWO = Setting.parse("zero1(world=2)")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (case(), ""),
        (case(freeze=(Freeze(layer="hidden"),)), ""),
        (case(freeze=(Freeze(layer="hidden", at=1),)), "must not change after DDP has wrapped"),
        (case(freeze=(Freeze(layer="hidden"), Freeze(layer="out"))), "refuses a module without a parameter"),
        (case(batch=1), "without a row"),
    ],
)
def test_the_promise_of_data_parallelism_holds_or_not(one: Case, why: str) -> None:
    found = obstacle(one, TWO)
    assert bool(found) is bool(why)
    assert why in (found or "")


def test_a_group_is_added_on_every_rank_or_the_rule_does_not_hold() -> None:
    late = case(steps=3, groups=(Group(layers=("out",), at=1),))
    assert "adds a group on every rank" in (obstacle(late, Setting.parse("zero1(world=2, join=initial)")) or "")
    assert obstacle(late, TWO) is None
    early = case(steps=3, groups=(Group(layers=("out",)),))
    assert obstacle(early, Setting.parse("zero1(world=2, join=initial)")) is None


def test_a_rank_that_has_joined_cannot_shadow_two_reductions_a_step() -> None:
    halves = case(batch=8, accumulate=2, steps=3)
    assert "in turns" in (obstacle(halves, Setting.parse("zero1(world=2, join=effective)")) or "")
    assert obstacle(halves, TWO) is None


@pytest.mark.parametrize(
    ("optimizer", "setting", "written"),
    [
        (Optimizer(lr=0.5), "zero1(world=2)", "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.5)"),
        (
            Optimizer(name="adamw", lr=0.5, weight_decay=0.1),
            "zero1(world=3, parameters_as_bucket_view=true)",
            "torch.optim.AdamW, parameters_as_bucket_view=True, lr=0.5, weight_decay=0.1)",
        ),
    ],
)
def test_the_optimizer_is_made_by_its_class(optimizer: Optimizer, setting: str, written: str) -> None:
    text = render(case(optimizer=optimizer), Setting.parse(setting), "doc").text
    assert written in text
    assert f"optimizer = torch.optim.{'SGD' if optimizer.name == 'sgd' else 'AdamW'}(model.parameters()" in text


def test_the_reference_is_that_of_ddp() -> None:
    keys = {render(case(), Setting.parse(f"{name}(world=2)"), "doc").reference_key for name in ("zero1", "ddp")}
    assert len(keys) == 1


def test_every_fresh_case_becomes_python() -> None:
    for one in fresh_cases("torch", 2, 20):
        if obstacle(one, TWO) is None:
            ast.parse(render(one, TWO, "doc").text)
