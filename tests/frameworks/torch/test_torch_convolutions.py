"""Convolutions: how each is written, and what becomes of sizes."""

import pytest
from torch_cases import case, layer

from d3bot.frameworks import render
from d3bot.frameworks.layers import infer_shapes
from d3bot.spec import Case, Input, Layer, Setting, SpecError

SHAPES = {"1d": (5, 2), "2d": (2, 5, 5)}


def model(op: str, framework: str = "torch", **options: int) -> Case:
    shape = SHAPES[op[-2:]] if framework == "torch" or op.endswith("1d") else (5, 5, 2)
    one: Layer = layer("a", op, "x", **options)
    return case(framework=framework, inputs=(Input(name="x", shape=shape),), layers=(one,))


@pytest.mark.parametrize(
    ("one", "written"),
    [
        (model("conv1d", channels=4, groups=2), "nn.Conv1d(2, 4, 3, groups=2)"),
        (model("conv2d", channels=4, stride=2), "nn.Conv2d(2, 4, 3, stride=2)"),
        (model("conv_transpose1d", channels=4, kernel=2), "nn.ConvTranspose1d(2, 4, 2)"),
        (
            model("conv_transpose2d", channels=4, stride=2, groups=2),
            "nn.Sequential(nn.ConvTranspose2d(2, 4, 3, stride=2, groups=2))",
        ),
    ],
)
def test_a_convolution_is_written_as_a_person_would(one: Case, written: str) -> None:
    text = render(one, Setting.parse("ddp(world=2)"), "doc").text
    assert written in text
    assert ("x.transpose(1, 2)" in text) == (len(one.inputs[0].shape) == 2)


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (model("conv2d", channels=4, kernel=2, stride=2), (4, 2, 2)),
        (model("conv_transpose1d", channels=4, kernel=3), (7, 4)),
        (model("conv_transpose2d", channels=4, kernel=2, stride=3), (4, 14, 14)),
        (model("conv_transpose2d", "tensorflow", channels=4, kernel=2, stride=3), (15, 15, 4)),
    ],
)
def test_sizes(one: Case, shape: tuple[int, ...]) -> None:
    assert infer_shapes(one)["a"] == shape


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (model("conv1d", channels=3, groups=2), "2 channels in and 3 out do not divide into 2 groups"),
        (model("conv2d", channels=6, groups=3), "2 channels in and 6 out do not divide into 3 groups"),
        (model("conv_transpose2d", "tensorflow", channels=4, groups=2), "with groups = 2 exists for torch only"),
    ],
)
def test_groups_that_do_not_fit(one: Case, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        infer_shapes(one)
