"""Context parallelism: `context_parallel` shards a sequence, and attention reads all of it."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import ACTIVATIONS, infer_shapes
from d3bot.frameworks.torch.settings.common import (
    NO_STEP_IN_BACKWARD,
    WORLD,
    micro_batch_obstacle,
    recompute_obstacle,
    world_of,
)
from d3bot.spec import Case, Setting

_TOKENWISE = {"attention", "linear", "embedding", "layer_norm", "rms_norm", "scale", "add", "mul", "concat"} | set(
    ACTIVATIONS
)
"""Operations that compute each place of a sequence by itself, and attention."""


def _obstacle(case: Case, setting: Setting) -> str | None:
    shapes = infer_shapes(case)
    if "attention" not in case.ops():
        return "context parallelism is a way to compute attention, and the model has none"
    if any(layer.op == "attention" and len(layer.inputs) > 1 for layer in case.layers):
        return "only attention of a sequence to itself is documented to be sharded"
    foreign = sorted(case.ops() - _TOKENWISE)
    if foreign:
        return f"{foreign[0].replace('_', '-')} reads more of a sequence than the rank's own part"
    if case.loss != "mse" or len(shapes[case.layers[-1].name]) != 2:
        return "the loss must be one of each place of a sequence, for its mean over the ranks to be that of the whole"
    if case.reduction == "sum":
        return "a summed loss of the parts of a sequence is not averaged over the ranks"
    lengths = {item.shape[0] for item in case.inputs} | {shapes[case.layers[-1].name][0]}
    if any(length % (2 * world_of(setting)) for length in lengths):
        return "the load balancer takes two parts of the sequence for each rank, of one length"
    return micro_batch_obstacle(case, 1) or recompute_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {
        "buffers": "",
        "kernel": str(FAMILY.value(setting, "kernel")).upper(),
        "sequences": len(case.inputs) + 1,
    }


_LOWER = "each rank's part of a mean is rounded to the lower type by itself"

FAMILY = Family(
    framework="torch",
    name="cp",
    summary="context_parallel: every rank holds a part of each sequence, and attention reads all of it",
    options=(
        WORLD,
        Option("kernel", "backend of scaled_dot_product_attention", "math", ("math", "flash_attention")),
    ),
    contract=Contract(
        promise="Attention over a sequence that is sharded gives what it gives on the whole; the mean over the ranks "
        "of the gradients of their own places' losses is the gradient of the whole sequence's.",
        source='"This API performs two actions: 1) patch the SDPA (torch.nn.functional.scaled_dot_product_attention) '
        "with the CP-enabled one, 2) shard buffers along the sequence dimension and each rank will preserve the "
        'corresponding shard"; "These buffers must be sharded along the sequence dimension to ensure the accuracy" '
        "(torch.distributed.tensor.experimental.context_parallel, 2.13)",
        reference="The whole batch in one process.",
        exact="The noise bound: sums over a sequence are taken in parts.",
        breaks=(
            "A model without attention, or with a layer that reads more than one place of a sequence.",
            "Another loss than the mean squared error of every place.",
            "A sequence that does not divide into two parts a rank.",
            "Micro-batches: rows that do not divide into them.",
        ),
        excluded={
            "mixed": _LOWER,
            "cast": _LOWER,
            "dropout": "what a rank draws for its part of a sequence is not a part of what is drawn for the whole",
            **NO_STEP_IN_BACKWARD,
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    standing=(),
    files=("torch/distributed/tensor/experimental/",),
    cost=2.0,
)
