from typing import Any

import pytest

from d3bot.frameworks import features
from d3bot.spec import Case

BASE: dict[str, Any] = {
    "framework": "torch",
    "inputs": [{"name": "x", "shape": [4]}],
    "layers": [
        {"name": "fc1", "op": "linear", "inputs": ["x"], "options": {"units": 4}},
        {"name": "fc2", "op": "linear", "inputs": ["fc1"], "options": {"units": 4}},
    ],
    "batch": 12,
    "steps": 1,
}


def changed(**parts: Any) -> Case:
    return Case.model_validate(BASE | parts)


def test_the_plainest_case() -> None:
    assert features(changed()) == {"linear", "sgd", "mse", "float64", "custom"}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"steps": 2}, {"several-steps"}),
        ({"batch": 8}, {"uneven-batch"}),
        ({"batch": 9}, {"uneven-batch", "uneven-micro-batch"}),
        ({"batch": 6}, {"uneven-micro-batch"}),
        ({"clip": {"limit": 1.0}}, {"clip-norm"}),
        ({"clip": {"kind": "value", "limit": 1.0}}, {"clip-value"}),
        ({"freeze": [{"layer": "fc1"}]}, {"frozen"}),
        ({"freeze": [{"layer": "fc1", "at": 1}], "steps": 2}, {"late-freeze", "several-steps"}),
        ({"clip": {"limit": 1.0, "order": "1"}}, {"clip-norm", "clip-l1"}),
        ({"freeze": [{"layer": "fc1", "until": 1}], "steps": 2}, {"frozen", "thaw", "several-steps"}),
        ({"accumulate": 3}, {"accumulate"}),
        ({"reduction": "sum"}, {"sum-loss"}),
        ({"groups": [{"layers": ["fc1"]}]}, {"groups"}),
        ({"groups": [{"at": 1}], "steps": 2}, {"groups", "empty-group", "late-group", "several-steps"}),
        ({"skips": [{"layer": "fc1"}]}, {"unused"}),
        ({"casts": [{"layer": "fc1", "dtype": "float32"}]}, {"cast"}),
        ({"recompute": ["fc1"]}, {"recompute"}),
        ({"recompute": ["fc2"], "reentrant": True}, {"recompute", "reentrant"}),
        ({"ema": 0.5}, {"average"}),
        ({"swa": True}, {"average", "equal-average"}),
        ({"swa": True, "average_buffers": True}, {"average", "equal-average", "average-buffers"}),
        ({"in_backward": True}, {"in-backward"}),
        ({"compiler": "eager"}, {"compiled", "compiled-eager"}),
        ({"skips": [{"layer": "fc1", "at": 0}]}, {"conditional"}),
        ({"tie": [{"layer": "fc2", "to": "fc1"}]}, {"tied"}),
        ({"optimizer": {"weight_decay": 0.1, "decay_rate": 0.9}}, {"weight-decay", "schedule"}),
        ({"framework": "tensorflow", "loop": "fit", "metrics": ["mae"]}, {"fit", "metrics"}),
    ],
)
def test_each_feature_has_its_word(parts: dict[str, Any], words: set[str]) -> None:
    plain = features(changed())
    swapped = {"custom"} if "fit" in words else set()
    assert features(changed(**parts)) == (plain | words) - swapped


@pytest.mark.parametrize(
    ("optimizer", "word"),
    [
        ({"momentum": 0.5}, "momentum"),
        ({"momentum": 0.5, "nesterov": True}, "nesterov"),
        ({"name": "adam"}, "adam"),
        ({"name": "adamw"}, "adamw"),
    ],
)
def test_one_word_for_the_optimizer(optimizer: dict[str, Any], word: str) -> None:
    names = {"sgd", "momentum", "nesterov", "adam", "adamw"}
    assert features(changed(optimizer=optimizer)) & names == {word}


def test_odd_sizes_of_linear_layers_and_of_others() -> None:
    tokens = {"name": "t", "shape": [3], "vocab": 6}
    table = {"name": "embed", "op": "embedding", "inputs": ["t"], "options": {"dim": 5}}
    fc = {"name": "fc", "op": "linear", "inputs": ["embed"], "options": {"units": 4}}
    odd_table = features(changed(inputs=[tokens], layers=[table, fc]))
    assert "odd-size" in odd_table
    assert "odd-linear" not in odd_table
    odd_linear = features(changed(layers=[{"name": "fc", "op": "linear", "inputs": ["x"], "options": {"units": 3}}]))
    assert {"odd-size", "odd-linear"} <= odd_linear
