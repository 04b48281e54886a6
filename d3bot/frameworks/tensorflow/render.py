"""A tensorflow trial as one plain Python file."""

from collections.abc import Mapping

from d3bot.frameworks.base import Script, View
from d3bot.frameworks.layers import Shape, infer_shapes
from d3bot.frameworks.rendering import assemble, common_context
from d3bot.frameworks.tensorflow.families import FAMILIES
from d3bot.frameworks.tensorflow.model import build_lines, tie_root
from d3bot.spec import Case, Setting
from d3bot.templates import environment

ENV = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
"""Read at import: quiet, one order of every sum, and no GPU for settings made of logical CPU devices."""

_JINJA = environment("script/tensorflow")
_METRICS = {"accuracy": "keras.metrics.SparseCategoricalAccuracy", "mae": "keras.metrics.MeanAbsoluteError"}


def render(case: Case, setting: Setting, docstring: str, view: View) -> Script:
    """Return the script of a trial.  SpecError if the case does not fit the layer catalogue."""
    family = FAMILIES[setting.family]
    shapes = infer_shapes(case)
    names = [item.name for item in case.inputs]
    late = [freeze for freeze in case.freeze if freeze.at > 0]
    special = family.context(case, setting)
    buffers = "batch_norm" in case.ops() and "buffer" in view.roles and not special.get("copies")
    context = common_context(family, case, setting, ENV, docstring, view) | {
        "build_lines": _build_lines(case, bool(special.get("lookup"))),
        "data_lines": _data_lines(case, shapes),
        "model_inputs": names[0] if len(names) == 1 else f"[{', '.join(names)}]",
        "losses": _losses(case, shapes),
        "fit_loss": _fit_loss(case),
        "fit_metrics": _fit_metrics(case),
        "history": _history(case, view),
        "optimizer": _optimizer(case),
        "freezes": [
            f'if step == {freeze.at}: model.get_layer("{tie_root(case, freeze.layer)}").trainable = False'
            for freeze in late
        ],
        "freeze_steps": sorted({freeze.at for freeze in late}),
        "has_buffers": "batch_norm" in case.ops(),
        "copies": False,
        "uneven": False,
        "sees_rows": False,
        "lookup": False,
        "last": buffers or bool(view.roles & {"param", "predict"}),
        **special,
    }
    half = _JINJA.get_template("half.py.j2").render(context).strip("\n")
    text = _JINJA.get_template(f"{setting.family}.py.j2").render(context, half=half)
    return assemble(family, case, setting, ENV, half, text)


def _build_lines(case: Case, lookup: bool) -> list[str]:
    """With `lookup` embeddings are of the class that the script defines for tables in shards."""
    lines = build_lines(case)
    return [line.replace("keras.layers.Embedding(", "Lookup(") for line in lines] if lookup else lines


def _data_lines(case: Case, shapes: Mapping[str, Shape]) -> list[str]:
    cast = '.astype("float32")' if case.dtype == "float32" else ""
    lines = []
    for item in case.inputs:
        size = (case.batch, *item.shape)
        drawn = f"rng.integers({item.vocab}, size={size})" if item.vocab else f"rng.standard_normal({size}){cast}"
        lines.append(f"{item.name} = {drawn}")
    output = shapes[case.layers[-1].name]
    if case.loss == "cross_entropy":
        lines.append(f"target = rng.integers({output[0]}, size={case.batch})")
    else:
        lines.append(f"target = rng.standard_normal({(case.batch, *output)}){cast}")
    return lines


def _losses(case: Case, shapes: Mapping[str, Shape]) -> str:
    """One loss an example: Keras takes the mean over the last axis only, so the axes before it are averaged here."""
    names = [item.name for item in case.inputs]
    output = f"model({names[0] if len(names) == 1 else '[' + ', '.join(names) + ']'}, training=True)"
    if case.loss == "cross_entropy":
        return f"keras.losses.sparse_categorical_crossentropy(target, {output}, from_logits=True)"
    losses = f"keras.losses.mean_squared_error(target, {output})"
    rank = len(shapes[case.layers[-1].name])
    return losses if rank == 1 else f"tf.reduce_mean({losses}, axis={1 if rank == 2 else (1, 2)})"


def _fit_loss(case: Case) -> str:
    if case.loss == "cross_entropy":
        return "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
    return "keras.losses.MeanSquaredError()"


def _fit_metrics(case: Case) -> str:
    if not case.metrics:
        return ""
    return f", metrics=[{', '.join(f'{_METRICS[name]}(name={name!r})' for name in case.metrics)}]"


def _history(case: Case, view: View) -> dict[str, str]:
    """Return name in the history of `fit` -> name of the array, for what the view observes."""
    names = {"loss": "loss 0"} if "loss" in view.roles else {}
    return names | ({name: f"metric {name}" for name in case.metrics} if "metric" in view.roles else {})


def _optimizer(case: Case) -> str:
    optimizer = case.optimizer
    rate = f"{optimizer.lr}"
    if optimizer.decay_rate != 1:
        rate = f"keras.optimizers.schedules.ExponentialDecay({rate}, 1, {optimizer.decay_rate})"
    options = ""
    if optimizer.momentum:
        options += f", momentum={optimizer.momentum}"
    if optimizer.nesterov:
        options += ", nesterov=True"
    if optimizer.weight_decay or optimizer.name == "adamw":
        options += f", weight_decay={optimizer.weight_decay}"
    if case.clip:
        options += f", {'global_clipnorm' if case.clip.kind == 'norm' else 'clipvalue'}={case.clip.limit}"
    name = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[optimizer.name]
    return f"keras.optimizers.{name}({rate}{options})"
