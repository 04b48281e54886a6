"""How a case's optimizer is written in PyTorch."""

from d3bot.frameworks.layers import KINDS, filled_options
from d3bot.frameworks.torch.model import ModelText
from d3bot.spec import Case, Group, Optimizer

_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "rmsprop": "RMSprop"}


def optimizer_class(optimizer: Optimizer) -> str:
    """Return the class, such as `torch.optim.SGD`."""
    return f"torch.optim.{_CLASSES[optimizer.name]}"


def optimizer_options(optimizer: Optimizer) -> str:
    """Return what follows the parameters in the call, with a comma before each option."""
    options = f", lr={optimizer.lr}"
    if optimizer.momentum:
        options += f", momentum={optimizer.momentum}"
    if optimizer.nesterov:
        options += ", nesterov=True"
    if optimizer.weight_decay or optimizer.name == "adamw":
        options += f", weight_decay={optimizer.weight_decay}"
    return options


def if_trained(case: Case) -> str:
    """Return the condition on a parameter `p` of a comprehension; empty where all of them train at first."""
    return " if p.requires_grad" if any(item.at == 0 for item in case.freeze) else ""


def parameter_groups(case: Case, model: ModelText) -> list[str]:
    """Return the groups that the optimizer is made with, one expression each; none if it takes all parameters alike."""
    if not case.groups:
        return []
    listed = {name for group in case.groups for name in group.layers}
    rest = tuple(layer.name for layer in case.layers if KINDS[layer.op].trainable and layer.name not in listed)
    return [_group(case, model, group) for group in (Group(layers=rest), *case.groups) if not group.at]


def added_groups(case: Case, model: ModelText) -> list[str]:
    """Return the lines that add groups at the start of a step."""
    return [
        f"if step == {group.at}: optimizer.add_param_group({_group(case, model, group)})"
        for group in case.groups
        if group.at
    ]


def _group(case: Case, model: ModelText, group: Group) -> str:
    parts = [text for name in group.layers if (text := _parameters(case, model, name))]
    options = "".join(
        f', "{name}": {value}'
        for name, value in (("lr", group.lr), ("weight_decay", group.weight_decay))
        if value is not None
    )
    return f'{{"params": [{", ".join(parts)}]{options}}}'


def _parameters(case: Case, model: ModelText, name: str) -> str:
    """Return a layer's own parameters as items of a list; a tied weight is that of the layer it was taken from."""
    module = model.access(name)
    if all(tie.layer != name for tie in case.tie):
        return f"*{module}.parameters()"
    return f"{module}.bias" if filled_options(case, name).get("bias") else ""
