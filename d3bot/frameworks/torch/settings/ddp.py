"""DistributedDataParallel."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.torch.optimizer import optimizer_class, optimizer_options
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
    keeps_local_buffers,
    leaves_local,
    processes_of,
    shards,
    world_of,
)
from d3bot.spec import Case, Setting

_ARGUMENTS = ("gradient_as_bucket_view", "batched_grad_copy", "static_graph", "find_unused_parameters")
_HOOKS = {
    "none": ("", ""),
    "allreduce": (" import default_hooks", "default_hooks.allreduce_hook"),
    "fp16": (" import default_hooks", "default_hooks.fp16_compress_hook"),
    "fp16_wrapper": (
        " import default_hooks",
        "default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)",
    ),
    "bf16": (" import default_hooks", "default_hooks.bf16_compress_hook"),
    "powersgd": (".powerSGD_hook import PowerSGDState, powerSGD_hook", "powerSGD_hook"),
    "post_local_sgd": (".post_localSGD_hook import PostLocalSGDState, post_localSGD_hook", "post_localSGD_hook"),
}
"""Communication hook -> what is imported for it, and the hook."""
_LOSSY = ("fp16", "fp16_wrapper", "powersgd")


JOIN = Option(
    "join",
    "ranks run out of batches one after the other, and gradients are divided by all ranks (initial) or by those left "
    "(effective)",
    "none",
    ("none", "initial", "effective"),
)

WAITS = dict.fromkeys(
    ("unused", "conditional"), "DDP waits for the gradient of every parameter unless it is told to look for unused ones"
)
"""Features that families exclude which wrap in DDP and cannot tell it of parameters left out."""


ON_ACCELERATORS = {
    "in-backward": 'DDP steps on a stream of the accelerator, and says "Cannot access accelerator device when none is '
    'available"'
}
"""Features that families exclude which wrap in DDP, which does these on an accelerator alone."""


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why DDP's promise does not hold for this trial, or None."""
    if not any_trainable(case):
        return "DDP refuses a module without a parameter that requires a gradient"
    return (
        _graph_obstacle(case, setting)
        or data_parallel_obstacle(case, setting)
        or join_obstacle(case, setting)
        or _hook_obstacle(case, setting)
        or _local_obstacle(case, setting)
    )


def _graph_obstacle(case: Case, setting: Setting) -> str | None:
    static = setting.get("static_graph") is True
    if case.reentrant and not static:
        return "DDP supports reentrant backwards under static_graph"
    if not case.skips:
        return None
    if static and any(skip.at is not None for skip in case.skips):
        return "static_graph promises that the set of used parameters stays the same"
    if not static and setting.get("find_unused_parameters") is not True:
        return "DDP waits for the gradient of every parameter unless find_unused_parameters or static_graph is set"
    return None


def join_obstacle(case: Case, setting: Setting) -> str | None:
    """Return why uneven numbers of batches cannot be emulated for this trial, or None."""
    if setting.get("join", "none") == "none":
        return None
    if case.steps < 2 or world_of(setting) < 2:
        return "with one rank or one step no rank has fewer batches than another"
    if keeps_local_buffers(case):
        return "whose batch-norm statistics are broadcast while some ranks have joined is not documented"
    if case.averages:
        return "a rank that has joined leaves the loop, and with it its average"
    if setting.get("join") == "effective" and setting.get("comm_hook", "none") != "none":
        return "a communication hook divides the gradients itself, whatever join is asked for"
    return None


def _hook_obstacle(case: Case, setting: Setting) -> str | None:
    hook = setting.get("comm_hook")
    if hook == "bf16":
        return "bf16_compress_hook requires NCCL later than 2.9.6, as its documentation says, and these ranks use gloo"
    if hook not in _LOSSY:
        return None
    if case.clip is not None and case.clip.kind == "norm":
        return "clipping by norm rounds in another order, and the last bit decides what compression makes of a gradient"
    if case.accumulate > 1:
        return "each micro-batch is compressed by itself, which the whole batch is not"
    if case.casts or case.mixed != "none":
        return "what compression makes of gradients in lower precision is rounded twice"
    if hook == "powersgd":
        return "PowerSGD compresses from the third step on at the earliest" if case.steps < 3 else None
    return "the order of a half-precision sum over more than 2 ranks is free" if world_of(setting) > 2 else None


