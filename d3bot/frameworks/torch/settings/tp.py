"""Tensor parallelism: `parallelize_module` with column- and row-wise plans."""

from collections.abc import Collection, Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import ACTIVATIONS, KINDS, consumers, infer_shapes
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings.common import (
    WORLD,
    draws_obstacle,
    micro_batch_obstacle,
    precision_obstacle,
    recompute_obstacle,
    world_of,
)
from d3bot.spec import Case, Setting

_COLUMN = "ColwiseParallel(output_layouts=Replicate())"
_ROW = "RowwiseParallel(input_layouts=Replicate())"
_NORM = "SequenceParallel()"
_ROUNDS = "a contraction that is split over ranks is rounded to the lower precision in each part"


def tensor_plan(case: Case, setting: Setting) -> dict[str, str]:
    """Return layer name -> style: linears paired column-wise then row-wise, the others one by one in turn.

    A pair is two linears with nothing but elementwise activations, read once each, between them: its inner value
    stays sharded, which a model without one of the two could not take: a layer that is left out is in no pair.  Every
    other linear and every embedding gathers its output or takes a replicated input.  With a parallel loss the head
    leaves its class scores sharded.
    """
    reads = consumers(case)
    skipped = {skip.layer for skip in case.skips}
    layers = {layer.name: layer for layer in case.layers}
    always = {"column": _COLUMN, "row": _ROW}.get(str(setting.get("style")), "")
    inner = "ColwiseParallel(use_local_output=False)" if setting.get("local_output") is False else "ColwiseParallel()"
    plan: dict[str, str] = {}
    for layer in case.layers:
        if layer.op == "embedding":
            plan[layer.name] = always or (_ROW if len(plan) % 2 == 0 else _COLUMN)
        if layer.op != "linear":
            continue
        if layer is case.layers[-1] and setting.get("loss_parallel") is True:
            plan[layer.name] = "ColwiseParallel(use_local_output=False)"
            continue
        source = layers.get(layer.inputs[0])
        while source is not None and source.op in ACTIVATIONS and reads[source.name] == 1:
            source = layers.get(source.inputs[0])
        paired = source is not None and source.op == "linear" and reads[source.name] == 1
        paired = paired and source is not None and not skipped & {source.name, layer.name}
        if paired and source is not None and plan.get(source.name) == _COLUMN:
            plan[source.name] = inner
            plan[layer.name] = "RowwiseParallel()"
        else:
            plan[layer.name] = always or (_ROW if len(plan) % 3 == 2 else _COLUMN)
    return plan


def sequence_norms(case: Case, setting: Setting) -> list[str]:
    """Return the layer norms that are computed on the ranks' own part of a sequence."""
    if setting.get("sequence") is False:
        return []
    shapes = infer_shapes(case)
    return [layer.name for layer in case.layers if layer.op == "layer_norm" and len(shapes[layer.name]) == 2]


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why tensor parallelism's promise does not hold for this trial, or None."""
    plan = tensor_plan(case, setting)
    if not plan:
        return "no linear or embedding layer that a tensor-parallel plan could shard"
    if setting.get("loss_parallel") is True and (case.loss != "cross_entropy" or case.layers[-1].op != "linear"):
        return "loss_parallel supports the cross-entropy loss, on class scores that a column-wise linear leaves sharded"
    if case.tie:
        return "parallelize_module makes a new parameter of each module's weight; nothing promises that a tie survives"
    if problem := micro_batch_obstacle(case, 1) or recompute_obstacle(case) or draws_obstacle(case):
        return problem
    if any(cast.dtype == "bfloat16" for cast in case.casts):
        return _ROUNDS
    if problem := precision_obstacle(case, 1):
        return problem
    if (case.clip or case.averages) and _mixed(case, {*plan, *sequence_norms(case, setting)}):
        return (
            "clipping and averaging take sharded and plain parameters in one call, and torch converts neither to the "
            "other"
        )
    return None


def _mixed(case: Case, distributed: Collection[str]) -> bool:
    return any(KINDS[layer.op].trainable and layer.name not in distributed for layer in case.layers)


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return what `plans.j2` needs to write the plan."""
    norms = sequence_norms(case, setting)
    plan = tensor_plan(case, setting) | dict.fromkeys(norms, _NORM)
    paths = model_text(case).paths
    text = "{" + ", ".join(f'"{paths[name]}": {style}' for name, style in plan.items()) + "}"
    styles = {style.split("(")[0] for style in plan.values()} | ({"PrepareModuleInputOutput"} if norms else set())
    return {
        "plan_text": text,
        "norms": [paths[name] for name in norms],
        "styles": sorted(styles),
        "loss_parallel": setting.get("loss_parallel") is True,
        "buffers": "",
    }


FAMILY = Family(
    framework="torch",
    name="tp",
    summary="parallelize_module: linear and embedding layers column- and row-wise, layer norms along the sequence",
    options=(
        WORLD,
        Option("sequence", "layer norms over a sequence are computed on a part of it a rank", True, (True, False)),
        Option("style", "of layers in no pair: by turns, or all of one style", "turns", ("turns", "column", "row")),
        Option("local_output", "a pair hands on plain tensors, or (false) sharded DTensors", True, (True, False)),
        Option("loss_parallel", "class scores stay sharded, and the loss is computed on them", False, (False, True)),
    ),
    contract=Contract(
        promise="Every rank computes what the unsharded module computes on the same batch; gathered gradients and "
        "parameters are those of one process.",
        source='"Apply Tensor Parallelism in PyTorch by parallelizing modules or sub-modules based on a user-specified '
        'plan." (torch.distributed.tensor.parallel.parallelize_module, 2.13); "SequenceParallel replicates a '
        "compatible nn.Module parameters and runs the sharded computation with input sharded on the sequence "
        'dimension" (SequenceParallel, 2.13); plain tensors among DTensors are converted under implicit_replication '
        "only (torch.distributed.tensor.experimental, 2.13)",
        reference="The whole batch in one process. Dropout is behind outputs that are whole, and each rank draws its "
        "mask from a generator that the script seeds alike on all of them.",
        exact="The noise bound: a sharded contraction adds in another order.",
        breaks=(
            "Tied weights: each module's weight becomes a parameter of its own.",
            "Clipping or averaging sharded and plain parameters together: plain tensors are not converted.",
            "A model without linear or embedding layers.",
            "Layers in bfloat16.",
            "Dropout under inductor, which draws by a generator of its own.",
        ),
        excluded={"mixed": _ROUNDS},
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: 1,
    obstacle=obstacle,
    context=context,
    standing=("tp(world=2)",),
    files=("torch/distributed/tensor/",),
    cost=2.5,
)
