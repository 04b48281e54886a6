"""Small torch cases, made by what differs."""

from typing import Any

from d3bot.spec import Case, Input, Layer


def layer(name: str, op: str, *inputs: str, **options: Any) -> Layer:
    """Return a layer of the catalogue."""
    return Layer(name=name, op=op, inputs=inputs, options=options)


def case(**changes: Any) -> Case:
    """Return a case of two linear layers, `hidden` and `out`, with `changes`."""
    fields: dict[str, Any] = {
        "framework": "torch",
        "inputs": (Input(name="x", shape=(6,)),),
        "layers": (
            layer("hidden", "linear", "x", units=6),
            layer("act", "tanh", "hidden"),
            layer("out", "linear", "act", units=2),
        ),
    }
    return Case(**(fields | changes))


def chain(*ops: str) -> Case:
    """Return a case of these operations one after the other, named a, b, c, ...; linear layers have 6 units."""
    names = ["x", *"abcdefgh"[: len(ops)]]
    return case(
        layers=tuple(
            layer(names[i + 1], op, names[i], **({"units": 6} if op == "linear" else {})) for i, op in enumerate(ops)
        )
    )