def _local_obstacle(case: Case, setting: Setting) -> str | None:
    """Return why post-local SGD cannot be emulated for this trial, or None."""
    if setting.get("comm_hook") != "post_local_sgd":
        return None
    if case.steps < 2 or world_of(setting) < 2:
        return "post-local SGD leaves the first step to all ranks, and local steps need several ranks and a second step"
    if setting.get("group") == "tail" or setting.get("join", "none") != "none":
        return "the subgroups of post-local SGD are made of all ranks, and all of them average"
    beside = {
        "batch norm": keeps_local_buffers(case),
        "averages": case.averages,
        "clipping": case.clip is not None,
        "micro-batches": case.accumulate > 1,
        "lower precision": case.mixed != "none" or bool(case.casts),
        "parameter groups": bool(case.groups),
        "schedules": case.optimizer.decay_rate < 1,
        "skipped layers": bool(case.skips),
    }
    used = next((what for what, holds in beside.items() if holds), None)
    return f"post-local SGD is documented for plain steps, not for {used} of each rank's own" if used else None


def any_trainable(case: Case) -> bool:
    """Whether any layer with parameters is left that is not frozen from the start."""
    frozen = {freeze.layer for freeze in case.freeze if freeze.at == 0}
    return any(KINDS[layer.op].trainable and layer.name not in frozen for layer in case.layers)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    arguments = "".join(f", {name}=True" for name in _ARGUMENTS if setting.get(name) is True)
    if setting.get("small_buckets") is True:
        arguments += ", bucket_cap_mb=0.0001"
    broadcast = setting.get("broadcast_buffers") is not False
    if not broadcast:
        arguments += ", broadcast_buffers=False"
    if setting.get("group") == "tail":
        arguments += ", process_group=group"
    return {
        "arguments": arguments,
        "no_sync": "ddp.no_sync()" if leaves_local(case, setting) else "",
        "contexts": ["nullcontext"] * leaves_local(case, setting),
        "bad_batch": setting.get("bad_batch") is True,
        **_hook(case, setting),
        **join_context(case, setting),
        **group_context(setting),
        **data_parallel(case, "rank0" if broadcast else "own"),
    }


