"""FSDP2: `torch.distributed.fsdp.fully_shard`."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import filled_options, infer_shapes
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings import precision
from d3bot.frameworks.torch.settings.common import (
    EXACT,
    MICRO_BATCHES,
    NO_SYNC,
    PRECISION,
    RECIPE,
    WORLD,
    always_frozen,
    data_parallel,
    data_parallel_obstacle,
    exact_data_parallel,
    layer_units,
    leaves_local,
    shards,
    world_of,
)
from d3bot.spec import ArrayName, Case, Setting

OFFLOAD = Option("offload", "parameters, gradients and optimizer state lie on the CPU", False, (False, True))


def _dim1(case: Case, setting: Setting) -> bool:
    """Whether any parameter is sharded on dim 1: its matrix or kernel divides there by the number of ranks."""
    shapes, world = infer_shapes(case), world_of(setting)
    for layer in case.layers:
        features, options = shapes[layer.inputs[0]], filled_options(case, layer.name)
        match layer.op:
            case "linear" | "lstm" | "gru" | "attention":
                second = features[-1]
            case "conv1d" | "conv2d":
                second = features[-1 if layer.op == "conv1d" else 0] // int(options["groups"])
            case "conv_transpose1d" | "conv_transpose2d":
                second = int(options["channels"]) // int(options["groups"])
            case "embedding" | "embedding_bag":
                second = shapes[layer.name][-1]
            case _:
                continue
        if second % world == 0:
            return True
    return False


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the promise of fully_shard does not hold for this trial, or None."""
    if setting.get("shard_dim") == 1 and not _dim1(case, setting):
        return "no parameter divides by the number of ranks on dim 1, and fully_shard requires that of it"
    if why := reshard_obstacle(setting, world_of(setting)):
        return why
    return data_parallel_obstacle(case, setting) or precision.obstacle(case, setting) or unit_obstacle(case, setting)


def reshard_obstacle(setting: Setting, shards: int) -> str | None:
    """Return why parameters cannot be resharded to a smaller world after the forward pass, or None.

    `shards` is the number of ranks that share a parameter.
    """
    if setting.get("reshard_after_forward") == 2 and (shards <= 2 or shards % 2):
        return f"2 is no non-trivial divisor of {shards} shards, as resharding to a smaller world requires"
    return None


def unit_obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the types of this case do not fit into units, or None."""
    trained = {cast.layer for cast in case.casts} - always_frozen(case)
    if trained and not layer_units(case, setting):
        return "fully_shard requires that the trained parameters of a unit are of one type"
    if case.mixed != "none" and "attention" in case.ops() and layer_units(case, setting):
        return "attention in a unit of its own adds in another order, which lower precision makes larger than any bound"
    return None


def projects_apart(case: Case, setting: Setting) -> bool:
    """Whether attention is a unit of its own, which rounds it otherwise.

    fully_shard's hooks hand a unit's forward new tensors, one an argument.  MultiheadAttention then no longer sees that
    query, key and value are one tensor and projects them one by one, forward and backward: measured 1 to 2 eps apart,
    in the first loss too.
    """
    return "attention" in case.ops() and bool(layer_units(case, setting))


def exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    """As for data parallel, but for attention in a unit of its own."""
    return not projects_apart(case, setting) and exact_data_parallel(case, setting, name)


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what the template of fully_shard needs."""
    arguments = ""
    reshard = setting.get("reshard_after_forward", True)
    if reshard is not True:
        arguments += f", reshard_after_forward={reshard}"
    if setting.get("offload") is True:
        arguments += ", offload_policy=offload"
    if setting.get("shard_dim") == 1:
        arguments += ", shard_placement_fn=placement"
    text = model_text(case)
    by_norm = case.clip is not None and case.clip.kind == "norm"
    low = precision.context(case, setting)
    return {
        "offload": setting.get("offload") is True,
        "copied_first": True,
        **low,
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
        Option(
            "reshard_after_forward",
            "free the gathered parameters after forward, or (2) keep them sharded over 2 ranks",
            True,
            (True, False, 2),
        ),
        NO_SYNC,
        Option("shard_dim", "dimension that is sharded: the first, or (1) the second where it divides", 0, (0, 1)),
        OFFLOAD,
        *precision.OPTIONS,
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over the ranks of their own shards' gradients; "
        "sharding changes where numbers lie, not what they are.",
        source='"fully_shard: Apply fully sharded data parallelism (FSDP) to module, where FSDP shards module '
        'parameters, gradients, and optimizer states across data parallel workers"; "shard_placement_fn: This callable '
        'can be used to override the sharding placement for a parameter"; "If sharding on a nonzero dim, we currently '
        'require even sharding"; "If an int, then this represents the world size to reshard to after forward"; '
        '"set_requires_gradient_sync: Sets if the module should sync gradients. This can be used to implement gradient '
        'accumulation without communication" (torch.distributed.fsdp.fully_shard, 2.13); ' + precision.SOURCE,
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm every rank keeps its own buffers.  Under a MixedPrecisionPolicy each shard is computed by a "
        "copy of the model in param_dtype, and its gradients are added in reduce_dtype." + RECIPE,
        exact="As for data parallel, but for attention in a unit of its own. " + EXACT + " Of the lowest type where "
        "there are several.",
        breaks=(
            "A batch with fewer rows than ranks.",
            "Sharding on dim 1 where no parameter divides there by the number of ranks.",
            *precision.BREAKS,
            "Trained parameters of several types in one unit; attention in a unit of its own in lower precision.",
            *MICRO_BATCHES,
            *PRECISION,
        ),
    ),
    world=world_of,
    processes=world_of,
    parts=shards,
    obstacle=obstacle,
    exact=exact,
    context=context,
    rounding=precision.rounding,
    standing=(
        "fsdp2(world=2)",
        "fsdp2(world=3)",
        "fsdp2(world=2, no_sync=true, reshard_after_forward=false, wrap=root)",
        "fsdp2(world=2, shard_dim=1)",
    ),
    files=("torch/distributed/fsdp/_fully_shard/",),
    cost=1.6,
)
