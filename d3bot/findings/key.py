"""The key of a failure: equal for one bug however often it is seen, and readable in a file name.

A key is made of where the failure shows (framework, setting family, kind, role and class of the tensor), what it looks
like (diagnosis; type, text and innermost library frames of an error) and the features that the smallest failing setting
still needs.  It holds nothing that changes between two sightings of one bug: no numbers, paths, versions or case ids.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from d3bot.findings.markdown import strip_control
from d3bot.spec import First, Framework, Kind, Setting, canonical_json, short_hash

KEY_VERSION = 1
"""Part of every hash: raised when the rules below change, so that old keys stay what they were."""

FRAMES = 3
"""Innermost frames that count.  Deeper ones say who called, which depends on the case."""

MAX_KEY = 120

_UNCLASSIFIED = "unclassified"
_KEY = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*-[0-9a-f]{8}")
_WORDS = 12
"""Words of an error's first line that count: what follows them names shapes, values and advice."""
_MAX_TEXT = 4000
"""Characters of a message that are looked at: it may be the output of a trial that floods."""


@dataclass(frozen=True)
class ErrorInfo:
    """How a trial ended, where it ended with an error.

    `type` is the exception's class, or the signal's name where a rank died.  `frames` are `module:function` inside the
    library, the innermost first: of the traceback, or of the stacks where the trial hung.
    """

    type: str = ""
    message: str = ""
    frames: tuple[str, ...] = ()


def failure_key(
    framework: Framework,
    setting: Setting,
    kind: Kind,
    first: First | None = None,
    tensor: str = "",
    diagnosis: str = "",
    error: ErrorInfo | None = None,
    features: Sequence[str] = (),
) -> str:
    """Return the key, for example `torch-fsdp2-diverged-grad-weight-permuted-1a2b3c4d`.

    `tensor` is the class of the first divergent tensor (see `tensor_class`), `diagnosis` the class of the diagnosis,
    `features` what the smallest failing setting and case still need, in any order.  Of the setting only the family
    counts: its other options belong to the key through `features` alone.
    """
    role = first.role if first else ""
    seen = error or ErrorInfo()
    frames = [normalise(frame[:_MAX_TEXT]) for frame in seen.frames[:FRAMES]]
    # A hang has no message of its own, and that of a dead rank is its peers' surprise.
    message = _family(seen.message) if kind not in ("hung", "died") else ""
    specific = role or diagnosis or frames or message or (kind == "died" and seen.type)
    shown = [_slug(text) for text in (role, tensor, diagnosis, seen.type, _function(seen.frames))]
    parts = [KEY_VERSION, framework, setting.family, kind, role, tensor, diagnosis, seen.type, message]
    digest = short_hash(canonical_json([*parts, frames, sorted(set(features))]))[:8]
    words = [framework, setting.family, kind, *(shown if specific else [_UNCLASSIFIED])]
    text = "-".join(word for word in words if word)
    return f"{text[: MAX_KEY - 9].rstrip('-_')}-{digest}"


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key, and so is safe as a file name and in a marker."""
    return len(text) <= MAX_KEY and bool(_KEY.fullmatch(text))


def is_catch_all(key: str) -> bool:
    """Return whether a key says nothing about the cause; such failures are not one bug and never count as detection."""
    return not key or f"-{_UNCLASSIFIED}-" in key


_ERRORS = frozenset({"crashed", "died", "hung"})
_COMMON = frozenset(
    {"forward", "backward", "call", "__call__", "_call_impl", "call_impl", "wrapper", "inner", "run", "main", "step"}
    | {"apply", "error_handler"}
)
"""Functions that any failure passes through: they say nothing about the bug."""


def api_of(key: str) -> str:
    """Return `framework-family-function` of a key whose failure is an error inside a library function; else empty.

    One race shows as different errors, and now and then as a hang: what they share is where they end.
    """
    words = key.rsplit("-", 1)[0].split("-")
    if len(words) < 4 or words[2] not in _ERRORS or (words[2] != "hung" and len(words) < 5):
        return ""
    function = words[-1]
    return "" if function in _COMMON or function == _UNCLASSIFIED else f"{words[0]}-{words[1]}-{function}"


def tensor_class(name: str) -> str:
    """Return what kind of tensor a name means: `0.weight` is a `weight`, `dense_1/kernel` a `kernel`."""
    last = re.split(r"[./]", name.split(" ")[0].split(":")[0])[-1]
    return re.sub(r"_+", "_", re.sub(r"\d+", "", last)).strip("_")


_QUOTED_PATH = re.compile(r"(?P<quote>['\"])[^'\"\n]*/[^'\"\n]*(?P=quote)")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?:[\w.+~@%=-]*/)+[\w.+~@%=-]*(?::\d+)*|\b[A-Za-z]:\\\S+")
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{6,}\b", re.IGNORECASE)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=\d*[a-f])[0-9a-f]{7,}\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:\[[0-9a-f:]*:[0-9a-f:.]*\]|\[?\b(?:\d{1,3}(?:\.\d{1,3}){3}|localhost)\b\]?)(?::\d+)?", re.I)
_VERSION = re.compile(r"\bv?\d+(?:\.\d+){2,}(?:[._-]?(?:dev|post|rc|a|b)\d+)*(?:\+[a-z0-9.]+)?", re.IGNORECASE)
_UNIT = r"(?:\s?(?:ns|us|µs|ms|s|sec|seconds?|minutes?)\b)?"
_DECIMAL = re.compile(rf"[+-]?\b\d+\.\d+(?:e[+-]?\d+)?{_UNIT}", re.IGNORECASE)
_NUMBER = re.compile(rf"[+-]?\d[\d_]*(?:e[+-]?\d+)?{_UNIT}", re.IGNORECASE)
_NUMBERS = re.compile(r"<n>(?:[\s,x*]*<n>)+")


def normalise(text: str) -> str:
    """Return the text in lower case without what differs between two sightings of one failure.

    Paths, links, temporary names, addresses of memory and network, ids, versions, timings and numbers are replaced.
    """
    text = strip_control(text)
    for pattern, mark in (
        (_URL, "<path>"),
        (_QUOTED_PATH, "<path>"),
        (_PATH, "<path>"),
        (_TEMPORARY, "<path>"),
        (_UUID, "<n>"),
        (_ADDRESS, "<n>"),
        (_VERSION, "<n>"),
        (_DECIMAL, "<n>"),
        (_HEX, "<n>"),
        (_NUMBER, "<n>"),
        (_NUMBERS, "<n>"),
    ):
        text = pattern.sub(mark, text)
    return " ".join(text.lower().split())


def _family(message: str) -> str:
    """Return what one kind of message has in common: the first words of its first line that holds any."""
    lines = [
        line
        for line in map(normalise, message[:_MAX_TEXT].splitlines())
        if re.search(r"[a-z]", re.sub(r"<\w+>", "", line))
    ]
    return " ".join(lines[0].split()[:_WORDS]) if lines else ""


def _function(frames: Sequence[str]) -> str:
    return frames[0].rpartition(":")[2].rpartition(".")[2] if frames else ""


def _slug(text: str) -> str:
    """Return a text as one word of a key: letters, digits and underscores, at most 24 of them."""
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:24].strip("_")
    return f"{word}_error" if word == _UNCLASSIFIED else word
