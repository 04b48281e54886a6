"""From a judgement to the key of its failure."""

from d3bot.findings.key import ErrorInfo, failure_key, tensor_class
from d3bot.judge import KEYED, Judgement
from d3bot.spec import FAILING, Case, Setting


def failure_key_of(case: Case, setting: Setting, judgement: Judgement) -> str:
    """Return the key of a failing or refused judgement; empty for the others.

    A refusal has a key because one that comes where the previous build passed is a failure too.
    """
    if judgement.kind not in FAILING and judgement.kind != "refused":
        return ""
    error = None
    if judgement.report is not None:
        report = judgement.report
        error = ErrorInfo(report.type, report.message, tuple(reversed(report.frames)))
    elif judgement.kind == "died":
        error = ErrorInfo(judgement.pattern)
    return failure_key(
        case.framework,
        setting,
        judgement.kind,
        first=judgement.first,
        tensor=wrong_class(case, judgement) if judgement.first else "",
        diagnosis=judgement.pattern if judgement.first and judgement.pattern in KEYED else "",
        error=error,
    )


def wrong_class(case: Case, judgement: Judgement) -> str:
    """Return what sets the wrong tensors of the earliest divergent step and role apart from the right ones.

    Frozen, tied, or one class such as bias; empty if all of them are wrong, or if nothing names the wrong ones: then
    which are wrong, and which is the worst, is chance, and would split one cause into many keys.  Of buffers only the
    role counts: they are few, and statistics of nearly equal numbers come out right by accident.
    """
    wrong = [item for item in judgement.differences if item.wrong]
    if not wrong or wrong[0].parsed.role == "buffer":
        return ""
    place = (wrong[0].parsed.step, wrong[0].parsed.role)
    group = [item for item in judgement.differences if (item.parsed.step, item.parsed.role) == place]
    bad = [item.parsed.tensor for item in group if item.wrong]
    if len(group) > 1 and len(bad) == len(group):
        return ""
    for word, layers in groups_of(case).items():
        if layers and all(any(part in layers for part in name.split(".")) for name in bad):
            return word
    classes = {tensor_class(name) for name in bad}
    return classes.pop() if len(classes) == 1 else ""


def groups_of(case: Case) -> dict[str, frozenset[str]]:
    """Return the layers that a library treats otherwise than the rest, by the word for them."""
    return {
        "frozen": frozenset(item.layer for item in case.freeze),
        "tied": frozenset(item.layer for item in case.tie) | frozenset(item.to for item in case.tie),
    }
