"""Differentiable collectives: one layer is computed on rows that the ranks exchange inside the autograd graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from d3bot.frameworks.base import Contract, Family, Option
from d3bot.frameworks.layers import CONVOLUTIONS
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.settings.common import (
    GROUP,
    MICRO_BATCHES,
    NO_STEP_IN_BACKWARD,
    WORLD,
    data_parallel,
    data_parallel_obstacle,
    group_context,
    processes_of,
    shards,
    world_of,
)
from d3bot.spec import Case, Setting

_LAYERS = ("linear", *CONVOLUTIONS, "layer_norm", "rms_norm", "group_norm", "scale")
"""Layers that take one real-valued tensor and give one, row by row."""

_SPREAD = "torch.cat([x * (other == rank) for other in range(WORLD)])"
_SHARE = "output * SHARES[rank]"
_OWN = ".tensor_split(WORLD)[rank]"


@dataclass(frozen=True)
class _Exchange:
    """How rows come to the ranks that compute the layer on them, and how the outputs come back."""

    names: tuple[str, ...]
    before: str
    """The layer's input, of the rank's own rows `x`."""
    after: str
    """The output of the rank's own rows, of the layer's `output`."""


_SUMMED = f"all_reduce({_SHARE}@){_OWN}"
_NN = {
    "all_reduce": _Exchange(("all_reduce",), f"all_reduce({_SPREAD}@)", _SUMMED),
    "all_gather": _Exchange(("all_gather", "all_reduce"), "torch.cat(all_gather(x@))", _SUMMED),
    "broadcast": _Exchange(
        ("all_reduce", "broadcast"), "torch.cat([broadcast(x, other@) for other in RANKS])", _SUMMED
    ),
    "reduce": _Exchange(
        ("all_reduce", "reduce"),
        f"all_reduce({_SPREAD}@)",
        f"sum(reduce(part, other@) * (other == RANKS[rank]) for other, part in zip(RANKS, "
        f"({_SHARE}).tensor_split(WORLD)))",
    ),
    "reduce_scatter": _Exchange(
        ("all_reduce", "reduce_scatter"),
        f"all_reduce({_SPREAD}@)",
        f"reduce_scatter(torch.empty_like(output{_OWN}), list(({_SHARE}).tensor_split(WORLD))@)",
    ),
    "scatter": _Exchange(
        ("gather", "scatter"),
        "torch.cat(gather(x, RANKS[0]@))",
        "scatter(list(output.tensor_split(WORLD)), RANKS[0]@)",
    ),
    "all_to_all": _Exchange(
        ("all_to_all",),
        "torch.cat(all_to_all([torch.empty_like(part) for part in x.tensor_split(WORLD)], "
        "list(x.tensor_split(WORLD))@))",
        "torch.cat(all_to_all([torch.empty_like(part) for part in output.tensor_split(WORLD)], "
        "list(output.tensor_split(WORLD))@))",
    ),
    "all_to_all_single": _Exchange(
        ("all_to_all_single",),
        "all_to_all_single(x.new_empty(WORLD * SIZES[rank], *x.shape[1:]), x, WORLD * [SIZES[rank]], SIZES@)",
        "all_to_all_single(output.new_empty(sum(SIZES), *output.shape[1:]), output, SIZES, WORLD * [SIZES[rank]]@)",
    ),
}
"""Of `torch.distributed.nn.functional`; the sign @ stands where the group is named, if one is."""
_FUNCTIONAL = {
    "all_reduce": _Exchange(
        ("all_reduce",), f'all_reduce({_SPREAD}, "sum", @)', f'all_reduce({_SHARE}, "sum", @){_OWN}'
    ),
    "all_gather": _Exchange(
        ("all_gather_tensor_autograd", "all_reduce"),
        "all_gather_tensor_autograd(x, 0, @)",
        f'all_reduce({_SHARE}, "sum", @){_OWN}',
    ),
    "reduce_scatter": _Exchange(
        ("all_reduce", "reduce_scatter_tensor_autograd"),
        f'all_reduce({_SPREAD}, "sum", @)',
        f'reduce_scatter_tensor_autograd({_SHARE}, "sum", 0, @)',
    ),
    "all_to_all_single": _Exchange(
        ("all_to_all_single_autograd",),
        "all_to_all_single_autograd(x, WORLD * [SIZES[rank]], SIZES, @)",
        "all_to_all_single_autograd(output, SIZES, WORLD * [SIZES[rank]], @)",
    ),
}
"""Of `torch.distributed._functional_collectives`."""


def exchanged_layer(case: Case) -> str:
    """Return the layer that is computed on exchanged rows: the middle one of those that can be; empty if none can."""
    able = [layer.name for layer in case.layers if layer.op in _LAYERS]
    return able[len(able) // 2] if able else ""


def _rows(case: Case, setting: Setting) -> int:
    """Return how many rows a rank brings to an exchange."""
    return case.batch // (world_of(setting) * case.accumulate)


def _obstacle(case: Case, setting: Setting) -> str | None:
    op, world = str(FAMILY.value(setting, "op")), world_of(setting)
    if setting.get("api") == "functional" and op not in _FUNCTIONAL:
        return f"torch.distributed._functional_collectives has no {op} that autograd knows the gradient of"
    if not exchanged_layer(case):
        return "no layer that takes one real-valued tensor and gives one, row by row"
    if problem := data_parallel_obstacle(case, setting):
        return problem
    if case.batch % world:
        return f"the collectives take as many rows of every rank, and {case.batch} do not divide by {world}"
    if op == "all_to_all" and _rows(case, setting) % world:
        return f"{_rows(case, setting)} rows of a rank do not divide into equal parts for {world}"
    if op == "all_to_all_single" and _rows(case, setting) < world:
        return f"{_rows(case, setting)} rows of a rank leave one of {world} without any"
    return None


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    world, op = world_of(setting), str(FAMILY.value(setting, "op"))
    tail = setting.get("group") == "tail"
    functional = setting.get("api") == "functional"
    exchange = (_FUNCTIONAL if functional else _NN)[op]
    named = ", group=group" if tail else ""
    if functional:
        named = "group" if tail else "dist.group.WORLD"
    before, after = exchange.before.replace("@", named), exchange.after.replace("@", named)
    text = before + after
    parts = [len(range(i, _rows(case, setting), world)) for i in range(world)]
    constants = {
        "SHARES": f"SHARES = {shares(world)}  # of a sum that is of equal outputs",
        "RANKS": f"RANKS = {list(range(tail, world + tail))}",
        "SIZES": f"SIZES = {parts}  # rows that a rank sends to each",
    }
    return {
        **data_parallel(case, "own"),
        **group_context(setting),
        "layer": model_text(case).access(exchanged_layer(case)),
        "module": "_functional_collectives" if functional else "nn.functional",
        "collectives": exchange.names,
        "before": before,
        "after": after,
        "constants": [line for name, line in constants.items() if name in text],
    }


def shares(world: int) -> list[float]:
    """Return factors that add up to 1 and with which nothing is rounded: powers of two."""
    return [2.0 ** -min(world - 1, world - i) for i in range(world)]


FAMILY = Family(
    framework="torch",
    name="collectives",
    summary="differentiable collectives: one layer is computed on rows that the ranks exchange in the autograd graph",
    options=(
        WORLD,
        Option("op", "collective that is differentiated", "all_gather", tuple(_NN)),
        Option(
            "api",
            "torch.distributed.nn.functional, or the functional collectives with autograd",
            "nn",
            ("nn", "functional"),
        ),
        GROUP,
    ),
    contract=Contract(
        promise="Rows that are computed on another rank, or on several of which each adds its share, give the output "
        "and the gradients that they give at home: what is differentiated is the sum of the ranks' losses.",
        source='"if you want to use collective communication functions supporting autograd you can find an '
        "implementation of those in the torch.distributed.nn.* module. Functions here are synchronous and will be "
        "inserted in the autograd graph, so you need to ensure that all the processes that participated in the "
        'collective operation will do the backward pass" (torch.distributed, 2.13); "Forward aggregates tensors, '
        'backward aggregates gradients" (torch.distributed._functional_collectives, all_reduce, 2.13); '
        '"src (int): Source rank on global process group" (torch.distributed.broadcast, 2.13)',
        reference="The ranks' shards one after the other in one process, each loss divided by the world size, nothing "
        "exchanged: the gradient of a sum is the sum of the ranks' gradients, of a copy the sum over its copies, of a "
        "row that moved that row's.",
        exact="The noise bound: a layer's rows are multiplied in other company, and shares add up in another order.",
        breaks=(
            "A model without a layer that takes one real-valued tensor and gives one, row by row.",
            "A batch that does not divide by the ranks; for all_to_all a rank's rows that do not.",
            "Functional collectives other than all_reduce, all_gather, reduce_scatter and all_to_all_single.",
            *MICRO_BATCHES,
        ),
        excluded={
            "mixed": "a sum of shares is rounded to the lower type more often than the whole",
            "cast": "a sum of shares is rounded to the lower type more often than the whole",
            **NO_STEP_IN_BACKWARD,
        },
    ),
    world=world_of,
    processes=processes_of,
    parts=shards,
    obstacle=_obstacle,
    context=_context,
    standing=(),
    files=(
        "torch/distributed/nn/",
        "torch/distributed/_functional_collectives",
        "torch/csrc/distributed/c10d/Functional",
    ),
    cost=1.3,
)
