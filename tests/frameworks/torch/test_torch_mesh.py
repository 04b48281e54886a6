"""Data over tensor parallelism: the mesh, who has which rows, and how whole tensors are read."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.spec import Clip, Setting, Tie, parse_name

NORMED = chain("linear", "layer_norm", "linear")


def text_of(setting: str) -> str:
    return render(case(), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("setting", "mesh", "data"),
    [
        ("fsdp2_tp(world=4)", '(SHARDS, 2), mesh_dim_names=("data", "tensor")', 'mesh["data"]'),
        ("fsdp2_tp(world=8, tensor=4)", '(SHARDS, 4), mesh_dim_names=("data", "tensor")', 'mesh["data"]'),
        (
            "hsdp_tp(world=8)",
            '(2, SHARDS // 2, 2), mesh_dim_names=("replicate", "shard", "tensor")',
            'mesh["replicate", "shard"]',
        ),
    ],
)
def test_the_mesh_and_which_of_it_shards(setting: str, mesh: str, data: str) -> None:
    text = text_of(setting)
    assert f'init_device_mesh("cpu", {mesh})' in text
    assert f"fully_shard(model[0], mesh={data})" in text
    assert 'parallelize_module(model, mesh["tensor"], plan)' in text


@pytest.mark.parametrize(
    ("setting", "shards", "each"),
    [
        ("fsdp2_tp(world=4)", 2, 2),
        ("fsdp2_tp(world=8)", 4, 2),
        ("fsdp2_tp(world=8, tensor=4)", 2, 4),
        ("hsdp_tp(world=8)", 4, 2),
    ],
)
def test_ranks_of_one_tensor_group_share_a_shard_of_the_batch(setting: str, shards: int, each: int) -> None:
    script = render(case(), Setting.parse(setting), "doc")
    assert script.parts == shards
    assert f"SHARDS = {shards}" in script.text
    assert f"shard = rank // {each}" in script.text
    assert 'seen[f"step {step} loss {shard}"]' in script.text


def test_parameters_are_read_by_the_method_that_is_asked_for() -> None:
    assert "get_model_state_dict" not in text_of("fsdp2_tp(world=4)")
    text = text_of("fsdp2_tp(world=4, read=state_dict)")
    assert "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))" in text
    assert 'f"param {name}": state[name].numpy()' in text
    assert "p.detach().full_tensor()" not in text


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (case(batch=1), "leaves a rank of 2 without a row"),
        (case(layers=chain("linear", "linear").layers, tie=(Tie(layer="b", to="a"),)), "nothing promises that a tie"),
        (case(layers=NORMED.layers, clip=Clip(limit=1.0)), "clipping and averaging take sharded and plain parameters"),
        (case(clip=Clip(limit=1.0)), ""),
    ],
)
def test_what_breaks_either_dimension_breaks_both(one: object, why: str) -> None:
    found = obstacle(one, Setting.parse("fsdp2_tp(world=4)"))  # type: ignore[arg-type]
    assert why in (found or "")
    assert bool(found) is bool(why)


def test_nothing_is_exact() -> None:
    setting = Setting.parse("fsdp2_tp(world=4)")
    assert not FAMILIES["fsdp2_tp"].exact(case(), setting, parse_name("step 0 loss 0"))
