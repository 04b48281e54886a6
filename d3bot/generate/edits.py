"""Changes of a model that several sources of cases share."""

from collections.abc import Sequence

from d3bot.spec import Layer


def behind(layers: Sequence[Layer], place: int, *new: Layer) -> list[Layer]:
    """Return the layers with `new` behind the one at `place`: what read that one reads the last of them."""
    before, last = layers[place].name, new[-1].name
    rest = [
        layer.model_copy(update={"inputs": tuple(last if name == before else name for name in layer.inputs)})
        for layer in layers[place + 1 :]
    ]
    return [*layers[: place + 1], *new, *rest]
