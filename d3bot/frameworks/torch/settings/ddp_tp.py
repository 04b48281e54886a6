"""Two dimensions: DistributedDataParallel over one of the mesh, tensor parallelism over the other."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.settings import ddp, fsdp2_tp, tp
from d3bot.frameworks.torch.settings.common import NO_AVERAGE, world_of
from d3bot.spec import Case, Setting


def _obstacle(case: Case, setting: Setting) -> str | None:
    if not ddp.any_trainable(case):
        return "DDP refuses a module without a parameter that requires a gradient"
    return fsdp2_tp.obstacle(case, setting)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return fsdp2_tp.shared_context(case, setting)


FAMILY = Family(
    framework="torch",
    name="ddp_tp",
    summary="DistributedDataParallel over a tensor-parallel model: a mesh of data and tensor ranks",
    options=(
        Option("world", "number of ranks", choices=(4, 8)),
        fsdp2_tp.TENSOR,
        *(option for option in tp.FAMILY.options if option.name in ("sequence", "style", "local_output")),
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over the data-parallel shards of the batch of "
        "the whole module's gradients.",
        source='"Enable the composability between Tensor Parallelism (TP) and Data Parallelism(DP) in PyTorch when '
        "using DDP. We need to convert Parameters which are DTensors to local tensors before wrapping with data "
        'parallelism API" (torch.distributed.tensor.parallel.ddp, which DDP calls when its device_mesh is a slice of a '
        'larger one, 2.13); "This container provides data parallelism by synchronizing gradients across each model '
        'replica." (torch.nn.parallel.DistributedDataParallel, 2.13)',
        reference=fsdp2_tp.FAMILY.contract.reference,
        exact="The noise bound: a sharded contraction adds in another order.",
        breaks=(
            "A batch with fewer rows than data-parallel ranks.",
            ddp.FAMILY.contract.breaks[1],
            *tp.FAMILY.contract.breaks,
        ),
        excluded={
            **tp.FAMILY.contract.excluded,
            **ddp.FAMILY.contract.excluded,
            **ddp.WAITS,
            "clip-norm": "DDP's parameters are plain local shards, of whose norm no rank knows the others' part",
            "late-group": "after the first forward pass the module no longer lists its parameters",
            **NO_AVERAGE,
            "reentrant": "DDP supports reentrant backwards under static_graph",
            "compiled": "the parameters are exchanged for others around each forward pass",
            "batch-norm": "whose statistics are broadcast in a mesh of two dimensions is not documented",
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: fsdp2_tp.data_shards(setting),
    obstacle=_obstacle,
    context=_context,
    standing=(),
    files=(*ddp.FAMILY.files, *tp.FAMILY.files, "torch/distributed/device_mesh.py"),
    cost=3.0,
)
