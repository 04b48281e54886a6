"""Fresh models: a stem, cells with skips and branches, and a head."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from d3bot.generate import cells
from d3bot.generate.cells import Cell, Taste
from d3bot.generate.sketch import Sketch
from d3bot.spec import Framework, Input, Layer, Tie

MOST_LAYERS = 12
MOST_FEATURES = 64


@dataclass(frozen=True)
class Theme:
    """What a model is made around: the kind of its input and one cell that it has in any case."""

    input: Literal["vector", "image", "sequence", "mixed", "crossed", "pair"]
    cell: Cell


THEMES: tuple[Theme, ...] = (
    Theme("vector", cells.dense),
    Theme("vector", cells.residual),
    Theme("vector", cells.branch),
    Theme("vector", cells.gate),
    Theme("vector", cells.normed),
    Theme("image", cells.conv),
    Theme("image", cells.conv_normed),
    Theme("image", cells.conv_residual),
    Theme("sequence", cells.conv_sequence),
    Theme("sequence", cells.recurrent),
    Theme("sequence", cells.attention),
    Theme("mixed", cells.dense),
    Theme("vector", cells.experts),
    Theme("crossed", cells.dense),
    Theme("pair", cells.dense),
)
"""Dealt evenly, so that fifteen fresh cases hold every kind of model."""


@dataclass(frozen=True)
class Model:
    """A drawn model.  `tie` names two layers of one weight, if the model was asked for some."""

    inputs: tuple[Input, ...]
    layers: tuple[Layer, ...]
    tie: tuple[Tie, ...]
    loss: Literal["mse", "cross_entropy"]
    spare: str = ""
    """A layer with parameters that the model could do without, if it was asked for one."""


def draw_model(
    framework: Framework,
    theme: Theme,
    taste: Taste,
    loss: Literal["mse", "cross_entropy"],
    tied: bool,
    spare: bool = False,
) -> Model:
    """Return a model of 3 to 12 layers around the theme's cell.

    A tied model of PyTorch shares the weight of its embedding with its head where it has one (the loss then is
    cross-entropy over the vocabulary).  Other tied models use one weight for two linear layers, as do all of Keras,
    which shares layers and not weights.  With `spare` a linear layer that keeps its input's width comes before the
    head.
    """
    sketch = Sketch(framework)
    table = ""
    if theme.input == "vector":
        x = theme.cell(sketch, sketch.input("x", (taste.chance.choice((4, 6, 8, 10)),)), taste)
        kind = cells.VECTOR
    elif theme.input == "image":
        x = theme.cell(sketch, _image(sketch, taste), taste)
        kind = cells.IMAGE
    elif theme.input == "sequence":
        x, table = _sequence(sketch, taste)
        x = theme.cell(sketch, x, taste)
        kind = cells.SEQUENCE
    elif theme.input == "crossed":
        x, kind = _crossed(sketch, taste, small=tied or spare), cells.VECTOR
    elif theme.input == "pair":
        x, table = _pair(sketch, taste, small=tied or spare)
        kind = cells.SEQUENCE
    else:
        x, table = _mixed(sketch, taste, most=2 if tied or spare else 3)
        kind = cells.VECTOR
    reserve = 2 + (4 if tied else 0) + (2 if spare else 0)  # a reduction and the head; the tied and the spare layers
    wanted = taste.chance.randint(3, 10)
    while len(sketch.layers) < wanted and len(sketch.layers) + cells.ROOM + reserve <= MOST_LAYERS:
        x = taste.chance.choice(kind)(sketch, x, taste)
        if taste.chance.random() < 0.4:
            x, kind = _reduced(sketch, x, taste), cells.VECTOR
    x = _reduced(sketch, x, taste)
    added = ""
    if spare:
        added = sketch.add("linear", x, units=sketch.width(x))
        x = sketch.add(taste.activation(), added)
    tie: tuple[Tie, ...] = ()
    if tied and table and framework == "torch":
        loss, units = "cross_entropy", sketch.inputs[-1].vocab
        if sketch.width(x) != sketch.width(table):
            x = sketch.add("linear", x, units=sketch.width(table))
        x = sketch.add("linear", x, units=units)
        tie = (Tie(layer=x, to=table),)
    else:
        if tied:
            width = sketch.width(x)
            first = sketch.add("linear", x, units=width)
            second = sketch.add("linear", sketch.add(taste.activation(), first), units=width)
            x = sketch.add(taste.activation(), second)
            tie = (Tie(layer=second, to=first),)
        sketch.add("linear", x, units=_outputs(taste, loss))
    return Model(tuple(sketch.inputs), tuple(sketch.layers), tie, loss, added)


def _image(sketch: Sketch, taste: Taste) -> str:
    side, channels = taste.chance.choice((5, 6, 7)), taste.chance.choice((1, 2, 3))
    return sketch.input("x", (channels, side, side) if sketch.framework == "torch" else (side, side, channels))


def _sequence(sketch: Sketch, taste: Taste) -> tuple[str, str]:
    """Add tokens with their embedding, or real-valued rows; return the sequence and the embedding's name, or ""."""
    length = taste.chance.choice((3, 4, 5, 6))
    if taste.chance.random() < 0.35:
        return sketch.input("x", (length, taste.chance.choice((4, 6, 8)))), ""
    embedding = _embedding(sketch, taste, length)
    return embedding, embedding


