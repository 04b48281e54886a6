"""Distributed checkpoint: one job saves in mid-training, another one loads and trains on."""

from collections.abc import Mapping
from math import lcm
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings import ddp, tp
from d3bot.frameworks.torch.settings.common import (
    data_parallel,
    exact_data_parallel,
    ignored_obstacle,
    layer_units,
    world_of,
)
from d3bot.frameworks.torch.settings.fsdp2 import projects_apart
from d3bot.spec import ArrayName, Case, Setting

_WRAPPERS = ("fsdp2", "ddp", "fsdp1", "tp")
_PLAN = Setting.parse("tp(world=2, local_output=false)")
"""The plan under tensor parallelism: sharded DTensors between two layers may be uneven, plain tensors may not."""


def _loaders(setting: Setting) -> int:
    return int(FAMILY.value(setting, "onto"))


def _most(setting: Setting) -> int:
    return max(world_of(setting), _loaders(setting))


def _wrappers(setting: Setting) -> tuple[str, str]:
    return str(FAMILY.value(setting, "saved")), str(FAMILY.value(setting, "loaded"))


def _shards(setting: Setting) -> tuple[int, int]:
    """Return into how many shards a batch is split before and after the checkpoint; tensor parallelism splits none."""
    saved, loaded = _wrappers(setting)
    return 1 if saved == "tp" else world_of(setting), 1 if loaded == "tp" else _loaders(setting)


def _parts(case: Case, setting: Setting) -> int:
    # Rows may change places for the noise floor where they stay on their rank before and after the checkpoint.
    both = lcm(*_shards(setting))
    return case.batch if case.batch % both else both


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.steps < 2:
        return "a checkpoint in mid-training needs a step before it and one after it"
    if not ddp.any_trainable(case):
        return "DDP refuses a module without a parameter that requires a gradient"
    most = max(_shards(setting))
    if case.batch < most:
        return f"a batch of {case.batch} leaves a rank of {most} without a row"
    return ignored_obstacle(case, most) or _wrapper_obstacle(case, setting)


def _wrapper_obstacle(case: Case, setting: Setting) -> str | None:
    wrappers = _wrappers(setting)
    if "fsdp1" in wrappers:
        if case.clip and case.clip.kind == "norm":
            return "FSDP1 clips by norm in a method of its own, which the job before or after has not"
        if case.freeze and not layer_units(case, setting):
            return "FSDP1 shows a frozen parameter a zero gradient in a unit that trains"
    return tp.obstacle(case, _PLAN) if "tp" in wrappers else None


def _exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    if "tp" in _wrappers(setting):
        return False
    if "fsdp2" in _wrappers(setting) and projects_apart(case, setting):
        return False
    return _loaders(setting) <= 2 and exact_data_parallel(case, setting, name)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    text = model_text(case)
    saved, loaded = _wrappers(setting)
    savers, loaders = world_of(setting), _loaders(setting)
    counts = f"SAVERS, LOADERS, SAVED = {savers}, {loaders}, {case.steps // 2}"
    before, after = _shards(setting)
    names = [1 if wrapper == "tp" else name for wrapper, name in ((saved, "SAVERS"), (loaded, "LOADERS"))]
    plan = tp.context(case, _PLAN) if "tp" in (saved, loaded) else {}
    sharded = {"fsdp2", "tp"} & {saved, loaded}
    return {
        **plan,
        **data_parallel(case, "own"),
        "constants": [f"{counts}  # ranks that save and that load; steps before that"],
        "parts": max(before, after),
        "ranks": f"{names[0]} if step < SAVED else {names[1]}" if before != after else "",
        "parts_name": "ranks" if before != after else "SAVERS",
        "saved": saved,
        "loaded": loaded,
        "asynchronous": setting.get("asynchronous") is True,
        "units": [text.access(name) for name in layer_units(case, setting)],
        "full": "full" if sharded else ".clone()" if "fsdp1" in (saved, loaded) else "",
        "contexts": ["nullcontext"] * ("fsdp1" in (saved, loaded) and saved != loaded),
    }


FAMILY = Family(
    framework="torch",
    name="dcp",
    summary="torch.distributed.checkpoint: a job saves model and optimizer in mid-training, another loads and goes on",
    options=(
        Option("world", "number of ranks that save", low=1, high=8),
        Option("onto", "number of ranks that load", 2, low=1, high=8),
        Option("saved", "what wraps the model that is saved", "fsdp2", _WRAPPERS),
        Option("loaded", "what wraps the model that is loaded", "fsdp2", _WRAPPERS),
        Option("asynchronous", "saved in the background while parameters move on", False, (False, True)),
    ),
    contract=Contract(
        promise="Training goes on as if nothing had happened, on whatever number of ranks and in whatever wrapper.",
        source='"It handles load-time resharding which enables saving in one cluster topology and loading into '
        'another." (torch.distributed.checkpoint, 2.13); "get_state_dict can process any module that is parallelized '
        "by PyTorch FSDP/fully_shard, DDP/replicate, tensor_parallel/parallelize_module, and any combination of these "
        "parallelisms. The main functions of get_state_dict are: 1.) returning a model and optimizer state_dict that "
        'can be resharded with a different number of trainers and/or different parallelisms." (get_state_dict, 2.13); '
        '"This code first de-stages the state_dict on to the staging storage (defaults to CPU memory), and then calls '
        'the save in a separate thread." (async_save, 2.13)',
        reference="Training in one process without a break: the ranks' shards one after the other, as many as there "
        "are ranks before and after the checkpoint, each loss divided by their number; the whole batch under tensor "
        "parallelism.",
        exact="On at most 2 ranks without tensor parallelism: to the last bit, except after clipping by norm and with "
        "attention in a unit of its own. Elsewhere the noise bound.",
        breaks=(
            "One step: nothing comes before or after the checkpoint.",
            "A batch with fewer rows than ranks, or one of whose rows all are ignored on a rank.",
            "FSDP1: clipping by norm; frozen and trained parameters in one unit.",
            "Tensor parallelism: what breaks tp.",
            ddp.FAMILY.contract.breaks[1],
        ),
        excluded={
            **ddp.FAMILY.contract.excluded,
            "batch-norm": "each rank has running statistics of its own, and a checkpoint keeps one of them",
            "late-group": "the job that loads makes its optimizer anew, with the groups of the first step",
            "recompute": "what is computed again in backward is the wrapped families' own matter",
            "compiled": "what compiles a model is the wrapped families' own matter",
            "mixed": "lower precision is the wrapped families' own matter",
            "cast": "lower precision is the wrapped families' own matter",
            "accumulate": "micro-batches are the wrapped families' own matter",
            "average": "what is averaged over both jobs is kept beside the checkpoint",
            "in-backward": "a checkpoint keeps the state of one optimizer",
            **ddp.WAITS,
        },
    ),
    world=_most,
    processes=_most,
    parts=_parts,
    obstacle=_obstacle,
    exact=_exact,
    context=_context,
    standing=("dcp(world=2, onto=3)",),
    files=("torch/distributed/checkpoint/", "torch/distributed/_state_dict_utils.py"),
    cost=2.0,
)
