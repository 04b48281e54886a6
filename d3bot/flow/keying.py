"""From a judgement to its symptom, and from the smallest failing trial to the names of a finding."""

from collections.abc import Iterator
from dataclasses import dataclass

from d3bot.findings.key import (
    ErrorInfo,
    Symptom,
    alternate_keys,
    failure_key,
    is_catch_all,
    symptom_key,
    tensor_class,
)
from d3bot.frameworks import canonical_setting, family_of
from d3bot.frameworks.features import features
from d3bot.frameworks.layers import filled_options
from d3bot.judge import KEYED, Judgement
from d3bot.spec import FAILING, Case, Setting

_SIZES = frozenset({"world", "replicas", "workers"})
_FORM = frozenset(
    {"linear", "relu", "tanh", "sigmoid", "gelu", "flatten", "mean", "last", "float64", "mse", "sgd"}
    | {"odd-size", "odd-linear", "uneven-batch", "uneven-micro-batch"}
)
"""Words that every smallest trial has some of, whatever is wrong."""
_MORE = frozenset(f"more than 2 {size}" for size in _SIZES)
_COMMON = frozenset({"cross-entropy", "float32", "several-steps"}) | _MORE
"""Words that set a trial apart, but that bugs of every sort need."""


@dataclass(frozen=True)
class Names:
    """How the failure of a smallest trial is called."""

    key: str
    """Of the finding: its folder, its record."""
    aliases: tuple[str, ...]
    """Keys by which the same cause is known where it shows differently."""
    needs: frozenset[str]
    """What the smallest trial still needs: every trial that fails by this cause has them all."""


def symptom_of(case: Case, judgement: Judgement) -> Symptom:
    """Return how a failing or refused trial fails."""
    error = ErrorInfo()
    if judgement.report is not None:
        report = judgement.report
        error = ErrorInfo(report.type, report.message, tuple(reversed(report.frames)))
    elif judgement.kind == "died":
        error = ErrorInfo(judgement.pattern)
    if judgement.first is None:
        return Symptom(judgement.kind, error=error)
    diagnosis = judgement.pattern if judgement.pattern in KEYED else ""
    return Symptom(judgement.kind, judgement.first.role, wrong_class(case, judgement), diagnosis, error)


def symptom_key_of(case: Case, setting: Setting, judgement: Judgement) -> str:
    """Return the key of how a failing or refused trial fails; empty for the others.

    A refusal has a key because one that comes where the previous build passed is a failure too.
    """
    if judgement.kind not in FAILING and judgement.kind != "refused":
        return ""
    return symptom_key(case.framework, setting, symptom_of(case, judgement))


def names_of(case: Case, setting: Setting, judgement: Judgement) -> Names:
    """Return the names of the failure that a smallest trial shows.

    A failure of which nothing is known keeps the catch-all key of its symptom, and has no other.
    """
    needed = words(case, setting) - _FORM
    if "uneven-size" in needed:  # which needs no more ranks than any other number that does not divide
        needed -= _MORE
    symptom = symptom_of(case, judgement)
    own = symptom_key(case.framework, setting, symptom)
    if is_catch_all(own):
        return Names(own, (), needed)
    key = failure_key(case.framework, setting, symptom, sorted(needed))
    special = needed - _COMMON  # without them, whichever of its common words a smallest trial kept
    others = (
        key
        for needs in (needed, special)
        for key in alternate_keys(case.framework, setting, symptom, sorted(needs), plain=not special)
    )
    return Names(key, tuple(dict.fromkeys(others)), needed)


def words(case: Case, setting: Setting) -> frozenset[str]:
    """Return what a trial has that a library may stumble over: the features of its case and of its setting."""
    setting = canonical_setting(case.framework, setting)
    found = set(features(case))
    for name, value in setting.options:
        if isinstance(value, bool):
            found.add(name if value else f"no {name}")
        elif name in _SIZES:
            found |= {f"more than 2 {name}"} if int(value) > 2 else set()
        else:
            found.add(name if isinstance(value, int | float) else f"{name}={value}")
    if case.batch % max(1, family_of(case.framework, setting).parts(case, setting)):
        found.add("uneven-parts")
    if any(size % world_of(case, setting) for size in _sizes(case)):
        found.add("uneven-size")
    found.discard("fit" if case.framework == "tensorflow" else "custom")  # the loop that everybody writes
    return frozenset(found)


def world_of(case: Case, setting: Setting) -> int:
    """Return how many ranks, replicas or workers share the work of a trial."""
    return max(1, family_of(case.framework, setting).world(setting))


def _sizes(case: Case) -> Iterator[int]:
    for layer in case.layers:
        for name, size in filled_options(case, layer.name).items():
            if name in ("units", "channels", "dim"):
                yield int(size)


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
