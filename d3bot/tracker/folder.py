"""A tracker without a server: one Markdown file per key, with TOML front matter that a person may edit."""

import os
import tomllib
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout
from pydantic import ValidationError

from d3bot.findings.key import is_key
from d3bot.findings.lifecycle import Record
from d3bot.history.files import read_text, write_atomic
from d3bot.spec import SCHEMA, SpecError, one_line

_FENCE = "+++\n"
_CAP = 1024**2
_WAIT_S = 60.0
_ALWAYS = frozenset({"schema", "state", "ignore", "seen_runs", "history"})
"""Written though they say nothing, as a person may want to edit them."""
_FIELDS = frozenset(field.alias or name for name, field in Record.model_fields.items())


class FolderTracker:
    """Records in `<path>/<key>.md`.

    A person closes a record with `state = "closed"`, and silences a closed one for good with `ignore = true`.  Keys
    and words that a person added survive every update.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def locked(self) -> AbstractContextManager[object]:
        """Hold the folder against other d3bots; SpecError if one keeps it for a minute or it cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return FileLock(self.path / ".lock", timeout=_WAIT_S).acquire()
        except Timeout as error:
            raise SpecError(f"{self.path}: another d3bot has been filing for {_WAIT_S:.0f} s; try later") from error
        except OSError as error:
            raise SpecError(f"{self.path}: cannot be used ({error.strerror}); choose another folder") from error

    def records(self) -> dict[str, Record]:
        """Return every record by key and by its other keys.

        SpecError for a file that cannot be read, as it may be the one looked for.
        """
        found = {}
        for path in sorted(self.path.glob("*.md")):
            if is_key(path.stem):
                found[path.stem] = self._read(path)
        aliases = {alias: record for record in found.values() for alias in record.aliases}
        return aliases | found

    def create(self, record: Record, body: str) -> None:
        """Write the file of a new record; SpecError if there is one."""
        path = self._file(record.key)
        if os.path.lexists(path):
            raise SpecError(f"{path}: is there already; file again")
        write_atomic(path, f"{_FENCE}{tomli_w.dumps(_front(record))}{_FENCE}\n{body.strip()}\n")

    def update(self, record: Record, note: str = "", body: str = "") -> None:
        """Write the front matter of a record anew and keep the text below it, unless there is a new one.

        A folder has no comments: that the state changed, and why, stands in the record's history.
        """
        path = self._file(record.key)
        front, text = _split(path)
        own = {name: value for name, value in front.items() if name not in _FIELDS}
        text = f"\n{body.strip()}\n" if body else text
        write_atomic(path, f"{_FENCE}{tomli_w.dumps(_front(record) | own)}{_FENCE}{text}")

    def touched(self, record: Record) -> datetime | None:
        """Return None: who saved a file last is not known, so whoever wants a record open sets it so again."""
        return None

    def _file(self, key: str) -> Path:
        if not is_key(key):
            raise SpecError(f"record {key[:120]!r}: is not a key that d3bot makes; run again")
        return self.path / f"{key}.md"

    def _read(self, path: Path) -> Record:
        front, _ = _split(path)
        schema = front.get("schema", SCHEMA)
        if isinstance(schema, int) and schema > SCHEMA:
            raise SpecError(f"{path}: schema {schema} is newer than the {SCHEMA} this d3bot reads; update d3bot")
        try:
            record = Record.model_validate({name: value for name, value in front.items() if name in _FIELDS})
        except ValidationError as error:
            raise SpecError(f"{path}: {one_line(error)}; mend the lines between the +++") from error
        if record.key != path.stem:
            raise SpecError(f"{path}: the file's name is not its key {record.key[:120]!r}; rename it")
        if record.state == "closed" and record.closed_at is None:
            # A person who closes by hand writes no date: the file was saved then.
            record = record.model_copy(update={"closed_at": datetime.fromtimestamp(path.stat().st_mtime, UTC)})
        return record


def _front(record: Record) -> dict[str, Any]:
    data = record.model_dump(by_alias=True, exclude_none=True)
    return {name: value for name, value in data.items() if name in _ALWAYS or value}


def _split(path: Path) -> tuple[dict[str, Any], str]:
    """Return the front matter and everything after it; SpecError if the file does not begin with one."""
    text = read_text(path, _CAP).replace("\r\n", "\n")
    front, end, body = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    if not text.startswith(_FENCE) or not end:
        raise SpecError(f"{path}: does not begin with TOML between two lines of +++; restore them")
    try:
        return tomllib.loads(front), body
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML ({error}); mend the lines between the +++") from error
