"""Small tensorflow cases that several test modules share."""

from typing import Any

from d3bot.spec import Case, Input, Layer

VECTOR = (Input(name="x", shape=(6,)),)
TOKENS = (Input(name="words", shape=(5,), vocab=9),)
IMAGE = (Input(name="x", shape=(6, 6, 2)),)


def layer(name: str, op: str, inputs: str, **options: Any) -> Layer:
    """`inputs` holds the names of one or more sources with spaces between them."""
    return Layer(name=name, op=op, inputs=tuple(inputs.split()), options=options)


PERCEPTRON = (
    layer("hidden", "linear", "x", units=5),
    layer("act", "tanh", "hidden"),
    layer("out", "linear", "act", units=3),
)


def case(**changes: Any) -> Case:
    """A perceptron in a custom loop, with changes."""
    return Case(**({"framework": "tensorflow", "inputs": VECTOR, "layers": PERCEPTRON, "batch": 12} | changes))
