"""The model on plain DTensors: parameters and inputs are distributed, and each operation propagates placements."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import KINDS, filled_options
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings.common import WORLD, micro_batch_obstacle, recompute_obstacle, world_of
from d3bot.spec import Case, Setting

_STATE = "a recurrent layer makes plain tensors of its initial state, and DTensor requires all operands to be DTensors"
_ROUNDS = "a contraction that is split over ranks is rounded to the lower precision in each part"
_MATRICES = ("linear", "embedding")
_TURNS = {"shard0": (0,), "shard1": (1,), "mixed": (0, 1, None), "replicate": (None,)}

_MEASURES = {
    "best": "output.argmax(dim=-1)",
    "worst": "output.argmin(dim=-1)",
    "row": "output.argmax(dim=0)",
    "energy": "(output.square().sum(dim=-1) + 1).sqrt()",
    "share": "output.softmax(dim=-1).sum(dim=0).add(1).div(len(output) + output.shape[-1])",
}
"""Metrics of the prediction while it is a DTensor: the best and the worst class, the row in which each class is
largest, the root of the energy and one, the classes' shares.

Their reductions run over sharded dimensions, and one is added to each sum while it is still to be reduced.
"""


def placements(case: Case, setting: Setting) -> dict[str, str]:
    """Return parameter name -> placement of what is sharded: linears, embeddings and layer norms, in turns.

    Kernels of convolutions, attention and batch norm stay replicated.
    """
    turns = cycle(_TURNS[str(FAMILY.value(setting, "weights"))])
    paths = model_text(case).paths
    tied = {tie.layer for tie in case.tie}
    sharded = {}
    for layer in case.layers:
        names = []
        if layer.op in _MATRICES:
            names = [("weight", 2)] * (layer.name not in tied)
            names += [("bias", 1)] * bool(layer.op == "linear" and filled_options(case, layer.name)["bias"])
        elif layer.op == "layer_norm":
            names = [("weight", 1), ("bias", 1)]
        for name, dims in names:
            dim = next(turns)
            if dim is not None:
                sharded[f"{paths[layer.name]}.{name}"] = f"Shard({min(dim, dims - 1)})"
    return sharded


def _everywhere(case: Case, setting: Setting, shards: Mapping[str, str]) -> str:
    """Return the placement of all parameters if they are sharded alike; else empty."""
    has = (layer.op in (*_MATRICES, "layer_norm") for layer in case.layers if KINDS[layer.op].trainable)
    replicated = case.tie or None in _TURNS[str(FAMILY.value(setting, "weights"))]
    kinds = set(shards.values())
    return kinds.pop() if all(has) and not replicated and len(kinds) == 1 else ""


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.weights == "class" and setting.get("loss") != "gathered":
        return "class weights are a plain tensor in the loss, and DTensor requires all operands to be DTensors"
    if setting.get("inputs") == "shard0" and case.batch < world_of(setting):
        return f"a batch of {case.batch} leaves a rank of {world_of(setting)} without a row"
    return micro_batch_obstacle(case, 1) or recompute_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    text = model_text(case)
    gathered = setting.get("loss") == "gathered"
    shards = placements(case, setting)
    inputs = "Shard(0)" if setting.get("inputs") == "shard0" else "Replicate()"
    everywhere = _everywhere(case, setting, shards)
    return {
        "shards": shards,
        "shards_text": "{" + ", ".join(f'"{name}": {placement}' for name, placement in shards.items()) + "}",
        "everywhere": everywhere,
        "freezes": bool(case.freeze),
        "input_placement": inputs,
        "gathered": gathered,
        "ties": [f"{text.access(tie.layer)}.weight = {text.access(tie.to)}.weight" for tie in case.tie],
        "measures": {} if gathered else _MEASURES,
        "buffers": "",
        "placement_names": ["Replicate"] * (not everywhere or inputs == "Replicate()")
        + ["Shard"] * (bool(shards) or inputs == "Shard(0)"),
    }


FAMILY = Family(
    framework="torch",
    name="dtensor",
    summary="the model computed on DTensors: distribute_module with drawn placements, loss and metrics included",
    options=(
        WORLD,
        Option("weights", "how linears, embeddings and layer norms are placed", "shard0", tuple(_TURNS)),
        Option("inputs", "how inputs and targets are placed", "replicate", ("replicate", "shard0")),
        Option("loss", "computed on the DTensors, or on the gathered output", "sharded", ("sharded", "gathered")),
    ),
    contract=Contract(
        promise="A DTensor program computes what the same program computes on the whole tensors, whatever the "
        "placements.",
        source='"PyTorch DTensor offers simple and flexible tensor sharding primitives that transparently handles '
        "distributed logic, including sharded storage, operator computation and collective communications across "
        'devices/hosts" (torch.distributed.tensor, 2.13); "output_fn (Callable): specify the output distribution, i.e. '
        'could control how the output is sharded, or convert it back to torch.Tensor" (distribute_module, 2.13)',
        reference="The whole batch in one process.",
        exact="The noise bound: a sharded contraction adds in another order.",
        breaks=(
            "A batch with fewer rows than ranks, where inputs are sharded.",
            "Class weights in a loss of DTensors: they are a plain tensor.",
        ),
        excluded={
            "mixed": _ROUNDS,
            "cast": _ROUNDS,
            "lstm": _STATE,
            "gru": _STATE,
            "embedding-bag": "a bag makes plain tensors of its offsets, and all operands must be DTensors",
            "dropout": '"DTensor Random APIs only supports cuda/cuda-like devices" (is_rng_supported_mesh, 2.13)',
            "attention": "the backward of the CPU's attention has no sharding strategy, as DTensor says",
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    standing=("dtensor(world=2)",),
    files=("torch/distributed/tensor/",),
    cost=3.0,
)
