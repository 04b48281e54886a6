"""FSDP2: `torch.distributed.fsdp.fully_shard`."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import infer_shapes
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings.common import (
    EXACT,
    MICRO_BATCHES,
    NO_SYNC,
    WORLD,
    data_parallel,
    data_parallel_obstacle,
    exact_data_parallel,
    layer_units,
    leaves_local,
    shards,
    world_of,
)
from d3bot.spec import ArrayName, Case, Setting


def _dim1(case: Case, setting: Setting) -> bool:
    """Whether any parameter is sharded on dim 1: its matrix or kernel divides there by the number of ranks."""
    shapes, world = infer_shapes(case), world_of(setting)
    for layer in case.layers:
        features = shapes[layer.inputs[0]]
        match layer.op:
            case "linear" | "lstm" | "conv1d" | "attention":
                second = features[-1]
            case "conv2d":
                second = features[0]
            case "embedding":
                second = shapes[layer.name][-1]
            case _:
                continue
        if second % world == 0:
            return True
    return False


def _obstacle(case: Case, setting: Setting) -> str | None:
    if setting.get("shard_dim") == 1 and not _dim1(case, setting):
        return "no parameter divides by the number of ranks on dim 1, and fully_shard requires that of it"
    return data_parallel_obstacle(case, setting)


def exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    """As for data parallel, but for attention in a unit of its own.

    fully_shard's hooks hand a unit's forward new tensors, one an argument.  MultiheadAttention then no longer sees that
    query, key and value are one tensor and projects them one by one, forward and backward: measured 1 to 2 eps apart,
    in the first loss too.
    """
    if "attention" in case.ops() and layer_units(case, setting):
        return False
    return exact_data_parallel(case, setting, name)


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what the template of fully_shard needs."""
    arguments = ""
    if setting.get("reshard_after_forward") is False:
        arguments += ", reshard_after_forward=False"
    if setting.get("shard_dim") == 1:
        arguments += ", shard_placement_fn=placement"
    text = model_text(case)
    by_norm = case.clip is not None and case.clip.kind == "norm"
    return {
        "tensor_names": ["DTensor"] * by_norm + ["Shard"] * (setting.get("shard_dim") == 1),
        "arguments": arguments,
        "shard_dim": setting.get("shard_dim") == 1,
        "units": [*(text.access(name) for name in layer_units(case, setting)), "model"],
        "sync": "model.set_requires_gradient_sync" if leaves_local(case, setting) else "",
        **data_parallel(case, "own"),
    }


FAMILY = Family(
    framework="torch",
    name="fsdp2",
    summary="fully_shard: parameters, gradients and optimizer state sharded over the ranks",
    options=(
        WORLD,
        Option("wrap", "units: every layer and the root, or the root alone", "layers", ("layers", "root")),
        Option("reshard_after_forward", "free the gathered parameters after forward", True, (True, False)),
        NO_SYNC,
        Option("shard_dim", "dimension that is sharded: the first, or (1) the second where it divides", 0, (0, 1)),
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over the ranks of their own shards' gradients; "
        "sharding changes where numbers lie, not what they are.",
        source='"fully_shard: Apply fully sharded data parallelism (FSDP) to module, where FSDP shards module '
        'parameters, gradients, and optimizer states across data parallel workers"; "shard_placement_fn: This callable '
        'can be used to override the sharding placement for a parameter"; "If sharding on a nonzero dim, we currently '
        'require even sharding"; "set_requires_gradient_sync: Sets if the module should sync gradients. This can be '
        'used to implement gradient accumulation without communication" (torch.distributed.fsdp.fully_shard, 2.13)',
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm every rank keeps its own buffers.",
        exact="As for data parallel, but for attention in a unit of its own. " + EXACT,
        breaks=(
            "A batch with fewer rows than ranks.",
            "Sharding on dim 1 where no parameter divides there by the number of ranks.",
            *MICRO_BATCHES,
        ),
    ),
    world=world_of,
    processes=world_of,
    parts=shards,
    obstacle=_obstacle,
    exact=exact,
    context=context,
    standing=(
        "fsdp2(world=2)",
        "fsdp2(world=3)",
        "fsdp2(world=2, no_sync=true, reshard_after_forward=false, wrap=root)",
        "fsdp2(world=2, shard_dim=1)",
    ),
    cost=1.6,
)
