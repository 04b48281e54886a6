"""Two dimensions: `fully_shard` over one of the mesh, tensor parallelism over the other."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.settings import fsdp2, tp
from d3bot.frameworks.torch.settings.common import data_parallel, shards_obstacle, world_of
from d3bot.spec import ArrayName, Case, Setting

TENSOR = Option("tensor", "ranks of one tensor-parallel group", 2, (2, 4))
READ = Option(
    "read",
    "how parameters are read after training: DTensor.full_tensor, or get_model_state_dict with full_state_dict",
    "full_tensor",
    ("full_tensor", "state_dict"),
)


def data_shards(setting: Setting) -> int:
    """Return how many groups of tensor-parallel ranks share the batch."""
    return world_of(setting) // int(setting.get("tensor", 2) or 2)


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the promise of data and tensor parallelism together does not hold for this trial, or None."""
    return shards_obstacle(case, data_shards(setting)) or tp.obstacle(case, setting)


def _obstacle(case: Case, setting: Setting) -> str | None:
    return fsdp2.reshard_obstacle(setting, data_shards(setting)) or obstacle(case, setting)


def exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    """Never: a contraction that is sharded adds in another order."""
    return False


def shared_context(case: Case, setting: Setting) -> dict[str, Any]:
    """Return what every template of data over tensor parallelism needs."""
    return {
        **tp.context(case, setting),
        **data_parallel(case, "own"),
        "part_comment": "the shards of the batch",
        "parts_name": "SHARDS",
        "part_name": "shard",
        "tensor": world_of(setting) // data_shards(setting),
    }


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what the template of fully_shard over a plan needs."""
    return {
        **fsdp2.context(case, setting),
        **shared_context(case, setting),
        "mesh_shape": f"(SHARDS, {world_of(setting) // data_shards(setting)})",
        "mesh_names": '("data", "tensor")',
        "data_mesh": 'mesh["data"]',
        "state_dict": setting.get("read") == "state_dict",
    }


FAMILY = Family(
    framework="torch",
    name="fsdp2_tp",
    summary="fully_shard over a tensor-parallel model: a mesh of data and tensor ranks",
    options=(
        Option("world", "number of ranks", choices=(4, 8)),
        TENSOR,
        READ,
        *(option for option in fsdp2.FAMILY.options if option.name in ("wrap", "reshard_after_forward")),
        *(option for option in tp.FAMILY.options if option.name in ("sequence", "style", "local_output")),
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over the data-parallel shards of the batch of "
        "the whole module's gradients; gathered rows are in the order of the unsharded parameter.",
        source='"parallelize_module only accepts a 1-D DeviceMesh, if you have a 2-D or N-D DeviceMesh, slice the '
        'DeviceMesh to a 1-D sub DeviceMesh first then pass to this API" (parallelize_module, 2.13); "mesh: This data '
        'parallel mesh defines the sharding and device" (torch.distributed.fsdp.fully_shard, 2.13); "full_tensor: '
        'Return the full tensor of this DTensor" (DTensor, 2.13); "full_state_dict: if this is set to True, all the '
        'tensors in the returned state_dict will be gathered" (StateDictOptions, 2.13)',
        reference="The shards of the batch one after the other in one process, each loss divided by their number; "
        "with batch norm every shard keeps its own buffers.",
        exact="The noise bound: a sharded contraction adds in another order.",
        breaks=(
            "A batch with fewer rows than data-parallel ranks.",
            *tp.FAMILY.contract.breaks,
        ),
        excluded={
            **tp.FAMILY.contract.excluded,
            "cast": "fully_shard requires that the trained parameters of a unit are of one type",
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: data_shards(setting),
    obstacle=_obstacle,
    exact=exact,
    context=context,
    standing=("fsdp2_tp(world=4)",),
    files=(*fsdp2.FAMILY.files, *tp.FAMILY.files, "torch/distributed/device_mesh.py"),
    cost=3.0,
)
