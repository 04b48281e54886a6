"""The cache of environments: equal files shared by hard links, what is in use never touched, what is old removed.

envs/<name>/        an environment, complete once ready.json is there; its time is when it was last used
envs/<name>.use     locked, shared, by every process that uses it
wheels/<sha256>/    downloaded wheels
files/<ab>/<sha256> content shared by environments
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from d3bot.builds.fetch import file_hash

KEPT_NIGHTS = 2
"""Environments of each library that are never pruned: the newest, and the night before it for `--base`."""
SHARED_FROM = 16 * 2**10
"""Bytes from which a file is worth a link; most of an environment is in few large files."""
_HELD: dict[Path, int] = {}
"""Open locks of the environments that this process uses; they end with the process, however it ends."""


@dataclass(frozen=True)
class Kept:
    """An environment in the cache."""

    home: Path
    spec: str
    name: str
    """Distribution name of its library."""
    size: int
    """Bytes that removing it would free: files that no other environment shares."""
    used: float
    """Seconds since the epoch when it was last used."""


def hold(home: Path) -> None:
    """Mark an environment as in use by this process until it ends, so that no other removes it."""
    if home in _HELD:
        return
    descriptor = os.open(home.with_name(home.name + ".use"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        raise
    _HELD[home] = descriptor
    with contextlib.suppress(OSError):
        os.utime(home / "ready.json")


def release(home: Path) -> None:
    """End this process's use of an environment."""
    descriptor = _HELD.pop(home, None)
    if descriptor is not None:
        os.close(descriptor)


def share(home: Path, cache: Path) -> int:
    """Replace large files of a new environment by hard links to equal ones of others; return the bytes saved.

    Content decides, by its own hash.  Nothing happens where the file system has no hard links.
    """
    saved = 0
    for path in home.glob("lib/python*/site-packages/**/*"):
        if path.suffix == ".pyc" or path.is_symlink() or not path.is_file():
            continue
        stat = path.stat()
        if stat.st_size < SHARED_FROM:
            continue
        # The mode is part of the name: linked files share it.
        kept = cache / "files" / f"{file_hash(path)}-{stat.st_mode & 0o777:o}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                os.link(path, kept)
            except FileExistsError:
                draft = path.with_name(f".{path.name}.link")
                draft.unlink(missing_ok=True)
                os.link(kept, draft)
                os.replace(draft, path)
                saved += stat.st_size
        except OSError:
            return saved
    return saved


def kept_environments(cache: Path) -> list[Kept]:
    """Return the complete environments of a cache, the one used longest ago first."""
    found = []
    for marker in (cache / "envs").glob("*/ready.json"):
        try:
            data = json.loads(marker.read_text())
            spec, name = str(data["spec"]), str(data.get("name") or data["requirements"][0].partition("==")[0])
            found.append(Kept(marker.parent, spec, name, _own_bytes(marker.parent), marker.stat().st_mtime))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return sorted(found, key=lambda item: item.used)


def prune(cache: Path, max_gib: float, max_days: float, protect: Iterable[Path] = ()) -> list[Path]:
    """Remove environments unused for `max_days`, then the longest unused until all are below `max_gib`; return them.

    Never removes one that a process uses, one of `protect`, or the last `KEPT_NIGHTS` used of each library.
    """
    everything = kept_environments(cache)
    safe = set(protect)
    for name in {item.name for item in everything}:
        safe |= {item.home for item in [item for item in everything if item.name == name][-KEPT_NIGHTS:]}
    oldest = time.time() - max_days * 86400
    total = sum(item.size for item in everything)
    removed = []
    for item in everything:
        too_old, too_much = item.used < oldest, total > max_gib * 2**30
        if item.home not in safe and (too_old or too_much) and remove(item.home):
            removed.append(item.home)
            total -= item.size
    _prune_files(cache, oldest)
    return removed


def remove(home: Path) -> bool:
    """Remove an environment unless a process uses or makes it; return whether it is gone."""
    release(home)
    lock = FileLock(home.with_name(home.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        descriptor = os.open(home.with_name(home.name + ".use"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            # The marker goes first: what is left of a removal that is killed is not taken for an environment.
            (home / "ready.json").unlink(missing_ok=True)
            shutil.rmtree(home, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    finally:
        lock.release()


def _own_bytes(home: Path) -> int:
    total = 0
    for folder, _, names in os.walk(home):
        for name in names:
            stat = os.lstat(os.path.join(folder, name))
            # Two links are the environment's own and the store's.
            total += stat.st_size if stat.st_nlink <= 2 else 0
    return total


def _prune_files(cache: Path, oldest: float) -> None:
    """Remove shared content that no environment links to any more, and wheels and layers not used for long."""
    for path in (cache / "files").glob("*"):
        with contextlib.suppress(OSError):
            if path.stat().st_nlink == 1:
                path.unlink()
    for path in (cache / "wheels").glob("*/*.whl"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path.parent)
