"""How each operation of the catalogue is written in Keras."""

import pytest
from keras_cases import IMAGE, TOKENS, VECTOR, case, layer

from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.tensorflow.model import build_lines
from d3bot.spec import Case, Freeze, Input, Tie

SEQUENCE = (Input(name="x", shape=(5, 4)),)
TWO = (Input(name="x", shape=(4,)), Input(name="y", shape=(4,)))

SEQUENCE_HEAD = (layer("b", "flatten", "a"), layer("c", "linear", "b", units=2))

WRITTEN = {
    "linear": (VECTOR, layer("a", "linear", "x", units=3), 'keras.layers.Dense(3, name="a")'),
    "conv1d": (SEQUENCE, layer("a", "conv1d", "x", channels=3), 'keras.layers.Conv1D(3, 3, name="a")'),
    "conv2d": (
        IMAGE,
        layer("a", "conv2d", "x", channels=3, stride=2, bias=False),
        'keras.layers.Conv2D(3, 3, strides=2, use_bias=False, name="a")',
    ),
    "conv_transpose1d": (
        SEQUENCE,
        layer("a", "conv_transpose1d", "x", channels=3, stride=2),
        'keras.layers.Conv1DTranspose(3, 3, strides=2, name="a")',
    ),
    "conv_transpose2d": (
        IMAGE,
        layer("a", "conv_transpose2d", "x", channels=3, bias=False),
        'keras.layers.Conv2DTranspose(3, 3, use_bias=False, name="a")',
    ),
    "grouped conv2d": (
        (Input(name="x", shape=(5, 5, 2)),),
        layer("a", "conv2d", "x", channels=4, groups=2),
        'keras.layers.Conv2D(4, 3, groups=2, name="a")',
    ),
    "embedding": (TOKENS, layer("a", "embedding", "words", dim=4), 'keras.layers.Embedding(9, 4, name="a")'),
    "lstm": (SEQUENCE, layer("a", "lstm", "x", units=3), 'keras.layers.LSTM(3, return_sequences=True, name="a")'),
    "gru": (SEQUENCE, layer("a", "gru", "x", units=3), 'keras.layers.GRU(3, return_sequences=True, name="a")'),
    "attention": (SEQUENCE, layer("a", "attention", "x"), 'keras.layers.MultiHeadAttention(2, 2, name="a")(x, x)'),
    "batch_norm": (VECTOR, layer("a", "batch_norm", "x"), 'keras.layers.BatchNormalization(name="a")'),
    "sync_batch_norm": (
        SEQUENCE,
        layer("a", "sync_batch_norm", "x"),
        'keras.layers.BatchNormalization(synchronized=True, name="a")',
    ),
    "dropout": (VECTOR, layer("a", "dropout", "x"), 'keras.layers.Dropout(1e-12, seed=0, name="a")'),
    "group_norm": (IMAGE, layer("a", "group_norm", "x"), 'keras.layers.GroupNormalization(2, name="a")'),
    "layer_norm": (VECTOR, layer("a", "layer_norm", "x"), 'keras.layers.LayerNormalization(name="a")'),
    "relu": (VECTOR, layer("a", "relu", "x"), 'keras.layers.Activation("relu")'),
    "tanh": (VECTOR, layer("a", "tanh", "x"), 'keras.layers.Activation("tanh")'),
    "sigmoid": (VECTOR, layer("a", "sigmoid", "x"), 'keras.layers.Activation("sigmoid")'),
    "gelu": (VECTOR, layer("a", "gelu", "x"), 'keras.layers.Activation("gelu")'),
    "add": (TWO, layer("a", "add", "x y"), "keras.Model([x, y], x + y)"),
    "softmax": (VECTOR, layer("a", "softmax", "x"), "keras.ops.softmax(x)"),
    "mixture": (
        (Input(name="share", shape=(2,)), *TWO),
        layer("a", "mixture", "share x y"),
        "share[..., 0:1] * x + share[..., 1:2] * y",
    ),
    "interaction": (
        (*TWO, Input(name="z", shape=(4,))),
        layer("a", "interaction", "x y z"),
        "keras.ops.stack([keras.ops.sum(x * y, axis=-1), keras.ops.sum(x * z, axis=-1), "
        "keras.ops.sum(y * z, axis=-1)], axis=-1)",
    ),
    "mul": (TWO, layer("a", "mul", "x y"), "keras.Model([x, y], x * y)"),
    "concat": (TWO, layer("a", "concat", "x y"), "keras.ops.concatenate([x, y], axis=-1)"),
    "flatten": (IMAGE, layer("a", "flatten", "x"), "keras.layers.Flatten()"),
    "mean": (IMAGE, layer("a", "mean", "x"), "keras.ops.mean(x, axis=(1, 2))"),
    "last": (SEQUENCE, layer("a", "last", "x"), "x[:, -1]"),
}


def text(one: Case) -> str:
    return "\n".join(build_lines(one))


def test_every_operation_of_the_catalogue_is_in_the_table() -> None:
    assert set(WRITTEN) - {"grouped conv2d"} == {
        name for name, kind in KINDS.items() if "tensorflow" in kind.frameworks
    }


@pytest.mark.parametrize("op", WRITTEN)
def test_an_operation_is_written_as_a_person_would(op: str) -> None:
    inputs, one, written = WRITTEN[op]
    assert written in text(case(inputs=inputs, layers=(one,)))


def test_attention_to_a_second_sequence_is_handed_it() -> None:
    inputs = (Input(name="x", shape=(3, 4)), Input(name="memory", shape=(5, 4)))
    one = case(inputs=inputs, layers=(layer("a", "attention", "x memory"), *SEQUENCE_HEAD))
    assert 'keras.layers.MultiHeadAttention(2, 2, name="a")(x, memory)' in text(one)


def test_a_chain_is_a_sequential_model() -> None:
    assert text(case()) == (
        'return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, name="hidden"), '
        'keras.layers.Activation("tanh"), keras.layers.Dense(3, name="out")], name="model")'
    )


def test_a_branch_is_a_functional_model_with_activations_around_their_input() -> None:
    layers = (
        layer("a", "linear", "x", units=6),
        layer("b", "gelu", "a"),
        layer("c", "add", "b x"),
    )
    assert text(case(layers=layers)) == (
        'x = keras.Input((6,), name="x")\n'
        'b = keras.ops.gelu(keras.layers.Dense(6, name="a")(x), approximate=False)\n'
        "return keras.Model(x, b + x)"
    )


def test_tied_layers_are_one_layer_called_twice_also_through_a_chain_of_ties() -> None:
    layers = tuple(layer(name, "linear", source, units=6) for name, source in (("a", "x"), ("b", "a"), ("c", "b")))
    written = text(case(layers=layers, tie=(Tie(layer="b", to="a"), Tie(layer="c", to="b"))))
    assert written.count("keras.layers.Dense") == 1
    assert written.count("shared_a(") == 3


def test_batch_norm_is_synchronised_under_fit_only() -> None:
    layers = (layer("a", "batch_norm", "x"),)
    assert "synchronized=True" in text(case(layers=layers, loop="fit"))
    assert "synchronized" not in text(case(layers=layers))


def test_freezing_a_tied_layer_freezes_the_one_it_shares() -> None:
    layers = tuple(layer(name, "linear", source, units=6) for name, source in (("a", "x"), ("b", "a"), ("c", "b")))
    one = case(layers=layers, tie=(Tie(layer="b", to="a"),), freeze=(Freeze(layer="b"),))
    assert 'model.get_layer("a").trainable = False' in build_lines(one)
