"""MultiWorkerMirroredStrategy: worker processes on one machine, whose gradients meet in a ring."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.common import MIXED, case_obstacle, keeps_copies, replica_obstacle, rounding
from d3bot.spec import Case, Setting

_POLICY = {"auto": "", "data": "DATA", "off": "OFF", "file": "FILE", "function": ""}
"""How the rows are divided -> the auto-shard policy that the script sets, if any."""
_CONTIGUOUS = ("auto", "data")


def _workers(setting: Setting) -> int:
    return setting.integer("workers")


def _shard(setting: Setting) -> str:
    return str(FAMILY.value(setting, "shard"))


def _uneven(case: Case, setting: Setting) -> bool:
    return case.batch % _workers(setting) != 0


def _obstacle(case: Case, setting: Setting) -> str | None:
    workers, shard = _workers(setting), _shard(setting)
    if case.loop != "custom":
        return "fit of Keras 3 takes no values of several workers (keras-team/keras#20585)"
    if case.batch < workers:
        return f"a batch of {case.batch} leaves a worker of {workers} without a row"
    if _uneven(case, setting) and shard not in _CONTIGUOUS:
        return f"shard={shard} gives every worker equally many rows, and {case.batch} do not divide by {workers}"
    if "batch_norm" in case.ops() and shard not in _CONTIGUOUS:
        return f"no document says which rows a worker gets under shard={shard}, and batch norm sees them"
    return replica_obstacle(case, workers) or case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    shard = _shard(setting)
    function = "distribute_datasets_from_function(own_rows)"
    return {
        "shard": shard,
        "policy": _POLICY[shard],
        "distributed_dataset": "strategy."
        + (function if shard == "function" else "experimental_distribute_dataset(dataset)"),
        "sees_rows": True,
        "uneven": _uneven(case, setting),
        "copies": keeps_copies(case, _workers(setting)),
    }


FAMILY = Family(
    framework="tensorflow",
    name="multi_worker",
    summary="MultiWorkerMirroredStrategy: a worker a process, gradients summed in a ring over gRPC",
    options=(
        Option("workers", "number of worker processes", low=2, high=4),
        Option(
            "shard",
            "how the rows are divided: the auto-shard policy (auto is the library's default), or function for "
            "distribute_datasets_from_function; with off each worker hands in its own rows",
            "auto",
            tuple(_POLICY),
        ),
    ),
    contract=Contract(
        promise="The update is that of the whole batch's mean loss: the workers take rows that do not overlap and "
        "together are the global batch, each divides its losses by the global batch size, the gradients are summed, "
        "and every worker's copy of a variable takes the same update.",
        source='"autosharding a dataset over a set of workers means that each worker is assigned a subset of the '
        "entire dataset (if the right `tf.data.experimental.AutoShardPolicy` is set). This is to ensure that at each "
        'step, a global batch size of non-overlapping dataset elements will be processed by each worker" '
        '(tf.distribute.Strategy.experimental_distribute_dataset, 2.21); "Similar to `tf.distribute.MirroredStrategy`, '
        'it replicates all variables and computations to each local device" (MultiWorkerMirroredStrategy, 2.21); '
        '"Shards by input files (i.e. each worker will get a set of files to process)" (AutoShardPolicy, 2.21)',
        reference="The whole batch in one process; with batch norm the workers' rows one after the other, each with "
        "its own statistics, from which every copy of a moving statistic takes the mean over the workers.",
        exact="The rows of a step. Elsewhere the noise bound: the reference runs eagerly and sums in another order.",
        breaks=(
            "fit: that of Keras 3 takes no values of several workers.",
            "A batch that does not divide by the workers, where the script divides it (off, file, function).",
            "Batch norm where it is not documented which rows a worker gets, or with fewer than two of them.",
            MIXED,
            "Tied weights that are not one shared layer.",
        ),
    ),
    world=_workers,
    processes=_workers,
    parts=lambda case, setting: _workers(setting) if keeps_copies(case, _workers(setting)) else 1,
    obstacle=_obstacle,
    context=_context,
    rounding=rounding,
    standing=(),
    files=(
        "tensorflow/python/distribute/collective_",
        "tensorflow/python/distribute/cross_device_",
        "tensorflow/python/distribute/multi_worker_util.py",
        "tensorflow/python/distribute/cluster_resolver/",
        "tensorflow/python/ops/collective_ops.py",
        "tensorflow/core/common_runtime/ring_",
    ),
    cost=24.0,
)
