"""Cells: the building blocks of fresh models, each a few layers from one tensor to another of the same kind."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from d3bot.frameworks.layers import ACTIVATIONS
from d3bot.generate.sketch import Sketch

ROOM = 6
"""The most layers that one cell adds."""


@dataclass
class Taste:
    """What the sizes and activations of one model are drawn from.

    Sizes are even, but for one: `odd` says which kind of size is odd once (`hidden`: the units of a linear layer
    inside the model, `other`: channels, units of an LSTM or features of an embedding), or is empty.
    """

    chance: random.Random
    odd: str = ""

    def hidden(self) -> int:
        """Return the number of units of an inner linear layer."""
        return self._size("hidden")

    def other(self) -> int:
        """Return a number of channels, LSTM units or embedding features."""
        return self._size("other")

    def _size(self, kind: str) -> int:
        size = self.chance.choice((4, 6, 6, 8, 8, 10, 12))
        if self.odd == kind:
            self.odd = ""
            size -= 1
        return size

    def activation(self) -> str:
        """Return an activation."""
        return self.chance.choice(ACTIVATIONS)

    def heads(self, features: int) -> int:
        """Return a number of attention heads that divides the features."""
        return self.chance.choice([heads for heads in (1, 2, 2, 4) if features % heads == 0])


Cell = Callable[[Sketch, str, Taste], str]
"""(model so far, tensor, taste) -> tensor."""


def dense(sketch: Sketch, x: str, taste: Taste) -> str:
    """A linear layer and an activation; on a sequence, the same at every position."""
    bias = {} if taste.chance.random() < 0.8 else {"bias": False}
    return sketch.add(taste.activation(), sketch.add("linear", x, units=taste.hidden(), **bias))


def residual(sketch: Sketch, x: str, taste: Taste) -> str:
    """x + two linear layers of it, with an activation between and, at times, a layer norm before."""
    inner = sketch.add("layer_norm", x) if taste.chance.random() < 0.5 else x
    inner = sketch.add(taste.activation(), sketch.add("linear", inner, units=taste.hidden()))
    inner = sketch.add("linear", inner, units=sketch.width(x))
    if sketch.framework == "torch" and taste.chance.random() < 0.3:
        inner = sketch.add("scale", inner)
    return sketch.add("add", x, inner)


def branch(sketch: Sketch, x: str, taste: Taste) -> str:
    """Two branches side by side: a plain linear one and one with an activation."""
    left = sketch.add("linear", x, units=taste.hidden())
    right = sketch.add(taste.activation(), sketch.add("linear", x, units=taste.hidden()))
    return sketch.add("concat", left, right)


def gate(sketch: Sketch, x: str, taste: Taste) -> str:
    """A gated linear unit: one linear layer times the sigmoid of another."""
    units = taste.hidden()
    value = sketch.add("linear", x, units=units)
    return sketch.add("mul", value, sketch.add("sigmoid", sketch.add("linear", x, units=units)))


def normed(sketch: Sketch, x: str, taste: Taste) -> str:
    """A linear layer, a batch, layer or RMS norm, an activation.

    Mostly without a bias: before a batch norm its gradient is zero but for rounding, which tells little.
    """
    bias = {"bias": False} if taste.chance.random() < 0.8 else {}
    inner = sketch.add("linear", x, units=taste.hidden(), **bias)
    norms = ("batch_norm", "layer_norm", *(("rms_norm",) if sketch.framework == "torch" else ()))
    return sketch.add(taste.activation(), sketch.add(taste.chance.choice(norms), inner))


def conv(sketch: Sketch, x: str, taste: Taste) -> str:
    """A convolution over an image, an activation and, at times, a transposed one back to a larger image, or pooling."""
    inner = sketch.add(taste.activation(), _conv2d(sketch, x, taste, taste.other()))
    if taste.chance.random() < 0.3:
        return _transposed(sketch, inner, taste, "conv_transpose2d")
    if sketch.framework == "torch" and sketch.length(inner) >= 2 and taste.chance.random() < 0.6:
        inner = sketch.add(taste.chance.choice(("max_pool", "avg_pool")), inner)
    return inner


def conv_normed(sketch: Sketch, x: str, taste: Taste) -> str:
    """A convolution without bias, a batch or group norm, an activation: the block of most image models."""
    inner = _conv2d(sketch, x, taste, taste.other(), bias=False)
    grouped = sketch.width(inner) % 2 == 0 and taste.chance.random() < 0.4
    inner = sketch.add("group_norm" if grouped else "batch_norm", inner)
    return sketch.add(taste.activation(), inner)


def conv_residual(sketch: Sketch, x: str, taste: Taste) -> str:
    """x + two 1x1 convolutions of it."""
    inner = sketch.add(taste.activation(), sketch.add("conv2d", x, channels=taste.other(), kernel=1))
    return sketch.add("add", x, sketch.add("conv2d", inner, channels=sketch.width(x), kernel=1))


def conv_gate(sketch: Sketch, x: str, taste: Taste) -> str:
    """A 1x1 convolution times the sigmoid of another."""
    channels = taste.other()
    value = sketch.add("conv2d", x, channels=channels, kernel=1)
    return sketch.add("mul", value, sketch.add("sigmoid", sketch.add("conv2d", x, channels=channels, kernel=1)))


def conv_sequence(sketch: Sketch, x: str, taste: Taste) -> str:
    """A convolution over a sequence that leaves two positions, an activation and, at times, a transposed one back."""
    channels = taste.other()
    kernel = min(taste.chance.choice((2, 3)), sketch.length(x) - 1)
    groups = _groups(sketch, x, taste, channels)
    inner = sketch.add(taste.activation(), sketch.add("conv1d", x, channels=channels, kernel=kernel, **groups))
    return _transposed(sketch, inner, taste, "conv_transpose1d") if taste.chance.random() < 0.3 else inner


def recurrent(sketch: Sketch, x: str, taste: Taste) -> str:
    """An LSTM or a GRU."""
    return sketch.add("gru" if taste.chance.random() < 0.4 else "lstm", x, units=taste.other())


def experts(sketch: Sketch, x: str, taste: Taste) -> str:
    """A mixture of two or three experts, each a linear layer, by the softmax of a gate over the same input."""
    count, units = taste.chance.choice((2, 2, 3)), taste.hidden()
    shares = sketch.add("softmax", sketch.add("linear", x, units=count))
    return sketch.add("mixture", shares, *(sketch.add("linear", x, units=units) for _ in range(count)))


def decoder(sketch: Sketch, x: str, memory: str, taste: Taste) -> str:
    """Attention to a sequence that was encoded, with its residual and layer norm."""
    inner = sketch.add("attention", x, memory, heads=taste.heads(sketch.width(x)))
    return sketch.add("layer_norm", sketch.add("add", x, inner))


def attention(sketch: Sketch, x: str, taste: Taste) -> str:
    """Self-attention with its residual and layer norm."""
    inner = sketch.add("attention", x, heads=taste.heads(sketch.width(x)))
    return sketch.add("layer_norm", sketch.add("add", x, inner))


def _conv2d(sketch: Sketch, x: str, taste: Taste, channels: int, **bias: bool) -> str:
    side = sketch.length(x)
    kernel = min(taste.chance.choice((2, 3)), side)
    stride = {"stride": 2} if side >= 5 and taste.chance.random() < 0.4 else {}
    groups = _groups(sketch, x, taste, channels)
    return sketch.add("conv2d", x, channels=channels, kernel=kernel, **stride, **groups, **bias)


def _transposed(sketch: Sketch, x: str, taste: Taste, op: str) -> str:
    """A transposed convolution, of few places at times with a stride, and an activation."""
    channels = taste.other()
    stride = {"stride": 2} if sketch.length(x) <= 3 and taste.chance.random() < 0.5 else {}
    groups = _groups(sketch, x, taste, channels)
    return sketch.add(taste.activation(), sketch.add(op, x, channels=channels, kernel=2, **stride, **groups))


def _groups(sketch: Sketch, x: str, taste: Taste, channels: int) -> dict[str, int]:
    """Return the option of two groups, or of one for each channel, for some of the convolutions that can have them."""
    width = sketch.width(x)
    able = [groups for groups in (2, width) if groups > 1 and width % groups == 0 and channels % groups == 0]
    if not able or sketch.framework != "torch" or taste.chance.random() >= 0.4:
        return {}
    return {"groups": taste.chance.choice(able)}


VECTOR: tuple[Cell, ...] = (dense, dense, residual, branch, gate, normed, experts)
SEQUENCE: tuple[Cell, ...] = (dense, residual, gate, normed, conv_sequence, recurrent, attention, experts)
IMAGE: tuple[Cell, ...] = (conv, conv_normed, conv_residual, conv_gate)
