"""DTensor: one program over a mesh of logical CPU devices, rows and weights split over its dimensions."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.tensorflow.settings.common import UPDATE_FIELDS, case_obstacle, replicas_of
from d3bot.spec import Case, Optimizer, Setting

_OPS = {
    *("linear", "conv1d", "embedding", "attention", "layer_norm"),
    *("relu", "tanh", "sigmoid", "gelu", "add", "mul", "concat", "flatten", "mean"),
}
"""Operations that the library is known to expand."""

_REFUSED = {
    "lstm": "'tf.EmptyTensorList' op does not implement layout propagation. Please file a feature request to TF DTensor"
}
"""Operation -> why it is not expanded, in the library's words."""

_WHOLE_FILTER = "Filter for convolution must have fully replicated layout"
"""What the library says to a convolution whose weight is split."""


def _model(setting: Setting) -> int:
    return int(FAMILY.value(setting, "model"))


def _obstacle(case: Case, setting: Setting) -> str | None:
    if case.loop != "custom":
        return "Keras trains no DVariables"
    if replicas_of(setting) * _model(setting) == 1:
        return "a mesh of one device splits nothing"
    if case.batch % replicas_of(setting):
        return f"a dimension of {case.batch} rows does not split over {replicas_of(setting)} devices"
    special = [name for name in UPDATE_FIELDS if getattr(case, name) != Case.model_fields[name].default]
    plain = Optimizer(lr=case.optimizer.lr)
    if special or case.clip or case.freeze or case.optimizer != plain:
        return "Keras optimizers update no DVariables; what the script writes out is plain SGD"
    for op in sorted(case.ops() - _OPS):
        return _REFUSED.get(op, f"whether DTensor expands {op} is not documented")
    if "conv1d" in case.ops() and _model(setting) > 1:
        return _WHOLE_FILTER
    return case_obstacle(case)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    return {"model_size": _model(setting), "bare": False}


FAMILY = Family(
    framework="tensorflow",
    name="dtensor",
    summary="DTensor: rows split over one dimension of a mesh, weights over the other",
    options=(
        Option("replicas", "devices along the dimension that the rows are split over", high=4),
        Option("model", "devices along the dimension that the last axis of a weight is split over", 1, (1, 2)),
    ),
    contract=Contract(
        promise="The program computes what it computes on one device, however its tensors are split.",
        source='"DTensor enables running the same application on a single device, multiple devices, or even multiple '
        'clients, while preserving its global semantics" (TensorFlow guide DTensor concepts, 2.21)',
        reference="The whole batch of each step in one process.",
        exact="Nowhere: sums are taken in another order. The noise bound.",
        breaks=(
            "fit; any optimizer but plain SGD, clipping, frozen layers: Keras updates no DVariables.",
            "A batch that does not divide by the devices of its dimension.",
            "Operations without an SPMD expansion.",
        ),
    ),
    world=replicas_of,
    processes=lambda setting: 1,
    parts=lambda case, setting: 1,
    obstacle=_obstacle,
    context=_context,
    standing=(),
    files=("tensorflow/dtensor/",),
    cost=10.0,
)
