"""A model while it is being drawn: layers are added one by one, and their shapes are known at once."""

from collections import Counter
from dataclasses import dataclass, field

from d3bot.frameworks.layers import KINDS, Shape
from d3bot.spec import Framework, Input, Layer, Scalar

_SHORT = {
    "linear": "fc",
    "conv1d": "conv",
    "conv2d": "conv",
    "conv_transpose1d": "conv",
    "conv_transpose2d": "conv",
    "dropout": "drop",
    "embedding": "embed",
    "embedding_bag": "table",
    "attention": "att",
    "batch_norm": "norm",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "group_norm": "norm",
    "max_pool": "pool",
    "avg_pool": "pool",
    "add": "skip",
    "mul": "gate",
    "softmax": "share",
    "mixture": "mix",
    "interaction": "dots",
    "concat": "both",
    "flatten": "flat",
    "mean": "pool",
}


@dataclass
class Sketch:
    """The inputs and layers so far.  Names are short and in the field's words: fc1, conv1, norm2."""

    framework: Framework
    inputs: list[Input] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)

    def input(self, name: str, shape: Shape, vocab: int = 0) -> str:
        """Add a model input and return its name; `shape` is per example."""
        self.inputs.append(Input(name=name, shape=shape, vocab=vocab))
        self.shapes[name] = shape
        return name

    def add(self, op: str, *sources: str, **options: Scalar) -> str:
        """Add a layer and return its name; SpecError if it does not fit its inputs."""
        short = _SHORT.get(op, op)
        self._names[short] += 1
        name = f"{short}{self._names[short]}"
        kind = KINDS[op]
        filled = kind.filled(options, f"layer {name}")
        shape = kind.shape([self.shapes[source] for source in sources], filled, self.framework)
        self.layers.append(Layer(name=name, op=op, inputs=sources, options=options))
        self.shapes[name] = shape
        return name

    def width(self, name: str) -> int:
        """Return the number of features of a vector or sequence, or of channels of an image."""
        shape = self.shapes[name]
        return shape[0] if len(shape) == 3 and self.framework == "torch" else shape[-1]

    def length(self, name: str) -> int:
        """Return the length of a sequence, or the side of an image."""
        shape = self.shapes[name]
        return shape[1] if len(shape) == 3 else shape[0]
