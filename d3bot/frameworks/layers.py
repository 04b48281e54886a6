"""The layer catalogue: which operations a case may use, their options and how shapes go through them.

Shapes are per example.  A sequence is (length, features) in both frameworks; an image is (channels, height, width) in
torch and (height, width, channels) in tensorflow, as each library's convolution has it.  How an operation is written,
each framework's own `layers` module says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from d3bot.frameworks.base import Option
from d3bot.spec import FRAMEWORKS, Case, Framework, Scalar, SpecError

Shape = tuple[int, ...]
ShapeRule = Callable[[Sequence[Shape], Mapping[str, Scalar], Framework], Shape]


@dataclass(frozen=True)
class LayerKind:
    """An operation that a case's layers may name."""

    name: str
    doc: str
    shape: ShapeRule
    """(input shapes, options with defaults, framework) -> output shape; SpecError if they do not fit."""
    options: tuple[Option, ...] = ()
    arity: tuple[int, int] = (1, 1)
    tokens: bool = False
    """Whether the first input holds integer tokens rather than real numbers."""
    trainable: bool = False
    """Whether the layer has parameters."""
    frameworks: tuple[Framework, ...] = FRAMEWORKS
    """Where the operation exists."""

    def filled(self, options: Mapping[str, Scalar], where: str) -> dict[str, Scalar]:
        """Return the options with defaults; SpecError on an unknown, missing or wrong one."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name not in known:
                has = ", ".join(known) or "none"
                raise SpecError(f"{where}: {self.name} has no option {name!r}; it has {has}")
            known[name].check(value, where)
        full: dict[str, Scalar] = {}
        for option in self.options:
            chosen: Scalar | None = options.get(option.name)
            chosen = option.default if chosen is None else chosen
            if chosen is None:
                raise SpecError(f"{where}: {self.name} needs the option {option.name} ({option.doc})")
            full[option.name] = chosen
        return full


def whole(options: Mapping[str, Scalar], name: str) -> int:
    """Return an option that the catalogue has checked to be a whole number."""
    return int(options[name])


def _same(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    return shapes[0]


def _equal(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if any(shape != shapes[0] for shape in shapes):
        raise SpecError(f"the inputs must have one shape, not {', '.join(map(str, shapes))}")
    return shapes[0]


def _concat(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if any(len(s) > 2 or s[:-1] != shapes[0][:-1] for s in shapes):
        raise SpecError(f"the inputs must be vectors or sequences of one length, not {', '.join(map(str, shapes))}")
    return (*shapes[0][:-1], sum(s[-1] for s in shapes))


def _last_axis(option: str) -> ShapeRule:
    def rule(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
        if len(shapes[0]) > 2:
            raise SpecError(f"needs a vector or a sequence, not {shapes[0]}")
        return (*shapes[0][:-1], whole(options, option))

    return rule


def _embedding(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    return (*shapes[0], whole(options, "dim"))


def _embedding_bag(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(shapes[0]) != 1:
        raise SpecError(f"needs a bag of tokens, not {shapes[0]}")
    if len(shapes) > 1 and (shapes[1] != shapes[0] or options["pooling"] != "sum"):
        raise SpecError(f"takes weights of the tokens' shape {shapes[0]}, and only where it sums")
    return (whole(options, "dim"),)


def _sequence(shapes: Sequence[Shape]) -> Shape:
    if len(shapes[0]) != 2:
        raise SpecError(f"needs a sequence (length, features), not {shapes[0]}")
    return shapes[0]


def _recurrent(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    return (_sequence(shapes)[0], whole(options, "units"))


def _attention(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    length, features = _sequence(shapes)
    if features % whole(options, "heads"):
        raise SpecError(f"{features} features do not divide into {options['heads']} heads")
    if _sequence(shapes[-1:])[-1] != features:
        raise SpecError(f"attends to a sequence of its own {features} features, not of {shapes[-1][-1]}")
    return (length, features)


def _mixture(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    shares, *experts = shapes
    out = _equal(experts, options, framework)
    if len(out) > 2 or shares != (*out[:-1], len(experts)):
        raise SpecError(f"takes {len(experts)} shares, one an expert, for experts of {out}, not {shares}")
    return out


def _interaction(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(_equal(shapes, options, framework)) != 1:
        raise SpecError(f"needs vectors, not {shapes[0]}")
    return (len(shapes) * (len(shapes) - 1) // 2,)


_Slide = Callable[[int, Mapping[str, Scalar], Framework], int]
"""(length of a side, options, framework) -> its length after a convolution."""


def _conv1d(slide: _Slide) -> ShapeRule:
    def rule(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
        length, channels = _sequence(shapes)
        _check_groups(channels, options, framework, slide)
        return (slide(length, options, framework), whole(options, "channels"))

    return rule


def _conv2d(slide: _Slide) -> ShapeRule:
    def rule(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
        if len(shapes[0]) != 3:
            raise SpecError(f"needs an image of three dimensions, not {shapes[0]}")
        first = framework == "torch"
        _check_groups(shapes[0][0 if first else -1], options, framework, slide)
        size = tuple(slide(side, options, framework) for side in (shapes[0][1:] if first else shapes[0][:2]))
        return (whole(options, "channels"), *size) if first else (*size, whole(options, "channels"))

    return rule


def _check_groups(channels: int, options: Mapping[str, Scalar], framework: Framework, slide: _Slide) -> None:
    """Raise SpecError if the channels, in and out, do not divide into the groups, or there are no groups."""
    groups = whole(options, "groups")
    if groups > 1 and framework != "torch" and slide is _spread:
        raise SpecError(f"with groups = {groups} exists for torch only")
    if channels % groups or whole(options, "channels") % groups:
        raise SpecError(f"{channels} channels in and {options['channels']} out do not divide into {groups} groups")


def _slide(length: int, options: Mapping[str, Scalar], framework: Framework) -> int:
    left = length - whole(options, "kernel")
    if left < 0:
        raise SpecError(f"a kernel of {options['kernel']} does not fit into {length}")
    return left // whole(options, "stride") + 1


def _spread(length: int, options: Mapping[str, Scalar], framework: Framework) -> int:
    """Return what a transposed convolution makes of a side; Keras gives each place at least a whole stride."""
    kernel, stride = whole(options, "kernel"), whole(options, "stride")
    return (length - 1) * stride + (kernel if framework == "torch" else max(kernel, stride))


def _layer_norm(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(shapes[0]) > 2:
        raise SpecError(f"needs a vector or a sequence, not {shapes[0]}")
    return shapes[0]


def _group_norm(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(shapes[0]) == 2:
        raise SpecError(f"needs a vector or an image, not {shapes[0]}")
    channels = shapes[0][-1] if len(shapes[0]) == 1 or framework == "tensorflow" else shapes[0][0]
    if channels % whole(options, "groups"):
        raise SpecError(f"{channels} channels do not divide into {options['groups']} groups")
    return shapes[0]


def _pool(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(shapes[0]) != 3:
        raise SpecError(f"needs an image of three dimensions, not {shapes[0]}")
    size = whole(options, "size")
    first = framework == "torch"
    height, width = (side // size for side in (shapes[0][1:] if first else shapes[0][:2]))
    if not height or not width:
        raise SpecError(f"windows of {size} do not fit into {shapes[0]}")
    return (shapes[0][0], height, width) if first else (height, width, shapes[0][-1])


def _flatten(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    return (prod(shapes[0]),)


def _mean(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    if len(shapes[0]) == 3:
        return (shapes[0][0] if framework == "torch" else shapes[0][-1],)
    return (_sequence(shapes)[1],)


def _last(shapes: Sequence[Shape], options: Mapping[str, Scalar], framework: Framework) -> Shape:
    return (_sequence(shapes)[1],)


_UNITS = Option("units", "features of the output", high=512)
_BIAS = Option("bias", "whether it adds a bias", default=True, choices=(True, False))
_CONV = (
    Option("channels", "channels of the output", high=512),
    Option("kernel", "length of the kernel", default=3, high=15),
    Option("stride", "step of the kernel", default=1, high=8),
    Option("groups", "groups of channels that are convolved apart", default=1, high=64),
    _BIAS,
)
_WINDOW = (Option("size", "side of the windows, and their distance", default=2, high=8),)

KINDS: dict[str, LayerKind] = {
    kind.name: kind
    for kind in (
        LayerKind("linear", "x W + b on the last axis", _last_axis("units"), (_UNITS, _BIAS), trainable=True),
        LayerKind("conv1d", "convolution over a sequence, no padding", _conv1d(_slide), _CONV, trainable=True),
        LayerKind("conv2d", "convolution over an image, no padding", _conv2d(_slide), _CONV, trainable=True),
        LayerKind(
            "conv_transpose1d", "transposed convolution: a longer sequence", _conv1d(_spread), _CONV, trainable=True
        ),
        LayerKind(
            "conv_transpose2d", "transposed convolution: a larger image", _conv2d(_spread), _CONV, trainable=True
        ),
        LayerKind(
            "embedding",
            "a row of a table for each token; the table has as many rows as the input's vocab",
            _embedding,
            (Option("dim", "features of a row", high=512),),
            tokens=True,
            trainable=True,
        ),
        LayerKind(
            "embedding_bag",
            "the rows of a table for a bag of tokens, pooled; token 0 stands for none, so a bag may be empty; a second "
            "input weights the rows of a sum",
            _embedding_bag,
            (
                Option("dim", "features of a row", high=512),
                Option("pooling", "what becomes of a bag's rows", "sum", ("sum", "mean")),
            ),
            arity=(1, 2),
            tokens=True,
            trainable=True,
            frameworks=("torch",),
        ),
        LayerKind("lstm", "LSTM, every time step's output", _recurrent, (_UNITS,), trainable=True),
        LayerKind("gru", "GRU, every time step's output", _recurrent, (_UNITS,), trainable=True),
        LayerKind(
            "attention",
            "multi-head attention of a sequence to itself, or to a second input",
            _attention,
            (Option("heads", "number of heads", default=2, high=16),),
            arity=(1, 2),
            trainable=True,
        ),
        LayerKind("batch_norm", "batch normalisation over features or channels", _same, trainable=True),
        LayerKind(
            "sync_batch_norm",
            "batch normalisation by the statistics of the global batch",
            _same,
            trainable=True,
            frameworks=("tensorflow",),
        ),
        LayerKind(
            "dropout",
            "zeros in random places while training",
            _same,
            (Option("rate", "share that becomes zero; 1e-12 is none in practice", 1e-12, (1e-12, 0.1, 0.5)),),
        ),
        LayerKind("layer_norm", "layer normalisation over the last axis", _layer_norm, trainable=True),
        LayerKind(
            "rms_norm",
            "division by the root mean square of the last axis, times a weight",
            _layer_norm,
            trainable=True,
            frameworks=("torch",),
        ),
        LayerKind(
            "group_norm",
            "normalisation over groups of channels, of one row alone",
            _group_norm,
            (Option("groups", "number of groups", default=2, high=64),),
            trainable=True,
        ),
        LayerKind(
            "scale",
            "product with one learned number, a parameter of one element",
            _same,
            trainable=True,
            frameworks=("torch",),
        ),
        LayerKind("max_pool", "largest value of each window of an image", _pool, _WINDOW, frameworks=("torch",)),
        LayerKind("avg_pool", "mean of each window of an image", _pool, _WINDOW, frameworks=("torch",)),
        LayerKind("relu", "max(x, 0)", _same),
        LayerKind("tanh", "hyperbolic tangent", _same),
        LayerKind("sigmoid", "logistic function", _same),
        LayerKind("gelu", "Gaussian error linear unit, exact form", _same),
        LayerKind("softmax", "shares that add up to one, over the last axis", _layer_norm),
        LayerKind("mixture", "sum of its other inputs, each times its share in the first", _mixture, arity=(3, 5)),
        LayerKind(
            "interaction", "product of every two of its inputs, summed over features", _interaction, arity=(3, 5)
        ),
        LayerKind("add", "sum of its inputs", _equal, arity=(2, 4)),
        LayerKind("mul", "product of its inputs", _equal, arity=(2, 2)),
        LayerKind("concat", "its inputs side by side on the last axis", _concat, arity=(2, 4)),
        LayerKind("flatten", "one vector of everything", _flatten),
        LayerKind("mean", "mean over the sequence, or over an image's pixels", _mean),
        LayerKind("last", "the last time step of a sequence", _last),
    )
}

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu")
CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")


def infer_shapes(case: Case) -> dict[str, Shape]:
    """Return the per-example shape of every input and layer.

    SpecError names the layer that does not exist, does not fit its inputs or has a wrong option.
    """
    shapes: dict[str, Shape] = {item.name: item.shape for item in case.inputs}
    tokens = {item.name for item in case.inputs if item.vocab}
    for layer in case.layers:
        where = f"layer {layer.name}"
        kind = KINDS.get(layer.op)
        if kind is None:
            raise SpecError(f"{where}: there is no layer {layer.op!r}; `d3bot list layers` shows what there is")
        if case.framework not in kind.frameworks:
            raise SpecError(f"{where}: {layer.op} exists for {' and '.join(kind.frameworks)} only")
        low, high = kind.arity
        if not low <= len(layer.inputs) <= high:
            raise SpecError(f"{where}: {layer.op} takes {low} to {high} inputs, not {len(layer.inputs)}")
        if any((source in tokens) != (kind.tokens and not place) for place, source in enumerate(layer.inputs)):
            need = "tokens (an input with vocab > 0)" if kind.tokens else "real numbers, not tokens"
            raise SpecError(f"{where}: {layer.op} needs {need}")
        try:
            options = kind.filled(layer.options, where)
            shape = kind.shape([shapes[name] for name in layer.inputs], options, case.framework)
        except SpecError as error:
            text = str(error)
            raise SpecError(text if text.startswith(where) else f"{where}: {layer.op} {text}") from error
        if len(shape) > 3:
            raise SpecError(f"{where}: {layer.op} gives {shape}, more than three dimensions")
        shapes[layer.name] = shape
    for cast in case.casts:
        op = case.layer(cast.layer).op
        if not KINDS[op].trainable or op == "batch_norm":
            raise SpecError(f"casts: {cast.layer} is a {op}; only a layer of parameters and no statistics can be cast")
    for name in case.recompute:
        op = case.layer(name).op
        if not KINDS[op].trainable and op != "dropout":
            raise SpecError(f"recompute: {name} is a {op}; name layers with parameters, or dropouts")
    for skip in case.skips:
        source = case.layer(skip.layer).inputs[0]
        if shapes[source] != shapes[skip.layer]:
            raise SpecError(
                f"skips: {skip.layer} makes {shapes[skip.layer]} of {shapes[source]}; "
                "only a layer that keeps its input's shape can be left out"
            )
    output = shapes[case.layers[-1].name]
    if case.loss == "cross_entropy" and (len(output) != 1 or output[0] < 2):
        raise SpecError(f"loss: cross_entropy needs an output of at least two class scores, not {output}")
    return shapes


def filled_options(case: Case, name: str) -> dict[str, Scalar]:
    """Return a layer's options with the catalogue's defaults."""
    layer = case.layer(name)
    return KINDS[layer.op].filled(layer.options, f"layer {name}")


def vocab(case: Case, name: str) -> int:
    """Return the number of rows of an embedding: the vocab of the input it reads."""
    source = case.layer(name).inputs[0]
    return next(item.vocab for item in case.inputs if item.name == source)


def consumers(case: Case) -> dict[str, int]:
    """Return how many layers read each input and layer; the output counts as read once."""
    counts = {item.name: 0 for item in case.inputs} | {layer.name: 0 for layer in case.layers}
    for layer in case.layers:
        for source in layer.inputs:
            counts[source] += 1
    counts[case.layers[-1].name] += 1
    return counts


def drops(case: Case) -> bool:
    """Return whether a dropout of the model sets anything to zero: then which place a row has in its batch counts."""
    rates = (filled_options(case, layer.name)["rate"] for layer in case.layers if layer.op == "dropout")
    return any(float(rate) > 1e-9 for rate in rates)
