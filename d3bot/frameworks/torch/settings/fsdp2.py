"""FSDP2: `torch.distributed.fsdp.fully_shard`."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings.common import (
    WORLD,
    exact_data_parallel,
    keeps_local_buffers,
    small_shards,
    world_of,
)
from d3bot.spec import Case, Setting


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    arguments = ""
    if setting.get("reshard_after_forward") is False:
        arguments += ", reshard_after_forward=False"
    if setting.get("shard_dim") == 1:
        arguments += ", shard_placement_fn=lambda p: Shard(p.ndim - 1)"
    layers = [] if setting.get("wrap") == "root" or case.tie else [x.name for x in case.layers if KINDS[x.op].trainable]
    text = model_text(case)
    return {
        "arguments": arguments,
        "shard_dim": setting.get("shard_dim") == 1,
        "units": [*(text.access(name) for name in layers), "model"],
        "buffers": "own" if keeps_local_buffers(case) else "",
        "part_comment": "the ranks' shards, one after the other",
    }


FAMILY = Family(
    framework="torch",
    name="fsdp2",
    summary="fully_shard: parameters, gradients and optimizer state sharded over the ranks",
    options=(
        WORLD,
        Option("wrap", "units: every layer and the root, or the root alone", "layers", ("layers", "root")),
        Option("reshard_after_forward", "free the gathered parameters after forward", True, (True, False)),
        Option("shard_dim", "dimension that is sharded: the first, or (1) the last", 0, (0, 1)),
    ),
    contract=Contract(
        promise="The gathered gradient of each parameter is the mean over the ranks of their own shards' gradients; "
        "sharding changes where numbers lie, not what they are.",
        source='"fully_shard: Apply fully sharded data parallelism (FSDP) to module, where FSDP shards module '
        'parameters, gradients, and optimizer states across data parallel workers"; "shard_placement_fn: This callable '
        'can be used to override the sharding placement for a parameter" (torch.distributed.fsdp.fully_shard, 2.13)',
        reference="The ranks' shards one after the other in one process, each loss divided by the world size; with "
        "batch norm every rank keeps its own buffers.",
        exact="2 ranks: to the last bit, except after clipping by norm. Other world sizes: the noise bound.",
        breaks=("A batch with fewer rows than ranks.",),
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: world_of(setting),
    obstacle=small_shards,
    exact=exact_data_parallel,
    context=_context,
    standing=(
        "fsdp2(world=2)",
        "fsdp2(world=3)",
        "fsdp2(world=2, reshard_after_forward=false, wrap=root)",
        "fsdp2(world=2, shard_dim=1)",
    ),
)
