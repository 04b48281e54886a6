"""DistributedSampler: when its promise holds, and which rows the reference says each rank takes."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import families, obstacle, render
from d3bot.spec import Case, Setting


@pytest.mark.parametrize(
    ("setting", "one", "why"),
    [
        ("sampler(world=5)", case(batch=2), ""),
        ("sampler(world=3, drop_last=true)", case(batch=2), "too few rows"),
        ("sampler(world=2, shuffle=true)", case(batch=8), ""),
        ("sampler(world=3, shuffle=true)", case(batch=8), "depends on the shuffle"),
        ("sampler(world=2, shuffle=true)", chain("linear", "batch_norm"), "depends on the shuffle"),
        ("sampler(world=2)", chain("linear", "batch_norm"), ""),
        ("sampler(world=8)", chain("linear", "batch_norm"), "too few rows"),
    ],
)
def test_where_the_promise_holds(setting: str, one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("rows", "world", "dropped", "taken"), [(7, 3, False, 9), (7, 3, True, 6), (8, 2, False, 8), (1, 4, False, 4)]
)
def test_rows_are_added_or_dropped_until_all_ranks_have_as_many(
    rows: int, world: int, dropped: bool, taken: int
) -> None:
    setting = Setting.parse(f"sampler(world={world}, drop_last={str(dropped).lower()})")
    text = render(case(batch=rows), setting, "doc").text
    assert f"ROWS = {rows}\nTAKEN = {taken} " in text
    assert ("drop_last=True" in text) is dropped


def test_a_shuffle_is_judged_by_all_rows_together() -> None:
    setting = Setting.parse("sampler(world=2, shuffle=true)")
    text = render(case(steps=2, seed=7), setting, "doc").text
    assert "DistributedSampler(dataset, shuffle=True, seed=7)" in text
    assert "sampler.set_epoch(step)" in text
    assert " loss 0" not in text
    assert families("torch")["sampler"].parts(case(), setting) == 1


def test_one_step_is_one_epoch_without_a_loop() -> None:
    text = render(case(steps=1), Setting.parse("sampler(world=2, shuffle=true)"), "doc").text
    assert "set_epoch" not in text
    compile(text, "script", "exec")
