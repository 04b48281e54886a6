"""Lower precision inside fully_shard: the policies, what the reference casts, and how much a type may round."""

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.spec import Case, Optimizer, Setting

ADAM = case(optimizer=Optimizer(name="adam", lr=0.01))


def lines(setting: str, one: Case | None = None) -> list[str]:
    return [line.strip() for line in render(one or case(), Setting.parse(setting), "doc").text.splitlines()]


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("fsdp2(world=2, reduce=float16)", "policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)"),
        (
            "hsdp(world=4, compute=bfloat16, reduce=float32)",
            "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
        ),
        ("fsdp2(world=2, reduce=float16)", "fully_shard(model, mesh=mesh, mp_policy=policy)"),
        ("fsdp2(world=2, offload=true)", "fully_shard(model, mesh=mesh, offload_policy=offload)"),
        ("fsdp2(world=4, reshard_after_forward=2)", "fully_shard(model[0], mesh=mesh, reshard_after_forward=2)"),
    ],
)
def test_what_an_option_writes(setting: str, written: str) -> None:
    assert written in lines(setting)


def test_the_reference_computes_and_adds_in_the_types_of_the_policy() -> None:
    text = "\n".join(lines("fsdp2(world=2, compute=bfloat16, reduce=float32)"))
    assert "low = copy.deepcopy(model).to(torch.bfloat16)" in text
    assert "loss = loss_of(lambda x: low(x.to(torch.bfloat16)).to(torch.float64), *part)" in text
    assert "p.grad.to(torch.float32) / WORLD" in text
    assert "output_dtype=torch.float64" in text, "the loss is computed in the case's own type"


def test_reduction_is_in_the_type_of_the_computation_unless_told() -> None:
    assert "p.grad.to(torch.float16) / WORLD" in "\n".join(lines("fsdp2(world=2, compute=float16)"))


@pytest.mark.parametrize(
    ("setting", "dtype", "unit"),
    [
        ("fsdp2(world=2)", "float64", 0.0),
        ("fsdp2(world=2, reduce=float32)", "float64", 2.0**-23),
        ("fsdp2(world=2, reduce=float32)", "float32", 0.0),
        ("fsdp2(world=2, compute=float16, reduce=float32)", "float64", 2.0**-10),
        ("hsdp(world=4, compute=bfloat16)", "float32", 2.0**-7),
        ("ddp(world=2)", "float64", 0.0),
    ],
)
def test_the_bound_is_that_of_the_lowest_type(setting: str, dtype: str, unit: float) -> None:
    parsed = Setting.parse(setting)
    assert FAMILIES[parsed.family].rounding(case(dtype=dtype), parsed) == unit


@pytest.mark.parametrize(
    ("one", "setting", "why"),
    [
        (ADAM, "hsdp(world=4, reduce=float16)", "a whole step of one rounding"),
        (ADAM, "fsdp2(world=2, reduce=float16)", ""),
        (ADAM, "hsdp(world=4)", ""),
        (case(), "hsdp(world=4, reduce=float16)", ""),
        (chain("linear", "batch_norm"), "fsdp2(world=2, compute=bfloat16)", "not documented"),
        (chain("linear", "batch_norm"), "fsdp2(world=2, reduce=bfloat16)", ""),
        (case(), "fsdp2(world=3, reshard_after_forward=2)", "no non-trivial divisor"),
        (case(), "hsdp(world=8, shards=4, reshard_after_forward=2)", ""),
        (case(), "hsdp(world=4, reshard_after_forward=2)", "no non-trivial divisor"),
        (case(batch=8), "fsdp2_tp(world=8, reshard_after_forward=2)", ""),
        (case(batch=8), "fsdp2_tp(world=4, tensor=4, reshard_after_forward=2)", "no non-trivial divisor of 1 shards"),
        (case(batch=8), "hsdp_tp(world=8, reshard_after_forward=2)", "no non-trivial divisor"),
    ],
)
def test_where_lower_precision_can_be_emulated(one: Case, setting: str, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert why in (found or "")
    assert bool(found) is bool(why)
