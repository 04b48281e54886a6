"""Identify a build: ask its own interpreter what it imports, and check that this is what was asked for."""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ValidationError

from d3bot.builds import probe
from d3bot.builds.errors import NoDataError, UnavailableError
from d3bot.builds.patch import PACKAGES
from d3bot.builds.spec import Exact, Request, same_version
from d3bot.spec import Build, Framework, SpecError, one_line

SECONDS = 180
"""A cold import from a slow disk takes a minute; a probe that takes longer hangs."""
MAX_BYTES = 256 * 1024

_DECISIVE = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES")
"""Variables of this machine that reach a trial and may change what it computes: part of the environment class."""
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


class _Library(BaseModel):
    framework: Framework
    name: str
    version: str
    commit: str
    cuda: str
    nccl: str = ""
    device: str
    files: dict[str, str]
    packages: dict[str, str]


class _Facts(BaseModel):
    """What the probe writes, read as data from a process that ran foreign code."""

    python: str
    found: list[str]
    host: dict[str, str]
    imported: _Library | None = None
    error: str = ""


def identify(
    python: Path,
    overlay: Path | None,
    request: Request,
    *,
    framework: Framework | None = None,
    source: str = "",
    wheel_hash: str = "",
    cache: Path | None = None,
    version: str = "",
    provenance: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Build:
    """Return the Build that `python` imports, after checking that it is the one asked for.

    `framework` says which library is meant where the request does not (`python:`).  `cache` is a file that keeps the
    answer; give it only for an environment that nobody else changes.  `version` is the exact one that must be inside,
    `provenance` and `notes` become the Build's.  SpecError if the interpreter or the overlay holds something else than
    asked for; NoDataError if the library cannot be imported; UnavailableError `wrong-version` if it is another one.
    """
    python = Path(os.path.abspath(python.expanduser()))
    if not os.access(python, os.X_OK) or python.is_dir():
        raise SpecError(f"build {request.text!r}: {python} is not a program; give the interpreter of an environment")
    if isinstance(request, Exact):
        framework, version = request.framework, request.version
    if overlay is not None:
        overlay = Path(os.path.abspath(overlay.expanduser()))
        framework = framework or _framework_of(overlay, request)
    facts = _cached(python, cache) if cache and overlay is None else None
    if facts is None:
        facts = _probe(python, overlay, framework, request)
        if cache and overlay is None and facts.imported:
            _keep(facts, python, cache)
    library = _checked(facts, framework, overlay, request, python, version)
    environment = {"python": facts.python} | {key: facts.host.get(key, "") for key in ("os", "machine", "cpu")}
    if library.device:
        # Only a library that can use the GPU is of another environment class for having one.
        environment |= {"device": library.device, "driver": facts.host.get("driver", ""), "cuda": library.cuda}
        environment["nccl"] = library.nccl
    if variables := " ".join(f"{name}={os.environ[name]}" for name in _DECISIVE if os.environ.get(name)):
        environment["variables"] = variables[:500]
    return Build(
        spec=request.text,
        framework=library.framework,
        name=library.name,
        version=_normal(library.version),
        commit=library.commit,
        source=source or ("overlay:" if overlay else "python:") + str(overlay or python),
        wheel_hash=content_hash(overlay) if overlay else wheel_hash,
        python=str(python),
        overlay=str(overlay or ""),
        packages=library.packages,
        environment={key: value for key, value in environment.items() if value},
        provenance=dict(provenance or {}),
        notes=tuple(notes),
    )


def environment_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return one line for each part of the environment class that differs: `driver: 570.1 -> 580.2`; empty if equal."""
    return tuple(
        f"{name}: {before.get(name) or 'none'} -> {after.get(name) or 'none'}"
        for name in sorted({*before, *after})
        if before.get(name, "") != after.get(name, "")
    )


def content_hash(overlay: Path) -> str:
    """Return `overlay-sha256:...` of an overlay's own files, so that a fork edited in place is another build.

    Python files count by content, native ones by size and time, links by where they point.
    """
    digest = hashlib.sha256()
    for package in sorted(PACKAGES):
        for folder, folders, names in os.walk(overlay / package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for path in sorted(Path(folder, name) for name in {*names, *folders}):
                digest.update(f"\0{path.relative_to(overlay)}\0".encode())
                if path.is_symlink():
                    digest.update(os.readlink(path).encode())
                elif path.suffix == ".py":
                    digest.update(path.read_bytes())
                elif path.is_file():
                    digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return f"overlay-sha256:{digest.hexdigest()}"


def _normal(version: str) -> str:
    """Return a version as indexes write it: TensorFlow calls its own nightlies 2.23.0-dev20261026."""
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def _framework_of(overlay: Path, request: Request) -> Framework:
    held = [name for name in PACKAGES if (overlay / name).is_dir()]
    if not held:
        raise SpecError(
            f"build {request.text!r}: {overlay} holds none of the packages {', '.join(PACKAGES)} to put first"
        )
    return "torch" if held[0] == "torch" else "tensorflow"


def _probe(python: Path, overlay: Path | None, framework: Framework | None, request: Request) -> _Facts:
    environ = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environ |= {"PYTHONNOUSERSITE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    if overlay is not None:
        environ["PYTHONPATH"] = str(overlay)
    text = Path(probe.__file__).read_text()
    # The text goes in by -c and the working folder is empty, so that no neighbour of the probe can be imported.
    with tempfile.TemporaryDirectory(prefix="d3bot-probe-") as folder:
        answer = Path(folder, "facts.json")
        work = Path(folder, "empty")
        work.mkdir()
        try:
            done = subprocess.run(
                [str(python), "-c", text, str(answer), framework or ""],
                env=environ,
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise NoDataError(
                f"build {request.text!r}: {python} did not answer within {SECONDS} s; try it by hand"
            ) from error
        except OSError as error:
            raise SpecError(f"build {request.text!r}: {python} does not start ({error.strerror})") from error
        try:
            if answer.stat().st_size > MAX_BYTES:
                raise NoDataError(f"build {request.text!r}: the answer of {python} is larger than a probe's can be")
            return _Facts.model_validate_json(answer.read_bytes())
        except ValidationError as error:
            raise NoDataError(f"build {request.text!r}: {python} gave a broken answer: {one_line(error)}") from error
        except OSError as error:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:200]
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            raise NoDataError(
                f"build {request.text!r}: {python} ended with {how} when importing the library: {last}"
            ) from error


def _checked(
    facts: _Facts, framework: Framework | None, overlay: Path | None, request: Request, python: Path, version: str
) -> _Library:
    """Return the library after every check that makes it the one asked for."""
    what = f"build {request.text!r}"
    if facts.error:
        raise NoDataError(
            f"{what}: {python} cannot import {framework or facts.found[0]}: {facts.error[:300]}; install it anew"
        )
    library = facts.imported
    if library is None:
        held = " and ".join(facts.found) or "neither torch nor tensorflow"
        if framework is not None:
            raise SpecError(f"{what}: is another library: {python} holds {held}, not {framework}")
        raise SpecError(f"{what}: {python} holds {held}; give the interpreter of an environment with one of them")
    if version and not same_version(version, library.version):
        raise UnavailableError(
            "wrong-version",
            f"{what}: {python} imports {library.version} instead of {version}; remove that environment and try again",
        )
    if overlay is not None:
        _check_overlay(library, overlay, what, bool(request.companions))
    return library


def _check_overlay(library: _Library, overlay: Path, what: str, companions: bool) -> None:
    """Raise unless every package that the overlay holds is imported from it: else the stock passes for the fork.

    Only an overlay of companions may hold none of the libraries.
    """
    held = [name for name in PACKAGES if (overlay / name).is_dir()]
    for name in held:
        file = library.files.get(name)
        if file is None:
            raise SpecError(f"{what}: {overlay} holds {name}, which {library.framework} does not import; remove it")
        if not Path(file).is_relative_to(overlay):
            raise SpecError(f"{what}: {name} is imported from {file}, not from {overlay}; make the overlay anew")
    if not held and not companions:
        raise SpecError(f"{what}: {overlay} holds none of the packages {', '.join(PACKAGES)} to put first")


def _state(python: Path) -> Mapping[str, object]:
    """Return everything that can change the probe's answer for an environment d3bot made itself."""
    home = python.parent.parent
    watched = [python, home / "pyvenv.cfg", *sorted(home.glob("lib/python*/site-packages"))]
    return {
        "files": {str(path): path.stat().st_mtime_ns for path in watched if path.exists()},
        "host": probe.host(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "probe": Path(probe.__file__).stat().st_mtime_ns,
    }


def _cached(python: Path, cache: Path) -> _Facts | None:
    try:
        kept = json.loads(cache.read_text())
        return _Facts.model_validate(kept["facts"]) if kept["state"] == _state(python) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(facts: _Facts, python: Path, cache: Path) -> None:
    text = json.dumps({"state": _state(python), "facts": facts.model_dump()})
    with tempfile.NamedTemporaryFile("w", dir=cache.parent, prefix=cache.name, delete=False) as file:
        file.write(text)
    os.replace(file.name, cache)
