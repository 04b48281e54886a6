"""The model on plain DTensors: what is placed where, and where the loss and the metrics are computed."""

import ast

import pytest
from torch_cases import case, chain, layer

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.settings.dtensor import placements
from d3bot.generate import fresh_cases
from d3bot.spec import Case, Input, Setting, Tie

DEEP = chain("linear", "layer_norm", "linear")
TIED = case(layers=chain("linear", "tanh", "linear").layers, tie=(Tie(layer="c", to="a"),))
IMAGE = case(
    inputs=(Input(name="x", shape=(2, 5, 5)),),
    layers=(
        layer("conv", "conv2d", "x", channels=4),
        layer("flat", "flatten", "conv"),
        layer("fc", "linear", "flat", units=2),
    ),
)


def dtensor(**options: str) -> Setting:
    return Setting.parse(f"dtensor(world=2{''.join(f', {name}={value}' for name, value in options.items())})")


@pytest.mark.parametrize(
    ("one", "weights", "placed"),
    [
        (case(), "shard0", {"0.weight": 0, "0.bias": 0, "2.weight": 0, "2.bias": 0}),
        (case(), "shard1", {"0.weight": 1, "0.bias": 0, "2.weight": 1, "2.bias": 0}),
        (case(), "replicate", {}),
        (DEEP, "mixed", {"0.weight": 0, "0.bias": 0, "1.bias": 0, "2.weight": 1}),  # 1.weight and 2.bias: replicated
        (TIED, "shard0", {"0.weight": 0, "0.bias": 0, "2.bias": 0}),  # the shared weight once
        (IMAGE, "shard0", {"2.weight": 0, "2.bias": 0}),  # kernels stay whole
    ],
)
def test_placements(one: Case, weights: str, placed: dict[str, int]) -> None:
    expected = {name: f"Shard({dim})" for name, dim in placed.items()}
    assert placements(one, dtensor(weights=weights)) == expected


def test_a_shared_weight_is_shared_again_after_it_was_distributed() -> None:
    assert "model[2].weight = model[0].weight  # tied again" in render(TIED, dtensor(), "doc").text


def test_the_loss_is_computed_on_dtensors_or_on_the_gathered_output() -> None:
    sharded = render(case(), dtensor(inputs="shard0"), "doc").text
    assert "loss_of(model, *(distribute_tensor(tensor, mesh, [Shard(0)]) for tensor in data(step)))" in sharded
    gathered = render(case(), dtensor(loss="gathered"), "doc").text
    assert "output_fn=lambda module, output, mesh: output.full_tensor()" in gathered
    assert "loss_of(model, *data(step))" in gathered


def test_metrics_are_the_same_expression_on_both_sides() -> None:
    text = render(case(), dtensor(), "doc").text
    assert 'seen["metric best"] = output.argmax(dim=-1).numpy()' in text
    assert 'seen["metric best"] = output.argmax(dim=-1).full_tensor().numpy()' in text
    assert "metric" not in render(case(), dtensor(loss="gathered"), "doc").text
    assert "metric" not in render(case(), Setting.parse("ddp(world=2)"), "doc").text


def test_an_lstm_makes_plain_tensors_of_its_own() -> None:
    sequence = case(inputs=(Input(name="x", shape=(3, 4)),), layers=(layer("rnn", "lstm", "x", units=4),))
    assert "plain tensors" in (obstacle(sequence, dtensor()) or "")


def test_class_weights_are_plain_too() -> None:
    weighted = case(loss="cross_entropy", weights="class")
    assert "class weights are a plain tensor" in (obstacle(weighted, dtensor()) or "")
    assert obstacle(weighted, dtensor(loss="gathered")) is None


def test_every_fresh_case_becomes_python() -> None:
    for one in fresh_cases("torch", 4, 20):
        for setting in (dtensor(weights="mixed"), dtensor(inputs="shard0", loss="gathered")):
            if obstacle(one, setting) is None:
                ast.parse(render(one, setting, "doc").text)
