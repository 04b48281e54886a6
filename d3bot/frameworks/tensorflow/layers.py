"""How each layer of the catalogue is written in Keras."""

from itertools import combinations

from d3bot.frameworks.code import mixed
from d3bot.frameworks.layers import ACTIVATIONS, CONVOLUTIONS, Shape, filled_options, vocab
from d3bot.spec import Case, Layer

BATCH_NORMS = ("batch_norm", "sync_batch_norm")
"""Layers with moving statistics."""


def constructor(case: Case, layer: Layer, shapes: dict[str, Shape]) -> str | None:
    """Return the expression that makes the layer object; None for an operation without parameters."""
    options = filled_options(case, layer.name)
    bias = "" if options.get("bias", True) else ", use_bias=False"
    name = f', name="{layer.name}"'
    penalised = case.l2 and case.loop != "custom"  # a custom loop adds the penalty itself
    penalty = f", kernel_regularizer=keras.regularizers.L2({case.l2})" if penalised else ""
    match layer.op:
        case "linear":
            return f"keras.layers.Dense({options['units']}{bias}{penalty}{name})"
        case op if op in CONVOLUTIONS:
            more = f", strides={options['stride']}" if options["stride"] != 1 else ""
            more += f", groups={options['groups']}" if options["groups"] != 1 else ""
            kind = f"Conv{op[-2]}D{'Transpose' if 'transpose' in op else ''}"
            return f"keras.layers.{kind}({options['channels']}, {options['kernel']}{more}{bias}{penalty}{name})"
        case "embedding":
            return f"keras.layers.Embedding({vocab(case, layer.name)}, {options['dim']}{name})"
        case "lstm" | "gru":
            return f"keras.layers.{layer.op.upper()}({options['units']}, return_sequences=True{name})"
        case "attention":
            heads = int(options["heads"])
            return f"keras.layers.MultiHeadAttention({heads}, {shapes[layer.inputs[0]][-1] // heads}{name})"
        case "batch_norm":
            # Under fit the statistics are synchronised, so that the whole batch on one device is the same.
            synchronized = "synchronized=True, " if case.loop != "custom" else ""
            return f"keras.layers.BatchNormalization({synchronized}{name[2:]})"
        case "sync_batch_norm":
            return f"keras.layers.BatchNormalization(synchronized=True{name})"
        case "dropout":
            return f"keras.layers.Dropout({options['rate']}, seed={case.seed}{name})"
        case "group_norm":
            return f"keras.layers.GroupNormalization({options['groups']}{name})"
        case "layer_norm":
            return f"keras.layers.LayerNormalization({name[2:]})"
        case _:
            return None


def sequential_form(case: Case, layer: Layer, shapes: dict[str, Shape]) -> str | None:
    """Return an expression that can stand in a `keras.Sequential`; None if the layer has no such form."""
    if layer.op in ACTIVATIONS:
        return f'keras.layers.Activation("{layer.op}")'
    if layer.op == "flatten":
        return "keras.layers.Flatten()"
    return None if layer.op == "attention" else constructor(case, layer, shapes)


def call(case: Case, layer: Layer, inputs: list[str], shapes: dict[str, Shape], shared: str | None) -> str:
    """Return the expression of the layer's output in the functional API.

    `shared` is the variable that holds the layer object where two nodes use one object, else None.
    """
    x = inputs[0]
    match layer.op:
        case "gelu":
            return f"keras.ops.gelu({x}, approximate=False)"
        case "relu" | "tanh" | "sigmoid" | "softmax":
            return f"keras.ops.{layer.op}({x})"
        case "mixture":
            return mixed(x, inputs[1:])
        case "interaction":
            products = (f"keras.ops.sum({one} * {other}, axis=-1)" for one, other in combinations(inputs, 2))
            return f"keras.ops.stack([{', '.join(products)}], axis=-1)"
        case "add":
            return " + ".join(inputs)
        case "mul":
            return " * ".join(inputs)
        case "concat":
            return f"keras.ops.concatenate([{', '.join(inputs)}], axis=-1)"
        case "flatten":
            return f"keras.layers.Flatten()({x})"
        case "mean":
            return f"keras.ops.mean({x}, axis={'(1, 2)' if len(shapes[layer.inputs[0]]) == 3 else 1})"
        case "last":
            return f"{x}[:, -1]"
        case _:
            arguments = f"{x}, {inputs[-1]}" if layer.op == "attention" else x
            return f"{shared or constructor(case, layer, shapes)}({arguments})"
