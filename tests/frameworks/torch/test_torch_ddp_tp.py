"""DistributedDataParallel over tensor parallelism: when it applies, and how whole tensors are read."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.spec import Case, Clip, Freeze, Group, Setting, Skip


def text(setting: str, **changes: object) -> str:
    return render(case(**changes), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (case(), ""),
        (case(batch=1), "leaves a rank of 2 without a row"),
        (case(clip=Clip(limit=1.0)), "of whose norm no rank knows"),
        (case(clip=Clip(kind="value", limit=1.0)), ""),
        (case(freeze=(Freeze(layer="hidden"),)), ""),
        (case(freeze=(Freeze(layer="hidden", at=1),)), "must not change"),
        (case(freeze=(Freeze(layer="hidden"), Freeze(layer="out"))), "without a parameter that requires"),
        (case(groups=(Group(layers=("out",), at=1),)), "no longer lists its parameters"),
        (case(skips=(Skip(layer="hidden"),)), "DDP waits for the gradient"),
        (chain("linear", "batch_norm", "linear"), "a mesh of two dimensions is not documented"),
    ],
)
def test_where_the_promise_holds(one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse("ddp_tp(world=4)"))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("setting", "shards", "each"),
    [("ddp_tp(world=4)", 2, 2), ("ddp_tp(world=8)", 4, 2), ("ddp_tp(world=8, tensor=4)", 2, 4)],
)
def test_the_mesh_has_a_row_for_each_shard_of_the_batch(setting: str, shards: int, each: int) -> None:
    script = text(setting)
    assert f"SHARDS = {shards}" in script
    assert f'init_device_mesh("cpu", (SHARDS, {each}), mesh_dim_names=("data", "tensor"))' in script
    assert 'DistributedDataParallel(model, device_mesh=mesh["data"])' in script


def test_parameters_are_taken_before_the_first_forward_pass_hides_them() -> None:
    script = text("ddp_tp(world=4)", clip=Clip(kind="value", limit=1.0))
    _, _, distributed = script.partition("def distributed")
    assert distributed.index("params = dict(") < distributed.index("for step in")
    assert "full(p.grad, sharded[name])" in distributed
    assert "clip_grad_value_(params.values(), 1.0)" in distributed
    compile(script, "script", "exec")
