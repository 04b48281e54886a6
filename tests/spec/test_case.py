"""A case is plain data that holds together; its id is a hash of what it says, not of how that was written."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from d3bot.spec import Case, Trial, one_line
from d3bot.spec.reserved import RESERVED

MLP: dict[str, Any] = {
    "framework": "torch",
    "inputs": [{"name": "x", "shape": [6]}],
    "layers": [
        {"name": "fc1", "op": "linear", "inputs": ["x"], "options": {"units": 8, "bias": False}},
        {"name": "relu1", "op": "relu", "inputs": ["fc1"]},
        {"name": "fc2", "op": "linear", "inputs": ["relu1"], "options": {"units": 4}},
    ],
}
FULL: dict[str, Any] = {
    "framework": "tensorflow",
    "inputs": [{"name": "tokens", "shape": [5], "vocab": 11}, {"name": "x", "shape": [5, 4]}],
    "layers": [
        {"name": "embed1", "op": "embedding", "inputs": ["tokens"], "options": {"dim": 4}},
        {"name": "skip1", "op": "add", "inputs": ["embed1", "x"]},
        {"name": "pool1", "op": "mean", "inputs": ["skip1"]},
        {"name": "fc1", "op": "linear", "inputs": ["pool1"], "options": {"units": 4}},
        {"name": "fc2", "op": "linear", "inputs": ["fc1"], "options": {"units": 4}},
    ],
    "loss": "cross_entropy",
    "loop": "fit",
    "batch": 6,
    "steps": 3,
    "optimizer": {
        "name": "sgd",
        "lr": 0.05,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.01,
        "decay_rate": 0.9,
    },
    "clip": {"kind": "value", "limit": 0.5},
    "freeze": [{"layer": "fc1", "at": 1}],
    "tie": [{"layer": "fc2", "to": "fc1"}],
    "metrics": ["accuracy"],
    "dtype": "float32",
    "seed": 7,
}


def case(base: dict[str, Any] = MLP, **fields: Any) -> Case:
    return Case.model_validate(base | fields)


def layers(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer | changes.get(layer["name"], {}) for layer in MLP["layers"]]


def test_ids_are_what_they_always_were() -> None:
    """If this fails, every id in every run folder and every seed of the past has lost its meaning: bump SCHEMA."""
    assert case().id == "c8e360d57cda6"
    assert case(FULL).id == "c3e5555299ca3"
    trial = Trial(case=case(), setting="ddp(world=2)")  # type: ignore[arg-type]
    assert trial.id == "t55c9d7e3ec9c"


@settings(deadline=None, max_examples=30)
@given(base=st.sampled_from([MLP, FULL]), data=st.data())
def test_the_canonical_form_is_independent_of_order_and_of_spelled_out_defaults(
    base: dict[str, Any], data: st.DataObject
) -> None:
    plain = case(base)

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in data.draw(st.permutations(sorted(value)))}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    for written in (base, plain.model_dump(mode="json"), json.loads(plain.canonical())):
        again = case(shuffled(written))
        assert again == plain
        assert again.canonical() == plain.canonical()
        assert again.id == plain.id


@pytest.mark.parametrize("field", sorted(set(FULL) - {"framework", "inputs", "layers"}))
def test_every_field_counts(field: str) -> None:
    dependent = {"loop": ["loop", "metrics"], "steps": ["steps", "freeze"]}.get(field, [field])
    assert case({name: value for name, value in FULL.items() if name not in dependent}).id != case(FULL).id


@pytest.mark.parametrize("number", [1, 1.0])
def test_a_number_is_one_however_it_is_written(number: float) -> None:
    assert case(optimizer={"lr": number}).canonical() == case(optimizer={"lr": 1.0}).canonical()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"framework": "jax"}, "framework: Input should be 'torch' or 'tensorflow'"),
        ({"inputs": []}, "inputs: Tuple should have at least 1 item"),
        ({"layers": []}, "layers: Tuple should have at least 1 item"),
        ({"batchsize": 8}, "batchsize: Extra inputs are not permitted"),
        ({"batch": 0}, "batch: Input should be greater than or equal to 1"),
        ({"steps": 9}, "steps: Input should be less than or equal to 8"),
        ({"dtype": "float16"}, "dtype: Input should be 'float64' or 'float32'"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"inputs": [{"name": "x", "shape": [0]}]}, "inputs.0.shape.0: Input should be greater"),
        ({"inputs": [{"name": "x", "shape": [2]}, {"name": "x", "shape": [2]}]}, "inputs: two inputs share a name"),
        ({"layers": layers(fc2={"name": "fc1"})}, "layers: the name 'fc1' is used twice"),
        ({"layers": layers(fc2={"name": "x"})}, "layers: the name 'x' is used twice"),
        ({"layers": layers(fc1={"inputs": ["y"]})}, "layer fc1: input 'y' is neither an input nor an earlier layer"),
        ({"layers": layers(fc1={"inputs": ["fc2"]})}, "layer fc1: input 'fc2' is neither an input nor an earlier"),
        ({"layers": layers(fc2={"inputs": ["fc1"]})}, "layer relu1: its output is used by nobody"),
        ({"layers": layers(fc1={"inputs": []})}, "layers.0.inputs: Tuple should have at least 1 item"),
        ({"layers": layers(fc1={"options": {"units": float("nan")}})}, "layers.0.options: option units: nan is not a"),
        ({"layers": layers(fc1={"name": "class"})}, "the name 'class' means something else in a script"),
        ({"layers": layers(fc1={"name": "forward"})}, "the name 'forward' means something else in a script"),
        ({"inputs": [{"name": "target", "shape": [2]}]}, "the name 'target' means something else in a script"),
        ({"freeze": [{"layer": "fc9"}]}, "freeze: there is no layer 'fc9'"),
        ({"freeze": [{"layer": "fc1", "at": 2}]}, "freeze: at = 2 never comes in 2 steps"),
        ({"tie": [{"layer": "fc1", "to": "fc2"}]}, "tie: 'fc1' must come after 'fc2' among the layers"),
        ({"tie": [{"layer": "fc2", "to": "fc9"}]}, "tie: 'fc2' must come after 'fc9' among the layers"),
        ({"loop": "fit"}, 'loop = "fit" exists for tensorflow only'),
        ({"metrics": ["mae"]}, "metrics and evaluate are Keras's and need loop"),
        ({"framework": "tensorflow", "evaluate": True}, "metrics and evaluate are Keras's and need loop"),
        ({"framework": "tensorflow", "loop": "fit", "running_mean": True}, 'running_mean needs loop = "custom"'),
        ({"framework": "tensorflow", "steps_per_execution": 2}, 'steps_per_execution needs loop = "fit"'),
        ({"slope": 1.0}, "slope exists for tensorflow only"),
        ({"optimizer": {"name": "adam", "momentum": 0.9}}, "optimizer: momentum and nesterov belong to sgd, not to ad"),
        ({"optimizer": {"nesterov": True}}, "optimizer: nesterov needs a momentum above 0"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr: Input should be greater than 0"),
        ({"optimizer": {"lr": float("nan")}}, "optimizer.lr: Input should be"),
        ({"freeze": [{"layer": "fc1", "at": 1, "until": 1}]}, "freeze.0: until = 1 must come after at = 1"),
        ({"freeze": [{"layer": "fc1", "until": 2}]}, "freeze: step 2 never comes in 2 steps"),
        ({"groups": [{"layers": ["fc1"]}, {"layers": ["fc1"]}]}, "groups: a layer is in two groups"),
        (
            {"tie": [{"layer": "fc2", "to": "fc1"}], "casts": [{"layer": "fc1", "dtype": "bfloat16"}]},
            "casts: fc2 and fc1 share a weight; cast both to one type, or neither",
        ),
        ({"skips": [{"layer": "fc2"}]}, "skips: fc2 is the model's output and cannot be left out"),
        ({"mixed": "float16"}, "mixed = float16 lowers float32 and leaves float64 as it is; use float32"),
        ({"reentrant": True}, "reentrant says how layers are recomputed and needs some in recompute"),
        ({"ema": 0.5, "swa": True}, "ema and swa are two averages of the same parameters"),
        ({"average_buffers": True}, "average_buffers says what is averaged and needs ema or swa"),
        ({"in_backward": True, "clip": {"limit": 1.0}}, "in_backward leaves clip no place"),
        ({"in_backward": True, "accumulate": 2}, "in_backward leaves accumulate no place"),
        ({"in_backward": True, "optimizer": {"decay_rate": 0.5}}, "in_backward leaves optimizer.decay_rate no place"),
        ({"in_backward": True, "freeze": [{"layer": "fc1", "until": 1}]}, "in_backward leaves freeze.until no place"),
        ({"framework": "tensorflow", "in_backward": True}, "in_backward exists for torch only"),
        ({"compiler": "xla"}, "compiler = xla exists for tensorflow only"),
        ({"accumulate": 3}, "accumulate: 8 rows do not divide into 3 micro-batches"),
        ({"ignored": 2}, 'ignored rows and class weights need loss = "cross_entropy"'),
        ({"weights": "sample"}, "sample weights exists for tensorflow only"),
        ({"clip": {"limit": float("inf")}}, "clip.limit: Input should be a finite number"),
    ],
)
def test_an_error_says_what_and_where(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        case(**fields)
    message = one_line(caught.value)
    assert message.startswith(words)
    assert message.isprintable()


HOSTILE = [
    "__import__('os')",
    "x; import os",
    "x\n",
    "x\nimport os",
    'x"',
    "x'",
    '"""',
    "{x}",
    "{{ x }}",
    "{% x %}",
    "x\\",
    "x y",
    "x(1)",
    "x#",
    "x,y",
    "../x",
    "x\x00",
    "x\x1b[2J",
    "é",
    "x\u2028",
    "\uff3fx",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "place",
    [
        "framework",
        "dtype",
        "loss",
        "loop",
        "seed",
        "batch",
        "metric",
        "optimizer",
        "learning rate",
        "clip",
        "input",
        "layer",
        "op",
        "source",
        "option",
        "option text",
        "freeze",
        "tie",
        "field",
    ],
)
def test_text_that_tries_to_be_code_is_refused(place: str, text: str) -> None:
    first = MLP["layers"][0]
    fields: dict[str, dict[str, Any]] = {
        "framework": {"framework": text},
        "dtype": {"dtype": text},
        "loss": {"loss": text},
        "loop": {"loop": text},
        "seed": {"seed": text},
        "batch": {"batch": text},
        "metric": {"framework": "tensorflow", "loop": "fit", "metrics": [text]},
        "optimizer": {"optimizer": {"name": text}},
        "learning rate": {"optimizer": {"lr": text}},
        "clip": {"clip": {"kind": text, "limit": 1.0}},
        "input": {"inputs": [{"name": text, "shape": [6]}], "layers": [first | {"inputs": [text]}]},
        "layer": {"layers": [first | {"name": text}]},
        "op": {"layers": [first | {"op": text}]},
        "source": {"layers": [first | {"inputs": [text]}]},
        "option": {"layers": [first | {"options": {text: 1}}]},
        "option text": {"layers": [first | {"options": {"units": text}}]},
        "freeze": {"freeze": [{"layer": text}]},
        "tie": {"tie": [{"layer": "fc2", "to": text}]},
        "field": {text: 1},
    }
    with pytest.raises(ValidationError) as caught:
        case(**fields[place])
    assert one_line(caught.value).isprintable()


@settings(deadline=None)
@given(st.text(max_size=50))
def test_a_name_that_is_let_through_is_an_identifier_and_nothing_else(name: str) -> None:
    fields = {"layers": [MLP["layers"][0] | {"name": name}]}
    allowed = re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is not None and name not in {*RESERVED, "x"}
    try:
        case(**fields)
    except ValidationError:
        assert not allowed
    else:
        assert allowed
        assert name.isidentifier()


def test_nothing_can_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError):
        case().batch = 3  # type: ignore[misc]
