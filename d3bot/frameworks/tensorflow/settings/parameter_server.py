"""ParameterServerStrategy with a cluster inside one process."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.common import case_obstacle
from d3bot.spec import ArrayName, Case, Setting


def _workers(setting: Setting) -> int:
    return setting.integer("workers")


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.loop == "fit":
        return "under ParameterServerStrategy fit takes a DatasetCreator only, which Keras 3 does not have"
    return case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {"servers": FAMILY.value(setting, "servers")}


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    return False


FAMILY = Family(
    framework="tensorflow",
    name="parameter_server",
    summary="ParameterServerStrategy: variables on servers, steps scheduled on workers by a ClusterCoordinator",
    options=(
        Option("workers", "number of workers", high=4),
        Option("servers", "number of parameter servers that the variables are spread over", 1, low=1, high=4),
    ),
    contract=Contract(
        promise="A step that is scheduled while no other runs does to the variables on the servers what it does to "
        "variables of one process, whichever worker takes it.",
        source='"Schedules fn to be dispatched to a worker for asynchronous execution"; "Blocks until all the '
        'scheduled functions have finished execution" (tf.distribute.coordinator.ClusterCoordinator: schedule, join, '
        '2.21); "When using Model.fit, currently only the DatasetCreator input type is supported" '
        "(tf.distribute.experimental.ParameterServerStrategy, 2.21)",
        reference="The whole batch of each step in one process.",
        exact="Nowhere: the reference runs eagerly, and the rewriting of a graph rounds otherwise. The noise bound.",
        breaks=(
            'loop = "fit": under this strategy it takes a DatasetCreator only, which Keras 3 does not have.',
            "Tied weights that are not one shared layer.",
        ),
    ),
    world=_workers,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    exact=_exact,
    context=_context,
    standing=("parameter_server(workers=1)", "parameter_server(workers=2)"),
    cost=5.0,
)
