"""Layers: wheels of pure Python unpacked once into a folder that is put first on a library's import path.

A Keras release is a megabyte of Python and runs over any recent TensorFlow, so trying ten of them needs one TensorFlow
and ten megabytes instead of ten environments.
"""

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from filelock import FileLock

from d3bot.builds.errors import NoDataError

MAX_BYTES = 512 * 2**20
MAX_FILES = 50_000


def layer(wheels: Sequence[Path], hashes: Sequence[str], cache: Path) -> Path:
    """Return the folder under `cache`/layers that holds these wheels unpacked, made now if it is not there.

    `hashes` are the wheels' SHA-256, which name the folder.  NoDataError if one is not a wheel that can be unpacked.
    """
    name = hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]
    target = cache / "layers" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(name + ".lock")):
        if target.is_dir():
            return target
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=".draft-"))
        try:
            for wheel in wheels:
                _unpack(wheel, draft)
            draft.chmod(0o755)
            draft.rename(target)
        except (OSError, zipfile.BadZipFile) as error:
            raise NoDataError(f"{target}: cannot be made ({error}); free space, or set D3BOT_CACHE") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        items = archive.infolist()
        if len(items) > MAX_FILES or sum(item.file_size for item in items) > MAX_BYTES:
            raise NoDataError(f"{wheel.name}: is larger than a package of Python files can be; not used")
        for item in items:
            path = PurePosixPath(item.filename)
            if path.is_absolute() or ".." in path.parts:
                raise NoDataError(f"{wheel.name}: holds the path {item.filename!r}, which leads outside; not used")
        archive.extractall(target)
