"""Distributed checkpoints: when a trial applies, how the two jobs are written, what the reference makes of them."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import families, obstacle, render
from d3bot.spec import Case, Clip, Freeze, Group, Setting

FAMILY = families("torch")["dcp"]


def text(setting: str, **changes: object) -> str:
    return render(case(**changes), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("setting", "one", "why"),
    [
        ("dcp(world=2)", case(steps=2), ""),
        ("dcp(world=2)", case(steps=1), "a step before it and one after it"),
        ("dcp(world=2, onto=8)", case(batch=6), "without a row"),
        ("dcp(world=2)", chain("linear", "batch_norm"), "running statistics"),
        ("dcp(world=2)", case(freeze=(Freeze(layer="hidden"),)), ""),
        ("dcp(world=2)", case(freeze=(Freeze(layer="hidden", at=1),)), "must not change"),
        ("dcp(world=2)", case(groups=(Group(),)), ""),
        ("dcp(world=2)", case(compiler="eager"), "the wrapped families' own matter"),
        ("dcp(world=8, onto=2, saved=tp)", case(batch=2), ""),
        ("dcp(world=2, saved=fsdp1)", case(clip=Clip(limit=1.0)), "in a method of its own"),
        (
            "dcp(world=2, loaded=tp)",
            chain("layer_norm", "relu").model_copy(update={"steps": 2}),
            "no linear or embedding layer",
        ),
        ("dcp(world=2)", case(groups=(Group(layers=("out",), at=1),)), "the groups of the first step"),
    ],
)
def test_where_the_promise_holds(setting: str, one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(("setting", "most"), [("dcp(world=2, onto=3)", 3), ("dcp(world=4, onto=1)", 4)])
def test_as_many_processes_as_the_larger_job_has_ranks(setting: str, most: int) -> None:
    assert FAMILY.processes(Setting.parse(setting)) == most
    assert f"WORLD = {most}\n" in text(setting)


def test_the_checkpoint_comes_in_mid_training() -> None:
    script = text("dcp(world=2, onto=3)", steps=5)
    assert "SAVERS, LOADERS, SAVED = 2, 3, 2 " in script
    assert "range(SAVED), rank, SAVERS, seen" in script
    assert "range(SAVED, STEPS), rank, LOADERS, seen" in script


def test_the_reference_has_as_many_shards_as_ranks_and_no_checkpoint() -> None:
    reference, _, _ = text("dcp(world=2, onto=3)").partition("def train")
    assert "ranks = SAVERS if step < SAVED else LOADERS" in reference
    assert "(loss / ranks).backward()" in reference
    assert "dcp." not in reference


@pytest.mark.parametrize(
    ("saved", "loaded", "sharded", "whole"),
    [
        ("fsdp2", "fsdp2", 2, 0),
        ("ddp", "fsdp2", 1, 1),
        ("fsdp2", "ddp", 1, 1),
        ("ddp", "ddp", 0, 2),
        ("fsdp1", "ddp", 0, 1),
        ("fsdp1", "fsdp2", 1, 0),
    ],
)
def test_each_job_has_its_own_wrapper(saved: str, loaded: str, sharded: int, whole: int) -> None:
    script = text(f"dcp(world=2, saved={saved}, loaded={loaded})")
    assert script.count("wrapped = fully_shard(model)") == sharded
    assert script.count("wrapped = DistributedDataParallel(model)") == whole
    assert ("DTensor" in script) is (sharded > 0)


@pytest.mark.parametrize(
    ("saved", "loaded", "shown"),
    [
        ("fsdp1", "fsdp1", "with FSDP.summon_full_params(model, with_grads=True):"),
        ("fsdp1", "ddp", "with shown(model):"),
        ("fsdp2", "fsdp2", ""),
    ],
)
def test_gradients_of_fsdp1_are_read_where_they_are_whole(saved: str, loaded: str, shown: str) -> None:
    script = text(f"dcp(world=2, saved={saved}, loaded={loaded})")
    assert script.count("model = wrapped = FSDP(model, **options)") == (saved, loaded).count("fsdp1")
    assert shown in script
    assert ("summon_full_params" in script) is bool(shown)
    compile(script, "script", "exec")


def test_tensor_parallel_ranks_share_the_whole_batch() -> None:
    script = text("dcp(world=2, onto=3, saved=tp)", steps=2)
    assert "range(SAVED), 0, 1, seen" in script
    assert "ranks = 1 if step < SAVED else LOADERS" in script
    both = text("dcp(world=2, saved=tp, loaded=tp)", steps=2)
    assert "tensor_split" not in both.partition("def train(")[0]
    assert both.count("parallelize_module(model, mesh, plan)") == 2


def test_checkpoints_of_different_jobs_do_not_share_a_reference() -> None:
    settings = ("dcp(world=2, onto=3)", "dcp(world=3, onto=2)", "dcp(world=3, onto=3)")
    assert len({render(case(batch=12), Setting.parse(s), "doc").reference_key for s in settings}) == 3


def test_rows_change_places_for_the_noise_only_where_they_stay_on_their_rank() -> None:
    assert FAMILY.parts(case(batch=12), Setting.parse("dcp(world=2, onto=3)")) == 6
    assert FAMILY.parts(case(batch=8), Setting.parse("dcp(world=2, onto=3)")) == 8


def test_what_is_saved_in_the_background_moves_on_before_it_is_waited_for() -> None:
    script = text("dcp(world=2, asynchronous=true)")
    _, _, after = script.partition("saving = dcp.async_save(")
    assert after.index("optimizer.step()") < after.index("saving.result()")
    assert "async_save" not in text("dcp(world=2)")
    compile(script, "script", "exec")
