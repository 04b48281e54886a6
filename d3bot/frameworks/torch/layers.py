"""How each layer of the catalogue is written in PyTorch."""

from itertools import combinations

from d3bot.frameworks.code import mixed
from d3bot.frameworks.layers import CONVOLUTIONS, Shape, filled_options, vocab
from d3bot.spec import Case, Layer

_FUNCTIONS = {"relu": "torch.relu", "tanh": "torch.tanh", "sigmoid": "torch.sigmoid", "gelu": "F.gelu"}
_MODULES = {"relu": "nn.ReLU()", "tanh": "nn.Tanh()", "sigmoid": "nn.Sigmoid()", "gelu": "nn.GELU()"}
_POOLS = {"max_pool": "nn.MaxPool2d", "avg_pool": "nn.AvgPool2d"}
_ONE_ARGUMENT = (
    *("linear", "conv2d", "conv_transpose2d", "embedding", "embedding_bag"),
    *("layer_norm", "rms_norm", "group_norm", "scale", "dropout"),
)
"""Modules that are called with their input alone; a bag with weights stands in no chain."""
SCALE = """class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x):
        return x * self.factor"""
"""The class behind `scale`, for a script that has one."""


def constructor(case: Case, layer: Layer, shapes: dict[str, Shape]) -> str | None:
    """Return the expression that makes the layer's module; None for an operation that is a function."""
    options = filled_options(case, layer.name)
    shape = shapes[layer.inputs[0]]
    bias = "" if options.get("bias", True) else ", bias=False"
    match layer.op:
        case "linear":
            return f"nn.Linear({shape[-1]}, {options['units']}{bias})"
        case op if op in CONVOLUTIONS:
            channels = shape[-1] if op.endswith("1d") else shape[0]
            name = f"nn.Conv{'Transpose' if 'transpose' in op else ''}{op[-2:]}"
            more = "".join(f", {key}={options[key]}" for key in ("stride", "groups") if options[key] != 1)
            return f"{name}({channels}, {options['channels']}, {options['kernel']}{more}{bias})"
        case "embedding":
            return f"nn.Embedding({vocab(case, layer.name)}, {options['dim']})"
        case "embedding_bag":
            rows = vocab(case, layer.name)
            return f'nn.EmbeddingBag({rows}, {options["dim"]}, mode="{options["pooling"]}", padding_idx=0)'
        case "lstm" | "gru":
            return f"nn.{layer.op.upper()}({shape[-1]}, {options['units']}, batch_first=True)"
        case "attention":
            return f"nn.MultiheadAttention({shape[-1]}, {options['heads']}, batch_first=True)"
        case "batch_norm":
            return f"nn.BatchNorm2d({shape[0]})" if len(shape) == 3 else f"nn.BatchNorm1d({shape[-1]})"
        case "layer_norm":
            return f"nn.LayerNorm({shape[-1]})"
        case "rms_norm":
            return f"nn.RMSNorm({shape[-1]})"
        case "group_norm":
            return f"nn.GroupNorm({options['groups']}, {shape[0]})"
        case "scale":
            return "Scale()"
        case "dropout":
            return f"nn.Dropout({options['rate']})"
        case _:
            return None


def module_form(case: Case, layer: Layer, shapes: dict[str, Shape]) -> str | None:
    """Return an expression that can stand in an `nn.Sequential`; None if the layer has no such form."""
    if layer.op in _MODULES:
        return _MODULES[layer.op]
    if layer.op == "flatten":
        return "nn.Flatten()"
    if layer.op in _POOLS:
        return f"{_POOLS[layer.op]}({filled_options(case, layer.name)['size']})"
    if layer.op in _ONE_ARGUMENT:
        return constructor(case, layer, shapes)
    if layer.op == "batch_norm" and len(shapes[layer.inputs[0]]) != 2:
        return constructor(case, layer, shapes)
    return None


def call(layer: Layer, inputs: list[str], shapes: dict[str, Shape]) -> str:
    """Return the expression of the layer's output in `forward`.

    Sequences are (batch, length, features); what PyTorch wants channels first is transposed around its call.
    """
    x = inputs[0]
    match layer.op:
        case "conv1d" | "conv_transpose1d":
            return f"self.{layer.name}({x}.transpose(1, 2)).transpose(1, 2)"
        case "batch_norm" if len(shapes[layer.inputs[0]]) == 2:
            return f"self.{layer.name}({x}.transpose(1, 2)).transpose(1, 2)"
        case "lstm" | "gru":
            return f"self.{layer.name}({x})[0]"
        case "max_pool" | "avg_pool":
            return f"F.{layer.op}2d({x}, {layer.options.get('size', 2)})"
        case "embedding_bag" if len(inputs) > 1:
            return f"self.{layer.name}({x}, per_sample_weights={inputs[1]})"
        case "attention":
            return f"self.{layer.name}({x}, {inputs[-1]}, {inputs[-1]}, need_weights=False)[0]"
        case "relu" | "tanh" | "sigmoid" | "gelu":
            return f"{_FUNCTIONS[layer.op]}({x})"
        case "softmax":
            return f"torch.softmax({x}, dim=-1)"
        case "mixture":
            return mixed(x, inputs[1:])
        case "interaction":
            products = (f"({one} * {other}).sum(-1)" for one, other in combinations(inputs, 2))
            return f"torch.stack([{', '.join(products)}], dim=-1)"
        case "add":
            return " + ".join(inputs)
        case "mul":
            return " * ".join(inputs)
        case "concat":
            return f"torch.cat([{', '.join(inputs)}], dim=-1)"
        case "flatten":
            return f"{x}.flatten(1)"
        case "mean":
            return f"{x}.mean(dim=(2, 3))" if len(shapes[layer.inputs[0]]) == 3 else f"{x}.mean(dim=1)"
        case "last":
            return f"{x}[:, -1]"
        case _:
            return f"self.{layer.name}({x})"
