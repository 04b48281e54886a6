"""Extras: what some fresh Keras cases do beside a plain recipe, at most one a case."""

from typing import Any

from d3bot.frameworks.layers import KINDS
from d3bot.generate.deal import Dealer
from d3bot.generate.models import MOST_LAYERS
from d3bot.spec import Case, Layer, Metric

EXTRAS = (
    *("", "", "", "", ""),
    *("l2", "l2", "sum", "sample", "class", "ignored", "ema", "ema", "running", "thaw", "evaluate", "dropout"),
    *("dropout", "on-batch", "on-batch", "at-once", "bfloat16", "float16", "xla"),
)
"""Accumulation is not among them: most strategies refuse it (keras-team/keras#20582), which a seed shows."""
_NUMBERS: tuple[tuple[Metric, ...], ...] = (("mae",), ("mse", "rmse"), ("r2",), ("mae", "r2"))
_LABELS: tuple[tuple[Metric, ...], ...] = (("accuracy",), ("accuracy", "cross_entropy"), ("iou",), ("top_2",))


def with_extra(case: Case, dealer: Dealer) -> Case:
    """Return a Keras case with one extra of the deck, metrics, and inputs whose rows may differ in their mean."""
    extra, chance = dealer.deal("keras extra", EXTRAS), dealer.chance("keras extra")
    if extra in ("class", "ignored") and case.loss != "cross_entropy":
        extra = "sample"
    norm = any(layer.op == "batch_norm" for layer in case.layers)
    change: dict[str, Any] = {"slope": chance.choice((1.0, 2.0)) if norm and chance.random() < 0.7 else 0.0}
    if extra in ("ignored", "running", "thaw"):
        change["loop"] = "custom"
    elif extra in ("evaluate", "on-batch", "at-once") and not any(freeze.at for freeze in case.freeze):
        change["loop"] = "train_on_batch" if extra == "on-batch" else "fit"
        change["steps_per_execution"] = 2 if extra == "at-once" else 1
        change |= {"evaluate": extra == "evaluate", "batch": case.batch + case.batch % 2}
    loop = change.get("loop", case.loop)
    match extra:
        case "l2":
            change["l2"] = chance.choice((0.01, 0.05))
        case "sum":
            change |= {"reduction": "sum", "optimizer": _slower(case)}
        case "sample" | "class":
            change["weights"] = extra
            if loop == "custom":  # a loss with weights goes through float32 (`compute_average_loss`), whatever its type
                change["dtype"] = "float32"
        case "ignored":
            change["ignored"] = chance.randint(1, case.batch // 3)
        case "ema":  # exact in float32, which `tf.train.ExponentialMovingAverage` keeps the decay in
            change["ema"] = chance.choice((0.5, 0.75))
        case "running":
            change["running_mean"] = True
        case "thaw":
            layer = chance.choice([layer.name for layer in case.layers[:-1] if KINDS[layer.op].trainable])
            change |= {"freeze": [{"layer": layer, "at": 1, "until": 2}], "steps": max(3, case.steps)}
        case "bfloat16" | "float16" if not norm:
            change |= {"mixed": extra, "dtype": "float32", "optimizer": _plain(case), "clip": None}
        case "xla" if loop != "custom" or not any(layer.op in ("lstm", "gru") for layer in case.layers):
            change["compiler"] = "xla"
        case "dropout" if len(case.layers) < MOST_LAYERS:
            change["layers"] = _with_dropout(case.layers)
    change["metrics"] = _metrics(case, dealer, change.get("dtype", case.dtype)) if loop != "custom" else ()
    if norm and loop == "custom" and chance.random() < 0.5:
        layers = change.get("layers", [layer.model_dump() for layer in case.layers])
        change["layers"] = [
            layer | {"op": "sync_batch_norm"} if layer["op"] == "batch_norm" else layer for layer in layers
        ]
    return Case.model_validate(case.model_dump() | change)


def _slower(case: Case) -> dict[str, Any]:
    """A sum's gradient is that of a mean times the rows; the optimizers that do not divide it out go slower."""
    plain = case.optimizer.model_dump()
    return plain | ({"lr": round(case.optimizer.lr / case.batch, 5)} if case.optimizer.name == "sgd" else {})


def _plain(case: Case) -> dict[str, Any]:
    """SGD: of one rounding near zero Adam makes a whole step, and lower precision has many."""
    plain = case.optimizer.model_dump()
    return plain | ({} if case.optimizer.name == "sgd" else {"name": "sgd", "lr": 0.05, "weight_decay": 0.0})


def _with_dropout(layers: tuple[Layer, ...]) -> list[dict[str, Any]]:
    """A dropout that drops nothing in practice before the head: what a replica draws is not documented."""
    head = layers[-1].model_dump()
    source = head["inputs"][0]
    drop = {"name": "drop1", "op": "dropout", "inputs": [source], "options": {}}
    return [*(layer.model_dump() for layer in layers[:-1]), drop, head | {"inputs": ["drop1", *head["inputs"][1:]]}]


def _metrics(case: Case, dealer: Dealer, dtype: str) -> tuple[Metric, ...]:
    if case.loss != "cross_entropy":
        return dealer.deal("metrics", _NUMBERS)
    metrics = dealer.deal("metrics", _LABELS)
    return metrics if dtype == "float32" or "top_2" not in metrics else ("accuracy",)
