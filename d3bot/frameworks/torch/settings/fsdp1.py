"""FSDP1: `torch.distributed.fsdp.FullyShardedDataParallel`, with the original parameters."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.optimizer import if_trained, optimizer_class, optimizer_options
from d3bot.frameworks.torch.settings.common import (
    EXACT,
    GROUP,
    MICRO_BATCHES,
    NO_SYNC,
    PRECISION,
    RECIPE,
    RECIPE_SOURCE,
    WORLD,
    data_parallel,
    data_parallel_obstacle,
    exact_data_parallel,
    group_context,
    layer_units,
    leaves_local,
    processes_of,
    shards,
    world_of,
)
from d3bot.spec import Case, Setting

_STRATEGIES = {
    "full_shard": "",
    "shard_grad_op": "SHARD_GRAD_OP",
    "no_shard": "NO_SHARD",
    "hybrid": "HYBRID_SHARD",
    "mixed": "",
}


def _obstacle(case: Case, setting: Setting) -> str | None:
    if setting.get("cpu_offload") is True:
        return 'offloading pins memory; without a GPU: "Cannot access accelerator device when none is available"'
    if setting.get("sharding") == "hybrid" and (world_of(setting) not in (4, 6, 8) or setting.get("group") == "tail"):
        return "two replicas of a sharded copy need 4, 6 or 8 ranks, and all of them"
    if (case.freeze or case.skips) and not layer_units(case, setting):
        return (
            "FSDP1 shows a frozen or unused parameter a zero gradient in a unit that trains: what can be read is not "
            "what trains"
        )
    if case.casts and not layer_units(case, setting):
        return "FSDP1 flattens the parameters of a unit into one, and they must be of one type"
    if case.mixed != "none" and case.tie:
        return (
            "autocast keeps one cast of a weight for both its users where it is a leaf, as FSDP1's is not: gradients "
            "are rounded before they are added, not after"
        )
    return data_parallel_obstacle(case, setting)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    text = model_text(case)
    sharding = str(FAMILY.value(setting, "sharding"))
    whole = "NO_SHARD" if sharding == "mixed" else ""
    offload = setting.get("cpu_offload") is True
    group = ", process_group=group" if setting.get("group") == "tail" else ""
    arguments = ", device_mesh=mesh" if sharding == "hybrid" else ""
    arguments += group
    arguments += ", cpu_offload=CPUOffload(offload_params=True)" if offload else ""
    return {
        "strategy": _STRATEGIES[sharding],
        "offload": offload,
        "arguments": arguments,
        "units": [
            (text.access(name), whole if i % 2 == 0 else "") for i, name in enumerate(layer_units(case, setting))
        ],
        "no_sync": "model.no_sync()" if leaves_local(case, setting) else "",
        "contexts": ["nullcontext"] * leaves_local(case, setting),
        "scaler": f'ShardedGradScaler(device="cpu"{group})' if case.mixed == "float16" else "",
        "fused": _in_backward(case) if case.in_backward else "",
        **group_context(setting),
        **data_parallel(case, "own"),
    }


def _in_backward(case: Case) -> str:
    options = optimizer_options(case.optimizer).removeprefix(", ")
    some = if_trained(case)
    trained = f"[p for p in model.parameters(){some}]" if some else "model.parameters()"
    return (
        f"_apply_optimizer_in_backward({optimizer_class(case.optimizer)}, {trained}, dict({options}), "
        "register_hook=False)"
    )


FAMILY = Family(
    framework="torch",
    name="fsdp1",
    summary="FullyShardedDataParallel with use_orig_params: flat parameters sharded over the ranks",
    options=(
        WORLD,
        Option("wrap", "units: every layer and the root, or the root alone", "layers", ("layers", "root")),
        NO_SYNC,
        Option(
            "sharding",
            "strategy of all units; hybrid: two replicas of a sharded copy; mixed: FULL_SHARD, but every other layer, "
            "from the first on, NO_SHARD",
            "full_shard",
            tuple(_STRATEGIES),
        ),
        Option("cpu_offload", "parameters and gradients are kept on the CPU", False, (False, True)),
        GROUP,
    ),
    contract=Contract(
        promise="The full gradient of each parameter is the mean over the ranks of their own shards' gradients under "
        "every strategy; clip_grad_norm_ takes the norm of all of them.",
        source='"FULL_SHARD: Parameters, gradients, and optimizer states are sharded."; "NO_SHARD: ... replicated '
        'across ranks similar to PyTorch\'s DistributedDataParallel API"; "HYBRID_SHARD: Apply FULL_SHARD within a '
        'node, and replicate parameters across nodes." (ShardingStrategy); "The norm is computed '
        'over all parameters\' gradients as viewed as a single vector" (clip_grad_norm_); "If you want to inspect the '
        'gradients, you can use the summon_full_params method with with_grads=True"; "For use_orig_params=True, FSDP '
        'supports mixing frozen and non-frozen parameters"; "no_sync: ... gradients will be accumulated in module '
        'variables, which will later be synchronized in the first forward-backward pass after exiting the context" '
        "(torch.distributed.fsdp.FullyShardedDataParallel, 2.13)" + RECIPE_SOURCE,
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm every rank keeps its own buffers." + RECIPE,
        exact=EXACT,
        breaks=(
            "A batch with fewer rows than ranks.",
            "Frozen or unused and trained parameters in one unit: gradients can be read in summon_full_params alone, "
            "which shows those as zero instead of none.",
            "Parameters of several types in one unit.",
            "Tied weights under autocast: its cache of casts holds leaves, which FSDP1's parameters are not.",
            *MICRO_BATCHES,
            *PRECISION,
            "Hybrid sharding on less than 4 or an odd number of ranks.",
            "CPU offload without a GPU.",
        ),
        excluded={
            "average": "AveragedModel copies the module, and an FSDP1 one says \"cannot pickle 'module' object\""
        },
    ),
    world=world_of,
    processes=processes_of,
    parts=shards,
    obstacle=_obstacle,
    exact=exact_data_parallel,
    context=_context,
    standing=("fsdp1(world=2)", "fsdp1(world=2, no_sync=true, sharding=mixed)"),
    files=(
        "torch/distributed/fsdp/fully_sharded_data_parallel.py",
        "torch/distributed/fsdp/_flat_param.py",
        "torch/distributed/fsdp/_runtime_utils.py",
        "torch/distributed/fsdp/_init_utils.py",
        "torch/distributed/fsdp/_exec_order_utils.py",
        "torch/distributed/fsdp/_unshard_param_utils.py",
        "torch/distributed/fsdp/_wrap_utils.py",
        "torch/distributed/fsdp/wrap.py",
        "torch/distributed/fsdp/sharded_grad_scaler.py",
    ),
    cost=1.6,
)
