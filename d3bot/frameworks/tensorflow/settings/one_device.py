"""OneDeviceStrategy: the machinery of a strategy without a second replica."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family
from d3bot.frameworks.tensorflow.settings.common import EAGER, MIXED, case_obstacle, rounding
from d3bot.spec import Case, Setting


def _obstacle(case: Case, setting: Setting) -> str | None:
    return case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {}


FAMILY = Family(
    framework="tensorflow",
    name="one_device",
    summary="OneDeviceStrategy: everything on one device, and gradients accumulated over micro-batches",
    options=(),
    contract=Contract(
        promise="Training is what it is without a strategy. Accumulated gradients make the update of the whole batch.",
        source='"A distribution strategy for running on a single device" (tf.distribute.OneDeviceStrategy, 2.21); '
        '"gradient_accumulation_steps: If an int, model & optimizer variables will not be updated at every step; '
        "instead they will be updated every gradient_accumulation_steps steps, using the average value of the "
        'gradients since the last update"; "Learning rate schedules will look at "real" iterations value (optimizer '
        'steps)" (keras.optimizers, 3.15)',
        reference="The whole batch of each step without a strategy; a schedule that is one of micro-batches goes as "
        "many of them a step.",
        exact=EAGER + ", as 12 of 21 passing trials showed. The noise bound.",
        breaks=(
            "Accumulation of sums, of batches with ignored rows, and through batch norm: the micro-batches' average is "
            "not the batch's.",
            MIXED,
            "fit with a layer frozen in mid-training; tied weights that are not one shared layer.",
        ),
    ),
    world=lambda setting: 1,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=("one_device",),
    files=("tensorflow/python/distribute/one_device_strategy.py",),
    cost=6.0,
)
