"""How a case's optimizer is written in PyTorch."""

from d3bot.spec import Optimizer

_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


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
