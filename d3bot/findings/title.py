"""The title of a finding: setting, what is wrong with what, on how many ranks.  Pure."""

import re

from d3bot.findings.key import tensor_class
from d3bot.findings.markdown import title_text
from d3bot.spec import Setting, Verdict

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


def title_of(verdict: Verdict, setting: Setting) -> str:
    """Return one line of at most 200 characters, for example

    `fsdp2 + shard_dim=1: weight gradients differ from one process: permuted (2 ranks)`.
    """
    options = "".join(
        f" + {name}" if value is True else f" + {name}={str(value).lower() if value is False else value}"
        for name, value in setting.options
        if name not in _SIZES
    )
    ranks = f" ({verdict.world} rank{'s' if verdict.world != 1 else ''})"
    start = f"{setting.family}{options}: "
    middle = title_text(_what(verdict), max(40, MAX_TITLE - len(start) - len(ranks)))
    return title_text(f"{start}{middle}{ranks}", MAX_TITLE)


def _what(verdict: Verdict) -> str:
    first = verdict.first
    what = _ROLES.get(first.role, "results").format(tensor_class(first.tensor)).strip() if first else "results"
    match verdict.kind:
        case "diverged":
            return f"{what} differ from one process" + (f": {_short(verdict.diagnosis)}" if verdict.diagnosis else "")
        case "nonfinite":
            return f"{what} are NaN or infinite on one side only"
        case "hung":
            return "training never ends"
        case "died":
            return f"a rank dies: {verdict.reason}"
        case _:
            return verdict.reason


def _short(diagnosis: str) -> str:
    """Return a diagnosis without its evidence, which stands in the text."""
    return re.split(r"[:;]| \(", diagnosis)[0].strip() or diagnosis
