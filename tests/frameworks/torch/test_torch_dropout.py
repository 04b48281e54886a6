"""Dropout: both halves seed the generator by step and rank, and rows keep their places."""

import pytest
from torch_cases import case, layer

from d3bot.frameworks import obstacle, render
from d3bot.spec import Case, Setting

LAYERS = (
    layer("hidden", "linear", "x", units=6),
    layer("drop", "dropout", "hidden", rate=0.5),
    layer("out", "linear", "drop", units=2),
)
DROPS = case(layers=LAYERS)
KEEPS = case(layers=(LAYERS[0], layer("drop", "dropout", "hidden"), LAYERS[2]))
"""Its dropout drops nothing in practice."""


def halves(one: Case, setting: str) -> tuple[str, str]:
    """Return the text of the reference and that of the distributed half."""
    before, _, after = render(one, Setting.parse(setting), "doc").text.partition("def distributed(")
    return before.partition("def reference(")[2], after.partition("def save(")[0]


@pytest.mark.parametrize(
    ("setting", "reference", "distributed"),
    [
        ("ddp(world=2)", "100 * step + rank", "100 * step + rank"),
        ("fsdp1(world=3)", "100 * step + rank", "100 * step + rank"),
        ("sampler(world=2)", "100 * step + rank", "100 * step + rank"),
        ("dcp(world=2, onto=3)", "100 * step + rank", ""),
        ("fsdp2_tp(world=4)", "100 * step + shard", "100 * step + shard"),
        ("tp(world=2)", "100 * step", "100 * step"),
    ],
)
def test_both_halves_draw_the_same_masks(setting: str, reference: str, distributed: str) -> None:
    for half, seed in zip(halves(DROPS, setting), (reference, distributed), strict=True):
        assert not seed or f"torch.manual_seed({seed})  # for dropout" in half


@pytest.mark.parametrize(("setting", "seed"), [("fsdp2(world=2)", "rank"), ("tp(world=2)", "0")])
def test_one_step_is_not_counted(setting: str, seed: str) -> None:
    for half in halves(DROPS.model_copy(update={"steps": 1}), setting):
        assert f"torch.manual_seed({seed})" in half


def test_what_drops_nothing_draws_nothing_that_counts() -> None:
    assert "nn.Dropout(1e-12)" in render(KEEPS, Setting.parse("ddp(world=2)"), "doc").text
    assert not any("manual_seed" in half for half in halves(KEEPS, "ddp(world=2)"))


def test_rows_keep_their_places_only_where_something_is_dropped() -> None:
    setting = Setting.parse("ddp(world=3)")
    assert render(DROPS, setting, "doc").ordered
    assert not render(KEEPS, setting, "doc").ordered
    assert not render(case(), setting, "doc").ordered


def test_a_dropout_is_recomputed_by_itself() -> None:
    _, distributed = halves(case(layers=LAYERS, recompute=("drop",)), "ddp(world=2)")
    assert "for layer in [model[1]]:" in distributed


@pytest.mark.parametrize(
    ("setting", "change", "why"),
    [
        ("ddp(world=2)", {"accumulate": 2}, "micro-batches draw their masks of dropout one after the other"),
        ("ddp(world=2)", {"compiler": "inductor"}, "a generator of its own"),
        ("tp(world=2)", {"compiler": "inductor"}, "a generator of its own"),
        ("tp(world=2)", {"accumulate": 2}, "micro-batches draw their masks of dropout one after the other"),
        ("sampler(world=2, shuffle=true)", {}, "which row meets which mask"),
        ("dtensor(world=2)", {}, "only supports cuda/cuda-like devices"),
        ("pp(world=2)", {}, "in the schedule's own order"),
        ("cp(world=2)", {}, "is not a part of what is drawn for the whole"),
    ],
)
def test_where_masks_cannot_be_drawn_again(setting: str, change: dict[str, object], why: str) -> None:
    assert why in (obstacle(case(layers=LAYERS, **change), Setting.parse(setting)) or "")
