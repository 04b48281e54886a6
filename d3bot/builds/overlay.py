"""Overlays: a fork's or a fault's Python files in a folder of their own, the rest linked from the stock package."""

import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from d3bot.builds.patch import FileChange, read_patch
from d3bot.spec import SpecError

_FIND = """
import importlib.util, os, sys
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    print(os.path.dirname(os.path.abspath(spec.origin)) if spec and spec.origin else "")
"""


def make_overlay(patch: Path, python: Path, out: Path) -> Path:
    """Make `out`, a new folder that put first on the import path of `python` gives the patched library; return it.

    The interpreter's own packages are only read.  Takes a few hundredths of a second and almost no space.  SpecError if
    the patch is not a strict unified diff of files in torch, keras or tensorflow, does not apply exactly, or `out` is
    not empty.
    """
    changes = read_patch(patch)
    packages = sorted({change.package for change in changes})
    sources = dict(zip(packages, _locate(python, packages), strict=True))
    texts = {change.path: _patched(change, sources[change.package], patch) for change in changes}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out}: is not an empty folder; give a new one for the overlay")
    out.mkdir(parents=True, exist_ok=True)
    try:
        for package in packages:
            files = [PurePosixPath(*path.parts[1:]) for path in texts if path.parts[0] == package]
            _link_around(sources[package], out / package, files)
        for path, text in texts.items():
            (out / path).write_bytes(text.encode())
    except BaseException:
        for package in packages:
            shutil.rmtree(out / package, ignore_errors=True)
        raise
    return out


def _locate(python: Path, packages: Collection[str]) -> list[Path]:
    """Return the folder of each package, found without importing it."""
    try:
        done = subprocess.run([python, "-I", "-c", _FIND, *packages], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"{python}: does not start ({error}); give the interpreter of an environment") from error
    found = done.stdout.splitlines()
    if done.returncode or len(found) != len(packages):
        raise SpecError(f"{python}: is not a working Python interpreter; give the one of an environment")
    for package, folder in zip(packages, found, strict=True):
        if not folder:
            raise SpecError(
                f"{python}: has no {package}, which the patch changes; give the interpreter that imports it"
            )
    return [Path(folder) for folder in found]


def _patched(change: FileChange, package: Path, patch: Path) -> str:
    """Return the new text of one file of the stock package."""
    source = package.joinpath(*change.path.parts[1:])
    try:
        text = source.read_bytes().decode()
    except FileNotFoundError as error:
        raise SpecError(
            f"{patch}: {change.path} does not exist in this build; make the diff against its version"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{patch}: {change.path} is not a readable text file of this build") from error
    return change.apply(text, str(patch))


def _link_around(source: Path, target: Path, files: Collection[PurePosixPath]) -> None:
    """Mirror a package by links to its files and folders; real folders only on the way to `files`, which are left out.

    The import system and the dynamic linker ($ORIGIN) both take a link's own path, so what looks beside itself finds
    the mirror, in torch as in tensorflow and keras.
    """
    target.mkdir()
    inside: dict[str, list[PurePosixPath]] = {}
    for path in files:
        inside.setdefault(path.parts[0], []).append(PurePosixPath(*path.parts[1:]))
    for entry in os.scandir(source):
        if entry.name == "__pycache__":
            # A real folder, so that the patched files' byte code is not written among the stock's.
            _link_bytecode(Path(entry.path), target / entry.name, inside)
        elif entry.name not in inside:
            os.symlink(entry.path, target / entry.name)
        elif entry.is_dir():
            _link_around(Path(entry.path), target / entry.name, inside[entry.name])


def _link_bytecode(source: Path, target: Path, without: Collection[str]) -> None:
    """Link the byte code of unchanged files, which would else be compiled at every first import of an overlay."""
    target.mkdir()
    changed = {name.removesuffix(".py") for name in without}
    for entry in os.scandir(source):
        if entry.name.split(".")[0] not in changed:
            os.symlink(entry.path, target / entry.name)
