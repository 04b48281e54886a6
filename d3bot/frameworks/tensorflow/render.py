"""A tensorflow trial as one plain Python file."""

from collections.abc import Mapping

from d3bot.frameworks.base import Script, View
from d3bot.frameworks.code import unrolled
from d3bot.frameworks.layers import Shape, infer_shapes
from d3bot.frameworks.rendering import assemble, common_context
from d3bot.frameworks.tensorflow.data import data_lines, data_names
from d3bot.frameworks.tensorflow.families import FAMILIES
from d3bot.frameworks.tensorflow.fitting import compiled_loss, compiled_metrics, history, weight_argument
from d3bot.frameworks.tensorflow.layers import BATCH_NORMS
from d3bot.frameworks.tensorflow.legacy import in_tf_keras
from d3bot.frameworks.tensorflow.losses import (
    example_losses,
    model_inputs,
    penalised,
    rows_argument,
    share_loss,
    whole_loss,
)
from d3bot.frameworks.tensorflow.model import build_lines, freeze_events, tie_root
from d3bot.frameworks.tensorflow.optimizer import optimizer, optimizer_under_test, scales_loss
from d3bot.spec import Case, Setting
from d3bot.templates import environment

ENV = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
"""Read at import: quiet, one order of every sum, and no GPU for settings made of logical CPU devices."""

_JINJA = environment("script/tensorflow")
_WIDE = 60
"""A loss longer than this stands in a function of its own."""


def render(case: Case, setting: Setting, docstring: str, view: View) -> Script:
    """Return the script of a trial.  SpecError if the case does not fit the layer catalogue."""
    family = FAMILIES[setting.family]
    shapes = infer_shapes(case)
    special = {"copies": False, "uneven": False, "sees_rows": False, "lookup": False, "metric_mean": False} | dict(
        family.context(case, setting)
    )
    rows = rows_argument(case)
    share = share_loss(case, rows, special["uneven"])
    keeps = "buffer" in view.roles
    buffers = bool(set(BATCH_NORMS) & case.ops()) and keeps and not special["copies"]
    averages = case.ema > 0 and case.loop == "custom" and keeps
    running = case.running_mean and keeps
    state = (bool(set(BATCH_NORMS) & case.ops()) and keeps) or averages or running
    rows_seen = special["sees_rows"] and "rows" in view.roles
    after = state or rows_seen or bool(view.roles & {"param", "predict"})
    events = freeze_events(case)
    stepwise = "param" in view.roles and len(view.roles) > 1  # alone, those after the last step do
    context = common_context(family, case, setting, ENV, docstring, view) | {
        "named_arguments": ("step, " if case.steps > 1 else "") + ("model, " if stepwise else ""),
        "stepwise": stepwise,
        "notes": stepwise or case.accumulate > 1 or bool(view.roles & {"loss", "grad"}),
        "build_lines": _build_lines(case, bool(special["lookup"])),
        "data_lines": data_lines(case, shapes),
        "data_names": data_names(case),
        "model_inputs": model_inputs(case),
        "losses": example_losses(case, shapes),
        "whole_loss": whole_loss(case, rows.replace("*rows", "*data(step)")),
        "part_loss": whole_loss(case.model_copy(update={"l2": 0.0}), rows),
        "share_loss": share,
        "long_share": len(share) > _WIDE,
        "rows": rows,
        "weighted": case.weights != "none",
        "penalised": penalised(case),
        "compiled_loss": compiled_loss(case),
        "compiled_metrics": compiled_metrics(case, shapes),
        "weight_argument": weight_argument(case, shapes),
        "history": history(case, view),
        "evaluates": "metric" in view.roles and (not view.metric or view.metric.startswith("evaluate/")),
        "optimizer": optimizer(case),
        "optimizer_under_test": optimizer_under_test(case),
        "scaled": scales_loss(case),
        "averages": averages,
        "running": _running_shape(case, shapes) if running else "",
        "bare": case.loop == "custom" and case.steps == case.accumulate == 1 and not (after or scales_loss(case)),
        "freezes": [
            f'if step == {step}: model.get_layer("{tie_root(case, name)}").trainable = {trains}'
            for step, name, trains in events
        ],
        "freeze_steps": sorted({step for step, _, _ in events if step}),
        "thaws": any(trains for _, _, trains in events),
        "has_buffers": bool(set(BATCH_NORMS) & case.ops()),
        "last": buffers or bool(view.roles & {"param", "predict"}),
        **special,
    }
    half = _JINJA.get_template("half.py.j2").render(context).strip("\n")
    text = _JINJA.get_template(f"{setting.family}.py.j2").render(context, half=half)
    if case.steps == 1:
        text = unrolled(text)
    if family.needs == "tf-keras":
        half, text = in_tf_keras(half), in_tf_keras(text)
    return assemble(family, case, setting, ENV, half, text)


def _build_lines(case: Case, lookup: bool) -> list[str]:
    """With `lookup` embeddings are of the class that the script defines for tables in shards."""
    lines = build_lines(case)
    return [line.replace("keras.layers.Embedding(", "Lookup(") for line in lines] if lookup else lines


def _running_shape(case: Case, shapes: Mapping[str, Shape]) -> str:
    """Return the shape of a running mean over the rows of the targets, which are class labels or like the output."""
    return "()" if case.loss == "cross_entropy" else f"{shapes[case.layers[-1].name]}"
