"""What a person may write for a build, read into typed requests.  Text only: nothing here looks at the disk."""

import re
from dataclasses import dataclass
from pathlib import PurePath

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from d3bot.spec import Framework, SpecError

DISTRIBUTIONS: dict[str, Framework] = {"torch": "torch", "tensorflow": "tensorflow", "tensorflow-cpu": "tensorflow"}
"""Distributions that can be asked for by an exact version, and the framework that each holds."""

PINNED: dict[Framework, str] = {"torch": "torch==2.13.0", "tensorflow": "tensorflow-cpu==2.21.0"}
"""The builds that are tested when nobody names one, and by the project's own tests."""

_EXACT = re.compile(r"^([A-Za-z0-9._-]+)\s*==\s*(\S+)$")
_NIGHTLY = re.compile(r"^(torch@nightly|tf-nightly(-cpu)?(\s*==.*)?)$", re.IGNORECASE)
_MEND = "give an exact version such as torch==2.13.0, or python:/path/to/bin/python of an environment that holds it"


@dataclass(frozen=True)
class Exact:
    """A released version, to be installed: `torch==2.13.0`."""

    text: str
    name: str
    version: str

    @property
    def framework(self) -> Framework:
        """The framework that the distribution holds."""
        return DISTRIBUTIONS[self.name]


@dataclass(frozen=True)
class Interpreter:
    """An environment already made, `python:/path/to/bin/python`, with or without an overlay put before it."""

    text: str
    python: str
    overlay: str = ""
    """Folder put first on the import path, or empty."""


Request = Exact | Interpreter


def parse(text: str) -> Request:
    """Return the typed request of a build spec.  SpecError says on one line what is wrong and what to write instead."""
    spec = text.strip()
    if not spec or not spec.isprintable() or len(spec) > 400:
        raise SpecError(f"build {spec[:80]!r}: not a build; {_MEND}")
    if spec.startswith("overlay:"):
        folder, mark, python = spec.removeprefix("overlay:").rpartition("+python:")
        if not mark or not folder:
            raise SpecError(f"build {spec!r}: an overlay is written overlay:DIR+python:/path/to/bin/python")
        return Interpreter(spec, _interpreter(spec, python), folder)
    if spec.startswith("python:"):
        return Interpreter(spec, _interpreter(spec, spec.removeprefix("python:")))
    if _NIGHTLY.match(spec):
        raise SpecError(f"build {spec!r}: nightlies are not supported yet in this version: {_MEND}")
    if "://" in spec or spec.endswith(".whl"):
        raise SpecError(f"build {spec!r}: wheels are not supported yet in this version: {_MEND}")
    return _exact(spec)


def same_version(asked: str, found: str) -> bool:
    """Return whether `found` is the version asked for; a local suffix such as +cpu may come on top of it."""
    try:
        want, have = Version(asked), Version(found)
    except InvalidVersion:
        return False
    return have == want or (want.local is None and Version(have.public) == want)


def _interpreter(spec: str, python: str) -> str:
    if not PurePath(python).name.startswith(("python", "pypy")):
        raise SpecError(f"build {spec!r}: python: names an interpreter, such as python:/path/to/bin/python")
    return python


def _exact(spec: str) -> Exact:
    match = _EXACT.match(spec)
    name = canonicalize_name(match[1]) if match else ""
    if not match or name not in DISTRIBUTIONS:
        known = ", ".join(sorted(DISTRIBUTIONS))
        raise SpecError(f"build {spec!r}: not NAME==VERSION with a NAME of {known}; {_MEND}")
    try:
        version = Version(match[2])
    except InvalidVersion as error:
        raise SpecError(f"build {spec!r}: {match[2]!r} is not one exact version; {_MEND}") from error
    if version.is_devrelease:
        raise SpecError(f"build {spec!r}: nightlies are not supported yet in this version: {_MEND}")
    return Exact(spec, name, str(version))
