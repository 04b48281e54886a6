"""The names of a failure: equal for one bug however often it is seen, and readable in a file name.

The *symptom* of one trial is where the failure shows (framework, setting family, kind, role and class of the tensor)
and what it looks like (diagnosis; type, text and innermost library frames of an error).  One cause shows under several
symptoms, and several causes under one, so the *key* of a finding is made of its smallest trial: the symptom there and
the features that the trial still needs.  *Alternates* are the keys under which the same cause may show as well: a
finding that has one of them is the same.  None holds what changes between two sightings of one bug: no numbers, paths,
versions or case ids.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from d3bot.findings.markdown import strip_control
from d3bot.spec import Framework, Kind, Setting, canonical_json, short_hash

SYMPTOM_VERSION = 1
KEY_VERSION = 2
"""Part of every hash: raised when the rules below change, so that old keys stay what they were.

Until version 1 the symptom was the finding's key: it stays among a finding's aliases, so that a record of it is found.
"""

FRAMES = 3
"""Innermost frames that count.  Deeper ones say who called, which depends on the case."""

MAX_KEY = 120

_TELLING = 3
"""Words of a message that say enough to know a failure by them alone."""

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


@dataclass(frozen=True)
class Symptom:
    """How a failure shows in one trial.

    `tensor` is the class of the first divergent tensor (see `tensor_class`), `diagnosis` the class of the diagnosis.
    """

    kind: Kind
    role: str = ""
    tensor: str = ""
    diagnosis: str = ""
    error: ErrorInfo = ErrorInfo()

    @property
    def message(self) -> str:
        """The words that messages of this kind share; empty where the text is not the failure's own."""
        # A hang has no message of its own, and that of a dead rank is its peers' surprise.
        return _family(self.error.message) if self.kind not in ("hung", "died") else ""

    @property
    def frames(self) -> list[str]:
        """The innermost frames that count, normalised."""
        return [normalise(frame[:_MAX_TEXT]) for frame in self.error.frames[:FRAMES]]

    @property
    def specific(self) -> bool:
        """Whether it tells one failure from another at all."""
        died = self.kind == "died" and self.error.type
        return bool(self.role or self.diagnosis or self.frames or self.message or died)

    @property
    def numeric(self) -> bool:
        """Whether both sides ended and their numbers differ."""
        return self.kind in _NUMERIC


_NUMERIC: frozenset[Kind] = frozenset({"diverged", "nonfinite"})
_TRAINING = frozenset({"loss", "grad", "norm", "param", "predict"})
"""Roles that follow from one another: which of them shows first depends on what is observed, not on the cause."""


def akin(one: Symptom, other: Symptom) -> bool:
    """Return whether two failures of one setting family may have one cause, as far as their looks tell.

    Memory that nobody wrote is a number here and NaN there, and ranks that race reach one error by different calls.
    """
    if one.numeric and other.numeric:
        named = {each.diagnosis for each in (one, other)} - {"", "nonfinite"}
        return one.role == other.role and len(named) < 2
    if one.kind != other.kind or one.error.type != other.error.type or one.message != other.message:
        return False
    return bool(one.message) or one.frames[:1] == other.frames[:1]


def refines(smaller: Symptom, larger: Symptom) -> bool:
    """Return whether a smaller trial fails in the same way as the larger one it was made of, and says as much.

    It may show a pattern where the larger one showed none, but must not lose one.
    """
    if not akin(smaller, larger):
        return False
    if not larger.numeric:
        return True
    return smaller.diagnosis == larger.diagnosis or larger.diagnosis in ("", "nonfinite")


def symptom_key(framework: Framework, setting: Setting, symptom: Symptom) -> str:
    """Return the key of how a trial fails, for example `torch-fsdp2-diverged-grad-weight-permuted-1a2b3c4d`."""
    return _key(SYMPTOM_VERSION, framework, setting.family, symptom, (), False)


def failure_key(framework: Framework, setting: Setting, symptom: Symptom, needs: Sequence[str] = ()) -> str:
    """Return the key of a finding, for example `torch-fsdp2-diverged-grad-weight-permuted-shard_dim_1-1a2b3c4d`.

    `symptom` is that of its smallest trial, `needs` what this trial still needs, in any order.  Of the setting only the
    family counts: its options belong to the key through `needs` alone.
    """
    return _key(KEY_VERSION, framework, setting.family, symptom, needs, symptom.numeric)


def alternate_keys(
    framework: Framework, setting: Setting, symptom: Symptom, needs: Sequence[str], plain: bool
) -> tuple[str, ...]:
    """Return the keys by which the same cause is known where it shows differently; none if nothing in it is special.

    Numbers: whichever of loss, gradient and parameter shows it first, if something special is needed (`plain` says that
    nothing is).  Errors: whichever call of one module raised them, if the words of the message say something.
    """
    if symptom.numeric and symptom.role and not plain:
        role = "training" if symptom.role in _TRAINING else symptom.role
        diagnosis = "" if symptom.diagnosis == "nonfinite" else symptom.diagnosis
        general = Symptom("diverged", role, diagnosis=diagnosis)
        return (_key(KEY_VERSION, framework, setting.family, general, needs, True),)
    if symptom.kind == "crashed" and len(symptom.message.split()) >= _TELLING:
        module = symptom.frames[0].partition(":")[0] if symptom.frames else ""
        general = Symptom("crashed", error=ErrorInfo(symptom.error.type, symptom.error.message, (module,)))
        return (_key(KEY_VERSION, framework, setting.family, general, (), False),)
    return ()


def _key(
    version: int, framework: Framework, family: str, symptom: Symptom, needs: Sequence[str], readable: bool
) -> str:
    parts = [version, framework, family, symptom.kind, symptom.role, symptom.tensor, symptom.diagnosis]
    parts += [symptom.error.type, symptom.message]
    digest = short_hash(canonical_json([*parts, symptom.frames, sorted(set(needs))]))[:8]
    shown = [symptom.role, symptom.tensor, symptom.diagnosis, symptom.error.type, _function(symptom.error.frames)]
    shown += sorted(set(needs)) if readable else []
    words = [framework, family, symptom.kind, *(map(_slug, shown) if symptom.specific else [_UNCLASSIFIED])]
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
