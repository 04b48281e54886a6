"""CentralStorageStrategy: replicas on logical CPU devices, one copy of every variable."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.common import (
    EAGER,
    MIXED,
    ONE_DEVICE,
    case_obstacle,
    replica_obstacle,
    replicas_of,
    rounding,
)
from d3bot.spec import Case, Setting

STATISTICS = "no document says how replicas move statistics of which there is one copy"
"""Why batch norm has no reference where replicas share their variables."""


def _obstacle(case: Case, setting: Setting) -> str | None:
    return replica_obstacle(case, replicas_of(setting)) or case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {"uneven": case.batch % replicas_of(setting) != 0}


FAMILY = Family(
    framework="tensorflow",
    name="central_storage",
    summary="CentralStorageStrategy: a replica a logical CPU device, every variable once",
    options=(Option("replicas", "number of replicas", high=8),),
    contract=Contract(
        promise="The update is that of the whole batch's mean loss: the replicas' gradients are summed before the one "
        "copy of a variable is updated.",
        source='"Variables are assigned to local CPU or the only GPU. If there is more than one GPU, compute '
        'operations (other than variable update operations) will be replicated across all GPUs" '
        "(tf.distribute.experimental.CentralStorageStrategy, 2.21)",
        reference="fit: the same fit on one device. Custom loop: the whole batch in one process.",
        exact=EAGER + ". The noise bound.",
        breaks=(
            "fit with a batch that does not divide by the replicas: the mean of means is not the batch's mean.",
            "A batch with fewer rows than replicas.",
            MIXED,
            "fit with a layer frozen in mid-training; tied weights that are not one shared layer.",
        ),
        excluded={"batch-norm": STATISTICS, "sync-batch-norm": STATISTICS, "compiled": ONE_DEVICE},
    ),
    world=replicas_of,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=(),
    files=(
        "tensorflow/python/distribute/central_storage_strategy.py",
        "tensorflow/python/distribute/parameter_server_strategy.py",
        "tensorflow/python/distribute/ps_values.py",
    ),
    cost=8.0,
)