def _hook(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return how the hook is registered, and what the reference makes of the gradients."""
    name = str(setting.get("comm_hook", "none"))
    source, hook = _HOOKS[name]
    state = "group" if setting.get("group") == "tail" else "None"
    if name == "powersgd":
        state = f"PowerSGDState({state}, start_powerSGD_iter=STEPS - 1)"
    elif name == "post_local_sgd":
        state = "PostLocalSGDState(None, subgroup, start_localSGD_iter=1)"
    context = {"hook_from": source, "hook": f"{state}, {hook}" if hook else ""}
    if name == "powersgd":  # the last step compresses; what comes of the matrices is an approximation
        return context | {
            "grad_if": " and (p.ndim == 1 or step < STEPS - 1)",
            "param_if": " if p.ndim == 1",
            "predict": False,
        }
    if name == "post_local_sgd":
        return {**context, **_local_steps(case, setting)}
    return context | {"wire": "float16" if name in _LOSSY else ""}


def _local_steps(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what is needed where each rank takes steps of its own: ranks of a subgroup share their gradients."""
    made = f"{optimizer_class(case.optimizer)}(model.parameters(){optimizer_options(case.optimizer)})"
    world = world_of(setting)
    return {
        "local": True,
        "each": " {rank}",
        "constants": [f"SUBGROUP = {2 if world > 2 and world % 2 == 0 else 1}  # ranks that go on sharing gradients"],
        "made": f"PostLocalSGDOptimizer({made}, PeriodicModelAverager(period=2, warmup_steps=1))",
    }


def join_context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return how many batches each rank has, and by what gradients are divided, where ranks join."""
    kind = setting.get("join", "none")
    if kind == "none":
        return {}
    world = world_of(setting)
    batches = [min(rank + 1, case.steps) for rank in range(world - 1)] + [case.steps]
    return {
        "batches": True,
        "constants": [f"BATCHES = {batches}  # how many each rank has"],
        "divisor": "sum(step < count for count in BATCHES)" if kind == "effective" else "",
        "join_arguments": "divide_by_initial_world_size=False" if kind == "effective" else "",
    }


FAMILY = Family(
    framework="torch",
    name="ddp",
    summary="DistributedDataParallel: a replica a rank, gradients averaged in buckets",
    options=(
        WORLD,
        Option("gradient_as_bucket_view", "gradients are views into the buckets", False, (False, True)),
        Option("static_graph", "the graph is promised to be the same in every step", False, (False, True)),
        Option("find_unused_parameters", "search the graph for unused parameters", False, (False, True)),
        Option("small_buckets", "a bucket for nearly every parameter", False, (False, True)),
        NO_SYNC,
        Option(
            "batched_grad_copy", "gradients are copied into a bucket at once when it is ready", False, (False, True)
        ),
        Option("broadcast_buffers", "rank 0's buffers are broadcast before each forward pass", True, (True, False)),
        Option("comm_hook", "communication hook that reduces a bucket", "none", tuple(_HOOKS)),
        JOIN,
        Option("bad_batch", "an exception inside no_sync is caught before the first step", False, (False, True)),
        GROUP,
    ),
    contract=Contract(
        promise="Each parameter's gradient is the mean over the ranks of the gradients of their own shards' losses; "
        "every rank then takes the same optimizer step.",
        source='"This container provides data parallelism by synchronizing gradients across each model replica." and '
        '"broadcast_buffers: Flag that enables syncing (broadcasting) buffers of the module at beginning of the '
        'forward function."; "divide_by_initial_world_size: If True, will divide gradients by the initial world_size '
        "DDP training was launched with. If False, will compute the effective world size (number of ranks that have "
        'not depleted their inputs yet) and divide gradients by that during allreduce"; "Once all DDP processes have '
        "joined, the context manager will broadcast the model corresponding to the last joined process to all "
        'processes"; "the gradient will be M times smaller when compared to the same model trained on a single node '
        'with batch=M*N if the loss is summed"; "find_unused_parameters: ... Parameters that don\'t receive gradients '
        'as part of this graph are preemptively marked as being ready to be reduced"; "static_graph: ... The set of '
        "used and unused parameters will not change during the whole training loop ... DDP will support cases that can "
        'not be supported in the past: 1) Reentrant backwards." '
        '(torch.nn.parallel.DistributedDataParallel, 2.13); "Within this context, gradients will be accumulated on '
        'module variables, which will later be synchronized in the first forward-backward pass exiting the context" '
        '(no_sync, 2.13); "casts GradBucket tensor to half-precision '
        "floating-point format (torch.float16) and then divides it by the process group size. It allreduces those "
        'float16 gradient tensors ... casts it back to the input data type" (fp16_compress_hook, 2.13); "Rest of the '
        'tensors will be directly allreduced without compression, including all the vector tensors (for biases)" '
        "(powerSGD_hook, 2.13); "
        '"In the first 100 steps, DDP runs global gradient averaging at every step. After 100 steps, DDP runs gradient '
        "averaging within each subgroup (intra-node by default), and post-localSGD optimizer runs global "
        'model averaging every 4 steps after applying the local optimizer" (PostLocalSGDOptimizer, 2.13)'
        + RECIPE_SOURCE,
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm each forward starts from rank 0's buffers, or from the rank's own. A rank that has joined adds "
        "nothing. With fp16 each rank's gradient is cast, divided and summed as the hook says. PowerSGD compresses in "
        "the last step, after which vectors alone are observed. Under post-local SGD replicas take their own steps "
        "from the second on, with gradients averaged in a subgroup, and are averaged after every second step." + RECIPE,
        exact=EXACT,
        breaks=(
            "A batch with fewer rows than ranks.",
            "Every layer frozen: DDP refuses a module without a parameter that requires a gradient.",
            "A layer left out of the forward pass without find_unused_parameters, or out of some with static_graph.",
            "Reentrant checkpoints without static_graph.",
            *MICRO_BATCHES,
            *PRECISION,
            "join: one rank or one step; batch norm; averages; the effective world size under a communication hook.",
            "Compressed gradients: after clipping by norm; of micro-batches or lower precision; half precision on "
            "more than 2 ranks; PowerSGD in fewer than 3 steps; bfloat16 without NCCL.",
            "Post-local SGD: in one step or on one rank, in a group or with join, and of anything but plain steps.",
        ),
        excluded={
            "late-freeze": "parameters must not change after DDP has wrapped them",
            "thaw": "parameters must not change after DDP has wrapped them",
            **ON_ACCELERATORS,
        },
    ),
    world=world_of,
    processes=processes_of,
    parts=shards,
    obstacle=obstacle,
    exact=exact_data_parallel,
    context=_context,
    standing=(
        "ddp(world=2)",
        "ddp(world=3, find_unused_parameters=true)",
        "ddp(world=2, gradient_as_bucket_view=true, small_buckets=true, no_sync=true)",
        "ddp(world=2, comm_hook=allreduce)",
        "ddp(world=2, join=initial)",
    ),
    files=(
        "torch/nn/parallel/distributed.py",
        "torch/distributed/algorithms/ddp_comm_hooks/",
        "torch/distributed/algorithms/join.py",
        "torch/csrc/distributed/c10d/reducer",
        "torch/csrc/distributed/c10d/default_comm_hooks",
    ),
    cost=1.0,
)
