"""Reading files that somebody else may have written, and writing files that nobody sees half done."""

import json
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from d3bot.spec import SCHEMA, SpecError


def open_capped(path: Path, cap: int) -> BinaryIO:
    """Open a regular file of at most `cap` bytes for reading; SpecError for anything else, a link included."""
    try:
        # O_NONBLOCK: opening a pipe that somebody left in the folder must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    file = os.fdopen(descriptor, "rb")
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_size <= cap:
        return file
    file.close()
    if not stat.S_ISREG(found.st_mode):
        raise SpecError(f"{path}: is not a regular file; remove it")
    raise _too_large(path, cap)


def read_capped(path: Path, cap: int) -> bytes:
    """Return the content of a regular file of at most `cap` bytes; SpecError for anything else, a link included."""
    with open_capped(path, cap) as file:
        content = file.read(cap + 1)
    if len(content) > cap:  # it grew
        raise _too_large(path, cap)
    return content


def _too_large(path: Path, cap: int) -> SpecError:
    return SpecError(f"{path}: larger than the {cap:,} bytes that d3bot reads; it was not written by d3bot")


def read_text(path: Path, cap: int) -> str:
    """Return the text of a regular UTF-8 file of at most `cap` bytes; SpecError for anything else."""
    try:
        return read_capped(path, cap).decode()
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text ({error.reason}); write it anew") from error


def read_object(path: Path, cap: int) -> dict[str, Any]:
    """Return the JSON object in a file of a schema known here; SpecError says what is wrong with it."""
    return parse_object(read_text(path, cap), str(path))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object in a text of a schema known here; SpecError starts with `where`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: is not valid JSON ({' '.join(str(error).split())}); run again") from error
    if not isinstance(data, dict):
        raise SpecError(f"{where}: holds no JSON object; run again")
    schema = data.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise SpecError(f"{where}: has no schema number; it was not written by d3bot")
    if schema > SCHEMA:
        raise SpecError(f"{where}: schema {schema} is newer than the {SCHEMA} this d3bot reads; update d3bot")
    return data


def dump_json(data: Any, indent: int | None = None) -> str:
    """Return standard JSON: a NaN or an infinity becomes the text that reads back as it."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that a reader, or a kill, finds the old content or the new; SpecError if it cannot be done."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise SpecError(f"{path}: cannot be written ({error.strerror}); free some space or mend the rights") from error


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else ("Infinity" if data > 0 else "-Infinity")
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
