"""The title of a finding: setting, what is wrong with what, on how many ranks.  Pure."""

import re
from collections.abc import Sequence

from d3bot.findings.key import tensor_class
from d3bot.findings.markdown import title_text
from d3bot.spec import Setting, Verdict, parse_name

MAX_TITLE = 200
"""GitHub refuses more than 256 characters; the rest is room for what a tracker puts in front."""

_SIZES = ("world", "replicas", "workers")
_ROLES = {
    "rows": "the rows of a step",
    "loss": "losses",
    "grad": "{} gradients",
    "norm": "gradient norms",
    "metric": "metrics",
    "param": "{} parameters after training",
    "buffer": "{} buffers after training",
    "predict": "predictions after training",
}

_LATER = {
    "rows": "rows",
    "loss": "losses",
    "grad": "gradients",
    "norm": "gradient norms",
    "metric": "metrics",
    "param": "parameters",
    "buffer": "buffers",
    "predict": "predictions",
}
_UNEXPLAINED = "no known pattern"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where an object lay in memory this time."""


def title_of(verdict: Verdict, setting: Setting, wrong: Sequence[str] = ()) -> str:
    """Return one line of at most 200 characters, for example

    `fsdp2 + shard_dim=1: weight gradients differ from one process: permuted (2 ranks)`.

    `wrong` are the names of the arrays that differ, the earliest first: where no pattern explains the numbers, which of
    them are wrong is the best that can be said.
    """
    options = "".join(
        f" + {name}" if value is True else f" + {name}={str(value).lower() if value is False else value}"
        for name, value in setting.options
        if name not in _SIZES
    )
    ranks = f" ({verdict.world} rank{'s' if verdict.world != 1 else ''})"
    start = f"{setting.family}{options}: "
    middle = title_text(_ADDRESS.sub("", _what(verdict, wrong)), max(40, MAX_TITLE - len(start) - len(ranks)))
    return title_text(f"{start}{middle}{ranks}", MAX_TITLE)


def _what(verdict: Verdict, wrong: Sequence[str]) -> str:
    match verdict.kind:
        case "diverged":
            diagnosis = _short(verdict.diagnosis)
            if diagnosis and diagnosis != _UNEXPLAINED:
                return f"{_named(verdict, wrong)} differ from one process: {diagnosis}"
            return f"{_named(verdict, wrong)} differ from one process{_then(wrong)}"
        case "nonfinite":
            return f"{_named(verdict, wrong)} are NaN or infinite on one side only"
        case "hung":
            return "training never ends"
        case "died":
            return f"a rank dies: {verdict.reason}"
        case _:
            return verdict.reason


def _named(verdict: Verdict, wrong: Sequence[str]) -> str:
    """Return what differs first, with the classes of its tensors if they are two at most."""
    first = verdict.first
    if first is None:
        return "results"
    names = [parse_name(name) for name in wrong]
    place = names[0] if names else None
    together = [each.tensor for each in names if place and (each.step, each.role) == (place.step, place.role)]
    classes = list(dict.fromkeys(tensor_class(tensor) for tensor in together or [first.tensor]))
    shown = " and ".join(classes) if len(classes) < 3 else ""
    return " ".join(_ROLES.get(first.role, "results").format(shown).split())


def _then(wrong: Sequence[str]) -> str:
    """Return what differs afterwards as well, by role."""
    roles = list(dict.fromkeys(parse_name(name).role for name in wrong))[1:]
    return f", then {' and '.join(_LATER[role] for role in roles)}" if 0 < len(roles) < 4 else ""


def _short(diagnosis: str) -> str:
    """Return a diagnosis without its evidence, which stands in the text."""
    return re.split(r"[:;]| \(", diagnosis)[0].strip() or diagnosis
