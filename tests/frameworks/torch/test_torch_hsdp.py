"""HSDP: a mesh of replicas and shards, and the mean over all ranks."""

import pytest
from torch_cases import case

from d3bot.frameworks import canonical_setting, obstacle, render
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.spec import Setting, SpecError, parse_name


@pytest.mark.parametrize(
    ("setting", "mesh"),
    [
        ("hsdp(world=4)", "(2, 2)"),
        ("hsdp(world=4, shards=4)", "(1, 4)"),
        ("hsdp(world=8)", "(4, 2)"),
        ("hsdp(world=8, shards=4)", "(2, 4)"),
    ],
)
def test_the_mesh_holds_replicas_of_shards(setting: str, mesh: str) -> None:
    text = render(case(), Setting.parse(setting), "doc").text
    assert f'init_device_mesh("cpu", {mesh}, mesh_dim_names=("replicate", "shard"))' in text
    assert "fully_shard(model[0], mesh=mesh)" in text


def test_a_world_that_is_no_mesh_is_an_error() -> None:
    with pytest.raises(SpecError, match="world=6 is not one of 4, 8"):
        canonical_setting("torch", Setting.parse("hsdp(world=6)"))


def test_one_reference_serves_every_mesh_of_as_many_ranks() -> None:
    texts = ("hsdp(world=4)", "hsdp(world=4, shards=4)", "fsdp2(world=4)")
    assert len({render(case(), Setting.parse(text), "doc").reference_key for text in texts}) == 1


def test_every_rank_needs_a_row() -> None:
    assert "leaves a rank of 4 without a row" in (obstacle(case(batch=3), Setting.parse("hsdp(world=4)")) or "")


def test_only_the_first_losses_are_the_same_computation() -> None:
    exact = FAMILIES["hsdp"].exact
    setting = Setting.parse("hsdp(world=4)")
    assert exact(case(), setting, parse_name("step 0 loss 1"))
    assert not exact(case(), setting, parse_name("step 0 grad 0.weight"))
