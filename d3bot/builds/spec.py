"""What a person may write for a build, read into typed requests.  Text only: nothing here looks at the disk."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from d3bot.spec import Framework, SpecError

DISTRIBUTIONS: dict[str, Framework] = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "tf-nightly-cpu": "tensorflow",
}
"""Distributions that can be asked for, and the framework that each holds."""

NIGHTLY_SETS: dict[str, tuple[str, ...]] = {
    "torch": (),
    "tf-nightly": ("keras-nightly",),
    "tf-nightly-cpu": ("keras-nightly",),
}
"""Distributions with nightly builds, and what always comes with one, of the same night."""

PINNED: dict[Framework, str] = {"torch": "torch==2.13.0", "tensorflow": "tensorflow-cpu==2.21.0"}
"""The builds that are tested when nobody names one, and by the project's own tests."""

_EXACT = re.compile(r"^([A-Za-z0-9._-]+)\s*==\s*([^\s,;*]+)$")
_RANGE = re.compile(r"^([A-Za-z0-9._-]+?)\s*([<>=!~].*)$")
_NIGHT = re.compile(
    r"^([A-Za-z0-9._-]+)@(nightly|\d{4}-\d{2}-\d{2})(?:/([a-z0-9.]{1,20}))?$",
)
_COMPANION = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9.+!]+))?$")
_MEND = (
    "give an exact version such as torch==2.13.0, a range such as torch>=2.9,<3, a nightly such as torch@nightly or "
    "tf-nightly, a wheel, or python:/path/to/bin/python of an environment that holds it"
)


@dataclass(frozen=True)
class Companion:
    """A package that comes with the library: of one version, or (version empty) of the same night."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


@dataclass(frozen=True)
class Exact:
    """A released version, to be installed: `torch==2.13.0`."""

    text: str
    name: str
    version: str
    companions: tuple[Companion, ...] = ()

    @property
    def framework(self) -> Framework:
        """The framework that the distribution holds."""
        return DISTRIBUTIONS[self.name]


@dataclass(frozen=True)
class Range:
    """The newest release within bounds: `torch>=2.9,<3`."""

    text: str
    name: str
    specifiers: str
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True)
class Nightly:
    """A nightly build: the newest complete one, that of one day, or one exact version."""

    text: str
    name: str
    night: str = ""
    """`YYYYMMDD`, or empty for the newest."""
    version: str = ""
    """An exact version, or empty."""
    platform: str = ""
    """Compute platform of PyTorch's index (cpu, cu130, rocm7.0), or empty for the configured one."""
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True)
class Wheel:
    """A wheel file or its URL."""

    text: str
    location: str
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True)
class Interpreter:
    """An environment already made, `python:/path/to/bin/python`, with or without an overlay put before it."""

    text: str
    python: str
    overlay: str = ""
    """Folder put first on the import path, or empty."""
    companions: tuple[Companion, ...] = ()


Request = Exact | Range | Nightly | Wheel | Interpreter


def first_of(specs: Sequence[str], framework: Framework) -> str:
    """Return the first build spec that names a distribution of a framework, or none at all; SpecError if none does."""
    for spec in specs:
        name = getattr(parse(spec), "name", "")
        if DISTRIBUTIONS.get(name, framework) == framework:
            return spec
    raise SpecError(f"builds: none of {', '.join(specs) or 'none'} is of {framework}; name one")


def parse(text: str) -> Request:
    """Return the typed request of a build spec.  SpecError says on one line what is wrong and what to write instead.

    `SPEC with NAME==VERSION NAME` adds companions, in a nightly of the same night where no version is given.
    """
    spec = text.strip()
    if not spec or not spec.isprintable() or len(spec) > 400:
        raise SpecError(f"build {spec[:80]!r}: not a build; {_MEND}")
    head, mark, tail = spec.partition(" with ")
    head = head.strip()
    companions = _companions(spec, tail) if mark else ()
    if head.startswith("overlay:"):
        folder, found, python = head.removeprefix("overlay:").rpartition("+python:")
        if not found or not folder:
            raise SpecError(f"build {spec!r}: an overlay is written overlay:DIR+python:/path/to/bin/python")
        if companions:
            raise SpecError(f"build {spec!r}: an overlay takes no companions; put them into its folder")
        return Interpreter(spec, _interpreter(spec, python), folder)
    if head.startswith("python:"):
        return Interpreter(spec, _interpreter(spec, head.removeprefix("python:")), companions=companions)
    if "://" in head or head.partition("#")[0].endswith(".whl"):
        return _wheel(spec, head, companions)
    if match := _NIGHT.match(head):
        return _nightly(spec, match, companions)
    if canonicalize_name(head) in NIGHTLY_SETS and head.lower() != "torch":
        return Nightly(spec, canonicalize_name(head), companions=_night_set(canonicalize_name(head), companions))
    return _released(spec, head, companions)


