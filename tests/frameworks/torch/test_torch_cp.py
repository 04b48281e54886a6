"""Context parallelism: which models apply, and what is sharded and averaged."""

import pytest
from torch_cases import case, layer

from d3bot.frameworks import obstacle, render
from d3bot.spec import Case, Input, Layer, Setting

SEQUENCE = (Input(name="x", shape=(12, 8)),)
ATTENTION = (layer("att", "attention", "x", heads=2), layer("out", "linear", "att", units=3))


def sequence(*more: Layer, **changes: object) -> Case:
    return case(**({"inputs": SEQUENCE, "layers": (*ATTENTION, *more), "batch": 4} | changes))


@pytest.mark.parametrize(
    ("setting", "one", "why"),
    [
        ("cp(world=2)", sequence(), ""),
        ("cp(world=3)", sequence(), ""),
        ("cp(world=4)", sequence(), "two parts of the sequence for each rank"),
        ("cp(world=2)", case(), "the model has none"),
        ("cp(world=2)", sequence(layer("pool", "mean", "out")), "mean reads more of a sequence"),
        ("cp(world=2)", sequence(layer("rnn", "lstm", "out", units=4)), "lstm reads more of a sequence"),
        ("cp(world=2)", sequence(reduction="sum"), "not averaged over the ranks"),
        ("cp(world=2)", sequence(dtype="float32", mixed="bfloat16"), "rounded to the lower type"),
        ("cp(world=2)", sequence(accumulate=2), ""),
    ],
)
def test_where_the_promise_holds(setting: str, one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("setting", "kernel"), [("cp(world=2)", "MATH"), ("cp(world=2, kernel=flash_attention)", "FLASH_ATTENTION")]
)
def test_inputs_and_target_are_sharded_along_the_sequence(setting: str, kernel: str) -> None:
    text = render(sequence(), Setting.parse(setting), "doc").text
    assert "buffers=list(batch), buffer_seq_dims=[1, 1]" in text
    assert f"sdpa_kernel(SDPBackend.{kernel})" in text
    assert "p.grad /= WORLD" in text
    compile(text, "script", "exec")


def test_micro_batches_are_no_views_since_they_are_resized() -> None:
    text = render(sequence(accumulate=2), Setting.parse("cp(world=2)"), "doc").text
    assert "part = [tensor.clone() for tensor in part]" in text
    compile(text, "script", "exec")
