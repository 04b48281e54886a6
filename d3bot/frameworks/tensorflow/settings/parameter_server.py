"""ParameterServerStrategy with a cluster inside one process."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.common import (
    EAGER,
    MIXED,
    NO_ACCUMULATION,
    ONE_DEVICE,
    UPDATE_FIELDS,
    case_obstacle,
    rounding,
)
from d3bot.spec import Case, Setting

_PARTITIONERS = {
    "none": "",
    "fixed": "FixedShardsPartitioner({servers})",
    "min_size": "MinSizePartitioner(64, max_shards={servers})",
}


def _workers(setting: Setting) -> int:
    return setting.integer("workers")


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.loop != "custom":
        return "under ParameterServerStrategy fit takes a DatasetCreator only, which Keras 3 does not have"
    if _partitioner(setting) != "none":
        if FAMILY.value(setting, "servers") == 1:
            return "one server holds every variable whole, so that nothing is partitioned"
        special = [name for name in UPDATE_FIELDS if getattr(case, name) != Case.model_fields[name].default]
        if special:
            return f"Keras 3 cannot update partitioned variables; the update written out for them has no {special[0]}"
    return case_obstacle(case)


def _partitioner(setting: Setting) -> str:
    return str(FAMILY.value(setting, "partitioner"))


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    servers, partitioner = FAMILY.value(setting, "servers"), _partitioner(setting)
    return {
        "servers": servers,
        "partitioner": _PARTITIONERS[partitioner].format(servers=servers),
        "lookup": partitioner != "none" and "embedding" in case.ops(),
    } | ({"bare": False} if partitioner != "none" else {})


FAMILY = Family(
    framework="tensorflow",
    name="parameter_server",
    summary="ParameterServerStrategy: variables on servers, steps scheduled on workers by a ClusterCoordinator",
    options=(
        Option("workers", "number of workers", high=4),
        Option("servers", "number of parameter servers that the variables are spread over", 1, low=1, high=4),
        Option(
            "partitioner",
            "how variables are split into shards along their first axis: into as many as there are servers (fixed), "
            "or into as many but each of at least 64 bytes (min_size); embeddings are looked up in the shards",
            "none",
            tuple(_PARTITIONERS),
        ),
    ),
    contract=Contract(
        promise="A step that is scheduled while no other runs does to the variables on the servers what it does to "
        "variables of one process, whichever worker takes it.",
        source='"Schedules fn to be dispatched to a worker for asynchronous execution"; "Blocks until all the '
        'scheduled functions have finished execution" (tf.distribute.coordinator.ClusterCoordinator: schedule, join, '
        '2.21); "the resulting variables created in scope are sharded across the parameter servers"; '
        '"`tf.nn.embedding_lookup` ... performs parallel lookups on the variable components instead"; "When using '
        'Model.fit, currently only the DatasetCreator input type is supported" '
        "(tf.distribute.experimental.ParameterServerStrategy, 2.21)",
        reference="The whole batch of each step in one process.",
        exact=EAGER + ", as 38 of 48 passing trials showed. The noise bound.",
        breaks=(
            'loop = "fit": under this strategy it takes a DatasetCreator only, which Keras 3 does not have.',
            "Partitioned variables on one server; with a recipe that changes the update, which Keras 3 does not do on "
            "shards: its gradient of them is AttributeError: 'ShardedVariable' object has no attribute 'handle'.",
            MIXED,
            "Tied weights that are not one shared layer.",
        ),
        excluded={"accumulate": NO_ACCUMULATION, "compiled": ONE_DEVICE},
    ),
    world=_workers,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=("parameter_server(workers=1)", "parameter_server(workers=2)"),
    files=(
        "tensorflow/python/distribute/parameter_server_strategy",
        "tensorflow/python/distribute/ps_values.py",
        "tensorflow/python/distribute/sharded_variable.py",
        "tensorflow/python/distribute/coordinator/",
    ),
    cost=5.0,
)
