"""Structures of several layers: experts under a gate, products of tables, attention to another sequence."""

import pytest
from torch_cases import case, layer

from d3bot.frameworks import features, obstacle
from d3bot.frameworks.layers import infer_shapes
from d3bot.frameworks.torch.model import model_text
from d3bot.generate import fresh_cases
from d3bot.spec import FRAMEWORKS, Case, Framework, Input, Layer, Setting, SpecError

HEAD = layer("head", "linear", "a", units=2)
THREE = tuple(Input(name=name, shape=(4,)) for name in "xyz")
TWO_SEQUENCES = (Input(name="x", shape=(3, 4)), Input(name="memory", shape=(5, 4)))
GATED = (Input(name="gate", shape=(2,)), *THREE[:2])


def text(one: Case) -> str:
    return model_text(one).parts[0].definition


@pytest.mark.parametrize(
    ("inputs", "made", "written"),
    [
        (THREE[:1], layer("a", "softmax", "x"), "torch.softmax(x, dim=-1)"),
        (GATED, layer("a", "mixture", "gate", "x", "y"), "gate[..., 0:1] * x + gate[..., 1:2] * y"),
        (
            THREE,
            layer("a", "interaction", "x", "y", "z"),
            "torch.stack([(x * y).sum(-1), (x * z).sum(-1), (y * z).sum(-1)], dim=-1)",
        ),
    ],
)
def test_a_structure_as_pytorch_writes_it(inputs: tuple[Input, ...], made: Layer, written: str) -> None:
    assert written in text(case(inputs=inputs, layers=(made, HEAD)))


def test_attention_to_a_second_sequence_takes_its_keys_and_values_from_there() -> None:
    layers = (layer("a", "attention", "x", "memory"), layer("b", "flatten", "a"), layer("c", "linear", "b", units=2))
    one = case(inputs=TWO_SEQUENCES, layers=layers)
    assert "self.a(x, memory, memory, need_weights=False)[0]" in text(one)
    assert "cross-attention" in features(one)
    assert infer_shapes(one)["a"] == (3, 4)
    assert "itself" in str(obstacle(one, Setting.parse("cp(world=2)")))


@pytest.mark.parametrize(
    ("inputs", "made", "why"),
    [
        (
            (Input(name="gate", shape=(3,)), *THREE[:2]),
            layer("a", "mixture", "gate", "x", "y"),
            "2 shares, one an expert",
        ),
        (GATED, layer("a", "mixture", "gate", "x"), "takes 3 to 5 inputs"),
        (TWO_SEQUENCES, layer("a", "interaction", "x", "x", "x"), "needs vectors"),
        (THREE, layer("a", "interaction", "x", "y"), "takes 3 to 5 inputs"),
        (
            (Input(name="x", shape=(3, 4)), Input(name="memory", shape=(5, 6))),
            layer("a", "attention", "x", "memory"),
            "of its own 4 features, not of 6",
        ),
    ],
)
def test_a_structure_that_does_not_fit(inputs: tuple[Input, ...], made: Layer, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        text(case(inputs=inputs, layers=(made, HEAD)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_fresh_cases_have_every_kind_of_model(framework: Framework) -> None:
    """Experts under a gate, ranking models of sparse and dense features, and encoders with decoders."""
    found = [features(one) for one in fresh_cases(framework, 1, 45)]
    table = "embedding-bag" if framework == "torch" else "embedding"
    assert any({"softmax", "mixture"} <= words for words in found)
    assert any({"interaction", table, "several-inputs"} <= words for words in found)
    assert any({"cross-attention", "several-inputs", "embedding"} <= words for words in found)
    assert any({"tied", "frozen"} <= words for words in found)
