"""How a case's optimizer is written in Keras."""

from d3bot.spec import Case


def optimizer(case: Case) -> str:
    """Return the expression that makes the optimizer of the plain definition: one update of the whole batch a step.

    Where gradients are accumulated its schedule goes by micro-batches, as that of `optimizer_under_test` does:
    "Learning rate schedules will look at "real" iterations value (optimizer steps)" (keras.optimizers,
    gradient_accumulation_steps, 3.15).
    """
    rate, decay = case.optimizer.lr, case.optimizer.decay_rate
    if case.accumulate > 1 and decay != 1:
        schedule = f"{rate} * {decay} ** {case.accumulate - 1}, 1, {decay} ** {case.accumulate}"
        return _written(case, f"keras.optimizers.schedules.ExponentialDecay({schedule})", "")
    return _written(case, _rate(case), "")


def scales_loss(case: Case) -> bool:
    """Whether a loop of one's own scales its loss; `compile` does it for Keras' own."""
    return case.mixed == "float16" and case.loop == "custom"


def optimizer_under_test(case: Case) -> str:
    """Return the expression that makes the optimizer under test.

    It updates after `accumulate` micro-batches, and in float16 scales the loss of a loop of one's own: by less than its
    own 2 ** 15, of which some gradients overflow, so that their step is left out.
    """
    more = f", gradient_accumulation_steps={case.accumulate}" if case.accumulate > 1 else ""
    written = _written(case, _rate(case), more)
    return f"keras.optimizers.LossScaleOptimizer({written}, initial_scale=256.0)" if scales_loss(case) else written


def _rate(case: Case) -> str:
    rate, decay = case.optimizer.lr, case.optimizer.decay_rate
    return f"{rate}" if decay == 1 else f"keras.optimizers.schedules.ExponentialDecay({rate}, 1, {decay})"


def _written(case: Case, rate: str, more: str) -> str:
    given = case.optimizer
    options = ""
    if given.momentum:
        options += f", momentum={given.momentum}"
    if given.nesterov:
        options += ", nesterov=True"
    if given.weight_decay or given.name == "adamw":
        options += f", weight_decay={given.weight_decay}"
    if case.clip:
        options += f", {'global_clipnorm' if case.clip.kind == 'norm' else 'clipvalue'}={case.clip.limit}"
    if case.ema and case.loop != "custom":
        options += f", use_ema=True, ema_momentum={case.ema}"
    name = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[given.name]
    return f"keras.optimizers.{name}({rate}{options}{more})"
