"""FullyShardedDataParallel: which modules are wrapped, by which strategy, and how whole tensors are read."""

import ast

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.generate import fresh_cases
from d3bot.spec import Case, Clip, Setting, Tie

THREE = chain("linear", "tanh", "linear", "tanh", "linear")
TIED = case(layers=THREE.layers, tie=(Tie(layer="c", to="a"),))


def wraps(one: Case, setting: str) -> list[str]:
    lines = render(one, Setting.parse(setting), "doc").text.splitlines()
    return [line.strip() for line in lines if "= FSDP(" in line]


@pytest.mark.parametrize(
    ("one", "setting", "wrapped"),
    [
        (THREE, "fsdp1(world=2, wrap=root)", ["model = FSDP(model, **options)"]),
        (TIED, "fsdp1(world=2)", ["model = FSDP(model, **options)"]),  # both users of a weight in one unit
        (
            THREE,
            "fsdp1(world=2)",
            [f"{unit} = FSDP({unit}, **options)" for unit in ("model[0]", "model[2]", "model[4]", "model")],
        ),
        (
            THREE,
            "fsdp1(world=2, sharding=mixed)",
            [
                "model[0] = FSDP(model[0], **options, sharding_strategy=ShardingStrategy.NO_SHARD)",
                "model[2] = FSDP(model[2], **options)",
                "model[4] = FSDP(model[4], **options, sharding_strategy=ShardingStrategy.NO_SHARD)",
                "model = FSDP(model, **options)",
            ],
        ),
    ],
)
def test_units(one: Case, setting: str, wrapped: list[str]) -> None:
    assert wraps(one, setting) == wrapped


@pytest.mark.parametrize(
    ("sharding", "written"),
    [
        ("full_shard", "use_orig_params=True)"),
        ("shard_grad_op", "use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"),
        ("no_shard", "use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD)"),
        ("hybrid", "sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)"),
    ],
)
def test_strategy_of_all_units(sharding: str, written: str) -> None:
    text = render(case(), Setting.parse(f"fsdp1(world=2, sharding={sharding})"), "doc").text
    assert written in text
    assert ("ShardingStrategy" in text) is ("ShardingStrategy" in written)


def test_clipping_is_the_wrappers_own_and_gradients_are_read_whole() -> None:
    text = render(case(clip=Clip(limit=0.5)), Setting.parse("fsdp1(world=2)"), "doc").text
    assert "norm = model.clip_grad_norm_(0.5)" in text
    assert "nn.utils.clip_grad_norm_" not in text
    assert "FSDP.summon_full_params(model, with_grads=True)" in text


def test_every_fresh_case_becomes_python() -> None:
    setting = Setting.parse("fsdp1(world=2, sharding=mixed)")
    for one in fresh_cases("torch", 4, 20):
        if obstacle(one, setting) is None:
            ast.parse(render(one, setting, "doc").text)


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("fsdp1(world=2, group=tail)", "use_orig_params=True, process_group=group)"),
        ("fsdp1(world=2, cpu_offload=true)", "use_orig_params=True, cpu_offload=CPUOffload(offload_params=True))"),
    ],
)
def test_what_all_units_are_given(setting: str, written: str) -> None:
    assert written in render(case(), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("setting", "holds"),
    [
        ("fsdp1(world=4, sharding=hybrid)", True),
        ("fsdp1(world=3, sharding=hybrid)", False),
        ("fsdp1(world=2, sharding=hybrid)", False),
        ("fsdp1(world=4, sharding=hybrid, group=tail)", False),
        ("fsdp1(world=2, group=tail)", True),
        ("fsdp1(world=2, cpu_offload=true)", False),
    ],
)
def test_what_these_ranks_can_do(setting: str, holds: bool) -> None:
    assert (obstacle(case(batch=8), Setting.parse(setting)) is None) is holds


@pytest.mark.parametrize(
    ("group", "made"),
    [
        ("", 'scaler = ShardedGradScaler(device="cpu")'),
        (", group=tail", 'scaler = ShardedGradScaler(device="cpu", process_group=group)'),
    ],
)
def test_the_ranks_that_train_tell_each_other_of_infinite_gradients(group: str, made: str) -> None:
    text = render(case(dtype="float32", mixed="float16"), Setting.parse(f"fsdp1(world=2{group})"), "doc").text
    assert made in text
