"""torchrec: which bags it can shard how, and what the script says."""

import ast
from typing import Any

import pytest
from torch_cases import case, layer

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.spec import Case, Clip, Freeze, Input, Optimizer, Setting


def bags(dim: int = 8, pooling: str = "mean", **changes: Any) -> Case:
    """Return a case of two tables, one with weights, below a linear layer."""
    fields: dict[str, Any] = {
        "inputs": (
            Input(name="users", shape=(4,), vocab=7),
            Input(name="items", shape=(2,), vocab=5),
            Input(name="counts", shape=(2,)),
        ),
        "layers": (
            layer("table1", "embedding_bag", "users", dim=dim, pooling=pooling),
            layer("table2", "embedding_bag", "items", "counts", dim=dim),
            layer("both", "concat", "table1", "table2"),
            layer("head", "linear", "both", units=2),
        ),
        "dtype": "float32",
        "batch": 8,
        "optimizer": Optimizer(lr=0.5),
    }
    return case(**(fields | changes))


@pytest.mark.parametrize(
    ("one", "setting", "why"),
    [
        (bags(), "torchrec(world=2)", ""),
        (bags(), "torchrec(world=4, sharding=row_wise)", ""),
        (bags(batch=9), "torchrec(world=2, sharding=row_wise)", "equally many rows"),
        (bags(batch=9), "torchrec(world=2)", ""),
        (bags(), "torchrec(world=2, sharding=row_wise, comms=fp16)", "the order of a half-precision sum"),
        (bags(dim=8), "torchrec(world=3, sharding=column_wise)", "fours on every rank"),
        (bags(dim=6), "torchrec(world=2)", "fours"),
        (bags(dim=6), "torchrec(world=2, sharding=data_parallel)", ""),
        (bags(dtype="float64"), "torchrec(world=2)", "float32"),
        (bags(freeze=(Freeze(layer="table1"),)), "torchrec(world=2)", "frozen table"),
        (bags(freeze=(Freeze(layer="head"),)), "torchrec(world=2)", "without a parameter"),
        (bags(optimizer=Optimizer(name="adam")), "torchrec(world=2)", "moves the rows that a batch looks up"),
        (bags(optimizer=Optimizer(name="adam")), "torchrec(world=2, kernel=dense)", ""),
        (bags(clip=Clip(limit=1.0)), "torchrec(world=2)", "before gradients are clipped"),
        (bags(accumulate=2), "torchrec(world=2)", "micro-batches have one each"),
        (case(dtype="float32"), "torchrec(world=2)", "no embedding bag"),
    ],
)
def test_what_can_be_sharded(one: Case, setting: str, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("torchrec(world=2)", '{"table1": table_wise(rank=0)}'),
        (
            "torchrec(world=2)",
            'apply_optimizer_in_backward(torch.optim.SGD, recommender.tables.parameters(), {"lr": 0.5})',
        ),
        ("torchrec(world=2, kernel=dense)", "torch.optim.SGD(parallel.parameters(), lr=0.5)"),
        ("torchrec(world=2, sharding=column_wise)", "column_wise(ranks=[0, 1])"),
        ("torchrec(world=2, sharding=row_wise, kernel=dense)", 'row_wise(compute_kernel="dense")'),
        ("torchrec(world=2, comms=bf16)", "forward_precision=CommType.BF16"),
        ("torchrec(world=2, comms=bf16)", "output.to(torch.bfloat16).to(output.dtype)"),
        ("torchrec(world=2, sharding=data_parallel)", "table.copy_(plain[name])"),
    ],
)
def test_what_the_script_says(setting: str, written: str) -> None:
    text = render(bags(), Setting.parse(setting), "").text
    ast.parse(text)
    assert written in text


def test_it_needs_a_package_of_its_own() -> None:
    assert {family.name for family in FAMILIES.values() if family.needs} == {"torchrec"}
