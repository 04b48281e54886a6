"""A torch trial as one plain Python file."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Script, View
from d3bot.frameworks.code import tidy, unrolled
from d3bot.frameworks.layers import Shape, drops, infer_shapes
from d3bot.frameworks.rendering import assemble, common_context
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.frameworks.torch.loss import IGNORED, loss_of
from d3bot.frameworks.torch.model import ModelText, model_text
from d3bot.frameworks.torch.optimizer import (
    added_groups,
    if_trained,
    optimizer_class,
    optimizer_options,
    parameter_groups,
)
from d3bot.spec import Case, Optimizer, Setting
from d3bot.templates import environment

ENV = {"OMP_NUM_THREADS": "1"}
"""One thread a rank, set before the import: a count set after it is ignored."""

_JINJA = environment("script/torch")


def render(case: Case, setting: Setting, docstring: str, view: View) -> Script:
    """Return the script of a trial.  SpecError if the case does not fit the layer catalogue."""
    family = FAMILIES[setting.family]
    shapes = infer_shapes(case)
    special = dict(family.context(case, setting))
    model = model_text(case, special.pop("cuts", ()))
    sharded = "part_comment" in special and "micro" not in special["part_comment"]
    averages = case.averages and "buffer" in view.roles
    context = common_context(family, case, setting, ENV, docstring, view) | {
        "model": model,
        "touches": _touches(case, model),
        "data_lines": _data_lines(case, shapes),
        "loss": _loss(case, model),
        "groups": parameter_groups(case, model),
        "optimizer": f"{optimizer_class(case.optimizer)}("
        f"{'groups' if case.groups else 'model.parameters()'}{optimizer_options(case.optimizer)})",
        "schedule": _schedule(case.optimizer),
        "events": _events(case, model),
        "added": added_groups(case, model),
        "norm_type": {"1": ", norm_type=1.0", "2": "", "inf": ', norm_type=float("inf")'}[
            case.clip.order if case.clip else "2"
        ],
        "divided": f" / {case.accumulate}" if case.reduction == "mean" else "",
        "has_buffers": "batch_norm" in case.ops(),
        "predict": setting.family != "pp",
        "parts_name": "WORLD" if sharded else "MICROBATCHES",
        "part_name": "rank" if sharded else "i",
        "part_comment": "",
        "constants": (),
        "ranks": "",
        "batches": False,
        "sampled": False,
        "shuffled": False,
        "divisor": "",
        "wire": "",
        "compute": "",
        "grad_if": "",
        "param_if": "",
        "hidden_grads": "",
        "lowered": (),
        "rows": "(tensor.tensor_split(WORLD)[rank] for tensor in data(step))",
        "averages": averages,
        "averaging": _averaging(case),
        "copied_first": False,
        "in_backward": case.in_backward,
        "fused": "",
        "if_trained": if_trained(case),
        "local": False,
        "each": "",
        "made": "",
        "everyone": "WORLD + 1" if special.get("outsider") else "WORLD",
        "outsider": False,
        "contexts": [],
        "measures": {},
        "mixed": "" if case.mixed == "none" else case.mixed,
        "scaler": 'torch.amp.GradScaler("cpu")' if case.mixed == "float16" else "",
        "drops": drops(case),
        "plain": f".to(torch.{case.dtype})" if any(cast.dtype == "bfloat16" for cast in case.casts) else "",
        "recompute": [model.access(name) for name in case.recompute],
        "compiler": "" if case.compiler == "none" else case.compiler,
        "backend": "gloo",
        "device": "cpu",
        "trains": case.steps > 1
        or case.mixed == "float16"
        or view.updates
        or averages
        or bool(view.roles & {"param", "predict", "metric"}),
        **special,
    }
    context["measures"] = {name: text for name, text in context["measures"].items() if view.metric in ("", name)}
    hidden = frozenset({"grad"}) if case.in_backward else frozenset()
    context["see"] = view.roles - special.get("unseen", frozenset()) - hidden
    context["mean_of_scaled"] = _divisor(context)
    half = tidy(_JINJA.get_template("half.py.j2").render(context)).strip("\n")
    text = tidy(_JINJA.get_template(f"{setting.family}.py.j2").render(context, half=half))
    if case.steps == 1:
        text = unrolled(text)
    return assemble(family, case, setting, ENV, half, text)


def _divisor(context: Mapping[str, Any]) -> str:
    """Return by what a lower-precision reference divides the sum of its parts' gradients."""
    factors = [context["divisor"] or context["parts_name"]] if context["parts"] > 1 else []
    return " * ".join(factors + ["scale"] * bool(context["scaler"]))


def _touches(case: Case, model: ModelText) -> list[str]:
    """Lines of `build()` after the modules are made: weights tied, layers frozen from the start."""
    lines = [f"{model.access(tie.layer)}.weight = {model.access(tie.to)}.weight" for tie in case.tie]
    lines += [f"{model.access(item.layer)}.requires_grad_(False)" for item in case.freeze if item.at == 0]
    lines += [f"{model.access(item.layer)}.to(torch.{item.dtype})" for item in case.casts]
    return lines


def _events(case: Case, model: ModelText) -> list[str]:
    """Lines at the start of a step: layers frozen from now on or trained again."""
    changes = [(item.at, item.layer, False) for item in case.freeze if item.at > 0]
    changes += [(item.until, item.layer, True) for item in case.freeze if item.until is not None]
    return [f"if step == {at}: {model.access(layer)}.requires_grad_({trains})" for at, layer, trains in changes]


def _data_lines(case: Case, shapes: Mapping[str, Shape]) -> list[str]:
    lines = []
    for item in case.inputs:
        size = (case.batch, *item.shape)
        if item.vocab:
            lines.append(f"{item.name} = torch.randint({item.vocab}, {size}, generator=generator)")
        else:
            lines.append(f"{item.name} = torch.randn({size}, generator=generator)")
    output = shapes[case.layers[-1].name]
    if case.loss == "cross_entropy":
        lines.append(f"target = torch.randint({output[0]}, ({case.batch},), generator=generator)")
        if case.ignored:
            lines.append(f"target[:{case.ignored}] = {IGNORED}  # ignored by the loss")
    else:
        lines.append(f"target = torch.randn({(case.batch, *output)}, generator=generator)")
    return lines


def _loss(case: Case, model: ModelText) -> str:
    output = f"model({', '.join(item.name for item in case.inputs)})"
    if model.staged and len(case.inputs) > 1:  # an nn.Sequential takes one input only
        rest = "model[1]" if len(model.parts) == 2 else "model[1:]"
        output = output.replace("model(", f"{rest}(model[0](") + ")"
    return loss_of(case, output)


def _averaging(case: Case) -> str:
    """Return how an `AveragedModel` averages, as further arguments; equally, and without buffers, unless it is told."""
    options = f", multi_avg_fn=get_ema_multi_avg_fn({case.ema})" if case.ema else ""
    return options + ", use_buffers=True" * case.average_buffers


def _schedule(optimizer: Optimizer) -> str:
    if optimizer.decay_rate == 1:
        return ""
    return f"torch.optim.lr_scheduler.ExponentialLR(optimizer, {optimizer.decay_rate})"