def _pair(sketch: Sketch, taste: Taste, small: bool) -> tuple[str, str]:
    """Add an encoder and a decoder: a sequence that attends to another one; return it and its own embedding."""
    dim, long, short = taste.other(), taste.chance.choice((3, 4, 5)), taste.chance.choice((2, 3, 4))
    source = sketch.add("embedding", sketch.input("source", (long,), vocab=taste.chance.choice((6, 9, 12))), dim=dim)
    if small or taste.chance.random() < 0.5:
        memory = sketch.add(taste.chance.choice(("lstm", "gru")), source, units=dim)
    else:
        memory = cells.attention(sketch, source, taste)
    table = sketch.add("embedding", sketch.input("tokens", (short,), vocab=taste.chance.choice((6, 8, 11))), dim=dim)
    return cells.decoder(sketch, table, memory, taste), table


def _crossed(sketch: Sketch, taste: Taste, small: bool) -> str:
    """Add dense features and two tables of one width, and the products of every two, as ranking models have them."""
    dim = taste.chance.choice((4, 6, 8))
    left = sketch.add("linear", sketch.input("x", (taste.chance.choice((4, 6, 8)),)), units=dim)
    if not small:
        left = sketch.add(taste.activation(), left)
    tables = []
    for number in (1, 2):
        length, rows = taste.chance.choice((1, 2, 4)), taste.chance.choice((4, 5, 7, 10))
        tokens = sketch.input(f"bag{number}", (length,), vocab=rows)
        if sketch.framework == "torch":
            tables.append(sketch.add("embedding_bag", tokens, dim=dim, pooling=taste.chance.choice(("sum", "mean"))))
        else:
            tables.append(sketch.add("mean", sketch.add("embedding", tokens, dim=dim)))
    products = sketch.add("interaction", left, *tables)
    return products if small else sketch.add("concat", left, products)


def _mixed(sketch: Sketch, taste: Taste, most: int) -> tuple[str, str]:
    """Add dense features and tokens side by side, as click-rate models have them: a small net beside pooled tables.

    There are at most `most` tables.
    """
    left = cells.dense(sketch, sketch.input("x", (taste.chance.choice((4, 6, 8)),)), taste)
    if sketch.framework == "torch" and taste.chance.random() < 0.7:
        return cells.dense(sketch, sketch.add("concat", left, *_bags(sketch, taste, most)), taste), ""
    embedding = _embedding(sketch, taste, taste.chance.choice((1, 2, 3)))
    return cells.dense(sketch, sketch.add("concat", left, sketch.add("mean", embedding)), taste), embedding


def _embedding(sketch: Sketch, taste: Taste, length: int) -> str:
    tokens = sketch.input("tokens", (length,), vocab=taste.chance.choice((6, 8, 10, 11, 12, 16)))
    return sketch.add("embedding", tokens, dim=taste.other())


def _bags(sketch: Sketch, taste: Taste, most: int) -> list[str]:
    """Add one to `most` tables of one width and uneven numbers of rows, each for a bag; some weight its rows."""
    dim, count = taste.chance.choice((2, 4, 8)), taste.chance.choice((1, 2, 2, 3))
    bags = []
    for number in range(1, min(count, most) + 1):
        length = taste.chance.choice((1, 2, 4))
        sources = [sketch.input(f"bag{number}", (length,), vocab=taste.chance.choice((3, 4, 5, 7, 10, 12)))]
        pooling = taste.chance.choice(("sum", "mean"))
        if pooling == "sum" and taste.chance.random() < 0.3:
            sources.append(sketch.input(f"weight{number}", (length,)))
        bags.append(sketch.add("embedding_bag", *sources, dim=dim, pooling=pooling))
    return bags


def _reduced(sketch: Sketch, x: str, taste: Taste) -> str:
    """Return a vector made of a sequence or an image, flattened only where that stays small."""
    shape = sketch.shapes[x]
    if len(shape) == 1:
        return x
    ways = ["last", "mean"] if len(shape) == 2 else ["mean"]
    if prod(shape) <= MOST_FEATURES:
        ways.append("flatten")
    return sketch.add(taste.chance.choice(ways), x)


def _outputs(taste: Taste, loss: str) -> int:
    if taste.odd == "output":
        return taste.chance.choice((3, 5) if loss == "cross_entropy" else (1, 3))
    return taste.chance.choice((2, 4, 6))