def same_version(asked: str, found: str) -> bool:
    """Return whether `found` is the version asked for; a local suffix such as +cpu may come on top of it."""
    try:
        want, have = Version(asked), Version(found)
    except InvalidVersion:
        return False
    return have == want or (want.local is None and Version(have.public) == want)


def _companions(spec: str, text: str) -> tuple[Companion, ...]:
    found = []
    for part in text.split():
        match = _COMPANION.match(part)
        if not match:
            raise SpecError(f"build {spec!r}: after `with` come NAME==VERSION or NAME, not {part!r}")
        try:
            found.append(Companion(canonicalize_name(match[1]), str(Version(match[2])) if match[2] else ""))
        except InvalidVersion as error:
            raise SpecError(f"build {spec!r}: {match[2]!r} is not one exact version of {match[1]}") from error
    if not found or len({item.name for item in found}) != len(found):
        raise SpecError(f"build {spec!r}: after `with` come companions, each once, such as keras==3.8.0")
    return tuple(found)


def _interpreter(spec: str, python: str) -> str:
    if not PurePath(python).name.startswith(("python", "pypy")):
        raise SpecError(f"build {spec!r}: python: names an interpreter, such as python:/path/to/bin/python")
    return python


def _wheel(spec: str, location: str, companions: tuple[Companion, ...]) -> Wheel:
    scheme, mark, _ = location.partition("://")
    if mark and scheme not in ("http", "https"):
        raise SpecError(f"build {spec!r}: a wheel comes from a path or an https address, not from {scheme}:")
    if not location.partition("#")[0].endswith(".whl"):
        raise SpecError(f"build {spec!r}: the address does not end with .whl; give that of a wheel")
    if any(not item.version for item in companions):
        raise SpecError(f"build {spec!r}: a companion of a wheel needs a version, such as keras==3.8.0")
    return Wheel(spec, location, companions)


def _nightly(spec: str, match: re.Match[str], companions: tuple[Companion, ...]) -> Nightly:
    name: str = canonicalize_name(match[1])
    name = "tf-nightly" if name == "tensorflow" else "tf-nightly-cpu" if name == "tensorflow-cpu" else name
    if name not in NIGHTLY_SETS:
        raise SpecError(f"build {spec!r}: nightlies are known of torch and tf-nightly; {_MEND}")
    if match[3] and name != "torch":
        raise SpecError(f"build {spec!r}: only torch has one index for each compute platform; leave /{match[3]} away")
    night = ""
    if match[2] != "nightly":
        try:
            night = date.fromisoformat(match[2]).strftime("%Y%m%d")
        except ValueError as error:
            raise SpecError(f"build {spec!r}: {match[2]} is no day; write it as 2026-10-19") from error
    return Nightly(spec, name, night, platform=match[3] or "", companions=_night_set(name, companions))


def _night_set(name: str, companions: tuple[Companion, ...]) -> tuple[Companion, ...]:
    named = {item.name for item in companions}
    return (*(Companion(item) for item in NIGHTLY_SETS[name] if item not in named), *companions)


def _released(spec: str, head: str, companions: tuple[Companion, ...]) -> Request:
    match = _RANGE.match(head)
    name: str = canonicalize_name(match[1]) if match else ""
    if not match or name not in DISTRIBUTIONS:
        known = ", ".join(sorted(DISTRIBUTIONS))
        raise SpecError(f"build {spec!r}: not NAME==VERSION with a NAME of {known}; {_MEND}")
    exact = _EXACT.match(head)
    if not exact:
        return _range(spec, name, match[2], companions)
    try:
        version = Version(exact[2])
    except InvalidVersion as error:
        raise SpecError(f"build {spec!r}: {exact[2]!r} is not one exact version; {_MEND}") from error
    if version.is_devrelease:
        if name not in NIGHTLY_SETS:
            raise SpecError(f"build {spec!r}: nightlies are known of torch and tf-nightly; {_MEND}")
        return Nightly(spec, name, version=str(version), companions=_night_set(name, companions))
    if name in ("tf-nightly", "tf-nightly-cpu"):
        raise SpecError(f"build {spec!r}: a version of {name} ends with .dev and its day, such as .dev20261019")
    if any(not item.version for item in companions):
        raise SpecError(f"build {spec!r}: a companion of a release needs a version, such as keras==3.8.0")
    return Exact(spec, name, str(version), companions)


def _range(spec: str, name: str, text: str, companions: tuple[Companion, ...]) -> Range:
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise SpecError(f"build {spec!r}: {text!r} is not one exact version and not a range; {_MEND}") from error
    if name in ("tf-nightly", "tf-nightly-cpu"):
        raise SpecError(f"build {spec!r}: of {name} give the newest, {name}, or one day, {name}@2026-10-19")
    if any(not item.version for item in companions):
        raise SpecError(f"build {spec!r}: a companion of a release needs a version, such as keras==3.8.0")
    return Range(spec, name, str(specifiers), companions)
