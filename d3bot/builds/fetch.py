"""Download wheels, each kept once under its own hash and never used before its content was checked."""

import hashlib
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import requests
from filelock import FileLock

from d3bot.builds.errors import NoDataError, UnavailableError
from d3bot.builds.index import TIMEOUT, TRIES, Listed

MAX_BYTES = 8 * 2**30
"""More than the largest CUDA wheel."""
_BLOCK = 2**20


def fetch(wheel: Listed, cache: Path, log: Callable[[str], None]) -> Path:
    """Return the file of a listed wheel under `cache`/wheels, downloaded now if it is not there.

    Safe to call from many processes at once.  UnavailableError `wrong-hash` if the content is not what the index says,
    `index-down` if it cannot be downloaded.
    """
    folder = cache / "wheels" / wheel.sha256
    path = folder / wheel.filename
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if path.exists():
                os.utime(path)  # what was used lately is pruned last
                return path
            log(f"downloading {wheel.filename} from {urllib.parse.urlsplit(wheel.url).netloc}")
            digest = download(wheel.url, path, wheel.sha256)
            assert digest == wheel.sha256
            return path
    except OSError as error:
        raise NoDataError(
            f"{wheel.filename}: {error.filename or folder}: {error.strerror}; free space, or set D3BOT_CACHE"
        ) from error


def keep(path: Path, sha256: str, cache: Path) -> Path:
    """Return the copy of a local wheel under `cache`/wheels, so that a later change of it changes no build."""
    kept = cache / "wheels" / sha256 / path.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(kept.parent / ".lock"):
        if not kept.exists():
            draft = kept.with_name(".part-" + path.name)
            draft.unlink(missing_ok=True)
            shutil.copyfile(path, draft)
            os.replace(draft, kept)
    return kept


def download(url: str, path: Path, sha256: str = "") -> str:
    """Download to `path`, whole or not at all, and return its SHA-256; UnavailableError if it is not `sha256`."""
    for attempt in range(1, TRIES + 1):
        try:
            return _download(url, path, sha256)
        except requests.HTTPError as error:
            code = error.response.status_code
            if code in (404, 410):
                raise UnavailableError("missing", f"{path.name}: listed, but the index answers {code}") from error
            if code < 500 or attempt == TRIES:
                raise UnavailableError("index-down", f"{path.name}: the index answers {code}") from error
        except requests.RequestException as error:
            if attempt == TRIES:
                raise UnavailableError(
                    "index-down", f"{path.name}: the download broke off ({type(error).__name__}); try again"
                ) from error
    raise AssertionError("the last try returns or raises")


def _download(url: str, path: Path, sha256: str) -> str:
    digest, size = hashlib.sha256(), 0
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(descriptor, "wb") as file, requests.get(url, stream=True, timeout=TIMEOUT) as answer:
            answer.raise_for_status()
            for block in answer.iter_content(_BLOCK):
                size += len(block)
                if size > MAX_BYTES:
                    raise UnavailableError("wrong-hash", f"{path.name}: is larger than any wheel; not used")
                digest.update(block)
                file.write(block)
        found = digest.hexdigest()
        if sha256 and found != sha256:
            raise UnavailableError(
                "wrong-hash",
                f"{path.name}: its SHA-256 is {found[:12]}... where the index says {sha256[:12]}...; not used",
            )
        os.replace(name, path)
        return found
    finally:
        Path(name).unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
