"""DistributedModelParallel of torchrec: embedding bags sharded over the ranks, everything else replicated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from d3bot.frameworks.base import EPSILON, Contract, Family, Option
from d3bot.frameworks.layers import KINDS, filled_options, vocab
from d3bot.frameworks.torch.model import model_text
from d3bot.frameworks.torch.optimizer import optimizer_class, optimizer_options
from d3bot.frameworks.torch.settings.common import (
    NO_AVERAGE,
    WORLD,
    data_parallel,
    data_parallel_obstacle,
    shards,
    world_of,
)
from d3bot.frameworks.torch.settings.ddp import WAITS
from d3bot.spec import Case, Layer, Setting

_LOWER = {"none": ("", 0.0), "fp16": ("float16", EPSILON["float16"] / 2), "bf16": ("bfloat16", EPSILON["bfloat16"] / 2)}
"""What numbers between ranks are lowered to -> its name in torch, and its unit of rounding."""
_BY_ROWS = ("row_wise", "table_row_wise")


@dataclass(frozen=True)
class _Table:
    """A bag of the model as torchrec has it."""

    name: str
    rows: int
    dim: int
    pooling: str
    tokens: str
    weights: str
    plan: str
    """The call that says where its shards are."""


def _bags(case: Case) -> list[Layer]:
    return [layer for layer in case.layers if layer.op == "embedding_bag"]


def _kernel(setting: Setting) -> str:
    """Return what computes: a data-parallel table has the dense kernel in any case."""
    dense = setting.get("sharding") == "data_parallel" or setting.get("kernel") == "dense"
    return "dense" if dense else "fused"


def _obstacle(case: Case, setting: Setting) -> str | None:
    bags = _bags(case)
    if not bags:
        return "no embedding bag that torchrec could shard"
    if case.dtype != "float32":
        return "torchrec's tables hold float32 or lower types"
    names = {bag.name for bag in bags}
    read = [source for layer in case.layers for source in layer.inputs]
    inputs = {item.name for item in case.inputs}
    if any(source not in inputs or read.count(source) > 1 for bag in bags for source in bag.inputs):
        return "tokens and weights of a bag must be inputs of the model that nothing else reads"
    if any(freeze.layer in names for freeze in case.freeze):
        return "what torchrec does with a frozen table is not documented"
    frozen = {freeze.layer for freeze in case.freeze}
    if all(layer.name in frozen | names for layer in case.layers if KINDS[layer.op].trainable):
        return "DDP refuses what is left beside the tables, without a parameter that requires a gradient"
    return data_parallel_obstacle(case, setting) or _sharding_obstacle(case, setting) or _kernel_obstacle(case, setting)


def _sharding_obstacle(case: Case, setting: Setting) -> str | None:
    world, sharding = world_of(setting), setting.get("sharding")
    dims = [int(filled_options(case, bag.name)["dim"]) for bag in _bags(case)]
    if sharding == "column_wise" and any(dim % (4 * world) for dim in dims):
        return "fbgemm reads rows in fours, and the columns of a table do not divide into fours on every rank"
    if sharding != "data_parallel" and any(dim % 4 for dim in dims):
        return "fbgemm reads rows in fours, and the columns of a table do not divide into fours"
    if sharding in _BY_ROWS and case.batch % world:
        return "what row-wise tables give is reduce-scattered, and the ranks must have equally many rows"
    if sharding in _BY_ROWS and setting.get("comms", "none") != "none":
        return "the order of a half-precision sum over ranks is free"
    if sharding == "data_parallel" and setting.get("comms", "none") != "none":
        return "a data-parallel table sends no rows that could be lowered"
    if sharding == "table_row_wise" and setting.get("kernel") == "dense":
        return "table_row_wise takes no compute kernel"
    return None


def _kernel_obstacle(case: Case, setting: Setting) -> str | None:
    optimizer = case.optimizer
    if _kernel(setting) == "dense":
        return "torchrec clips sharded tables by an optimizer of its own, which is not rendered" if case.clip else None
    if optimizer.name not in ("sgd", "adagrad") or optimizer.momentum or optimizer.weight_decay:
        return "a fused table moves the rows that a batch looks up and leaves the others' momentum and decay out"
    if optimizer.decay_rate < 1:
        return "a fused table takes its step in backward, with the learning rate that it was made with"
    if case.accumulate > 1:
        return "a fused table takes its step in each backward, and micro-batches have one each"
    return "a fused table takes its step in backward, before gradients are clipped" if case.clip else None


def _table(case: Case, setting: Setting, bag: Layer, place: int) -> _Table:
    options, world = filled_options(case, bag.name), world_of(setting)
    dense = ', compute_kernel="dense"' if setting.get("kernel") == "dense" else ""
    sharding = str(FAMILY.value(setting, "sharding"))
    plan = {
        "data_parallel": "data_parallel()",
        "table_wise": f"table_wise(rank={place % world}{dense})",
        "column_wise": f"column_wise(ranks=[{', '.join(map(str, range(world)))}]{dense})",
        "row_wise": f"row_wise({dense.removeprefix(', ')})",
        "table_row_wise": "table_row_wise(host_index=0)",
    }[sharding]
    weights = bag.inputs[1] if len(bag.inputs) > 1 else ""
    pooling = str(options["pooling"]).upper()
    return _Table(bag.name, vocab(case, bag.name), int(options["dim"]), pooling, bag.inputs[0], weights, plan)


def _context(case: Case, setting: Setting) -> Mapping[str, Any]:
    text = model_text(case)
    bags = [(bag, text.paths[bag.name]) for bag in _bags(case)]
    tables = [_table(case, setting, bag, place) for place, (bag, _) in enumerate(bags)]
    pooled = {table.tokens: f'pooled["{table.name}"]' for table in tables}
    kinds = (
        ("tables", [table for table in tables if not table.weights]),
        ("weighted", [table for table in tables if table.weights]),
    )
    made = optimizer_class(case.optimizer)
    fused = _kernel(setting) == "fused"
    lower = _LOWER[str(FAMILY.value(setting, "comms"))][0]
    accesses = {bag.name: text.access(bag.name) for bag, _ in bags}
    return {
        "sharding": FAMILY.value(setting, "sharding"),
        "collections": [(name, chosen) for name, chosen in kinds if chosen],
        "accesses": accesses,
        "table_weight": f'"param {bags[0][1]}.weight"' if bags[0][1].isdigit() else 'f"param {name}.weight"',
        "inner": [pooled.get(item.name, item.name) for item in case.inputs],
        "fused": made if fused else "",
        "made": "" if fused else f"{made}(parallel.parameters(){optimizer_options(case.optimizer)})",
        "comms": str(FAMILY.value(setting, "comms")).upper() if lower else "",
        "lower": lower,
        "lowered": list(accesses.values()) if lower else [],
        "hidden_grads": f" and not name.startswith({_tuple(path for _, path in bags)})",
        **data_parallel(case, "own"),
    }


def _tuple(paths: Iterable[str]) -> str:
    texts = [f'"{path}."' for path in paths]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


FAMILY = Family(
    framework="torch",
    name="torchrec",
    summary="torchrec's DistributedModelParallel: embedding bags sharded over the ranks, the rest replicated in DDP",
    options=(
        WORLD,
        Option(
            "sharding",
            "how tables are spread over the ranks",
            "table_wise",
            ("table_wise", "row_wise", "column_wise", "table_row_wise", "data_parallel"),
        ),
        Option(
            "kernel",
            "what computes: with its optimizer inside (fused), or without (dense)",
            "fused",
            ("fused", "dense"),
        ),
        Option("comms", "type of the numbers that ranks exchange for the tables", "none", tuple(_LOWER)),
    ),
    contract=Contract(
        promise="Every rank gets for its rows what unsharded bags give; gradients are means over the ranks, of sharded "
        "tables as of the replicated rest.",
        source='"DistributedModelParallel: Entry point to model parallelism"; "QCommsConfig: Quantization configs for '
        'the AllToAll and ReduceScatter communication modules used in sharding" (torchrec.distributed, 1.8); "Upon '
        "backwards(), parameters will fire the corresponding optimizer ... gradients for these parameters will be set "
        'to None after backwards()" (torchrec.optim.apply_optimizer_in_backward, 1.8); "padding_idx: If specified, the '
        "entries at padding_idx do not contribute to the gradient ... Note that the embedding vector at padding_idx is "
        'excluded from the reduction" (torch.nn.EmbeddingBag, 2.13)',
        reference="As ddp's, with nn.EmbeddingBag for the tables; their gradients are seen in what becomes of their "
        "parameters. With lowered communication what a bag gives, and the gradient that comes back, pass through the "
        "lower type.",
        exact="The noise bound: fbgemm adds the rows of a bag in an order of its own.",
        breaks=(
            "A model without embedding bags, or whose bags read what something else computes or reads as well.",
            "Types other than float32; frozen tables; nothing to train beside the tables.",
            "Widths that do not divide into fours (column-wise: on every rank); row-wise with unequal ranks.",
            "Lowered communication of row-wise tables, whose sum has no order, and of data-parallel ones.",
            "The fused kernel under momentum, decay, a schedule, micro-batches, or an optimizer other than SGD and "
            "Adagrad: it moves in backward only the rows that a batch looks up.",
            "Clipping.",
        ),
        excluded={
            **WAITS,
            **dict.fromkeys(
                ("late-freeze", "thaw"), "parameters must not change after DDP has wrapped what is not sharded"
            ),
            "batch-norm": "whose statistics a forward pass starts from is not documented",
            "tied": "a table is a parameter of its collection alone",
            **NO_AVERAGE,
            "in-backward": "tables and the rest have an optimizer each",
            "groups": "tables and the rest have an optimizer each",
            **dict.fromkeys(
                ("mixed", "cast", "recompute", "compiled"),
                "what torchrec does with tables under it is not documented, and its modules take the tables' place",
            ),
        },
    ),
    world=world_of,
    processes=world_of,
    parts=shards,
    obstacle=_obstacle,
    context=_context,
    rounding=lambda case, setting: _LOWER[str(setting.get("comms", "none"))][1],
    standing=(),
    needs="torchrec",
    files=("torchrec/",),
    cost=2.0,
)
