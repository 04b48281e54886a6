"""The run folder: run.json, verdicts.jsonl and changes.json."""

import fcntl
import io
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from d3bot.history.changes import ORDER
from d3bot.history.files import dump_json, open_capped, parse_object, read_object, write_atomic
from d3bot.spec import SCHEMA, Change, Run, SpecError, Verdict, one_line

RUN = "run.json"
VERDICTS = "verdicts.jsonl"
CHANGES = "changes.json"

RUN_CAP = 4 * 1024**2
VERDICTS_CAP = 4 * 1024**3
_LINE_CAP = 1024**2
"""Bytes of one verdict, whose detail holds a few thousand characters."""
CHANGES_CAP = 256 * 1024**2


@dataclass(frozen=True)
class LoadedRun:
    """A run read back, one verdict a trial: a later line takes the place of an earlier one, as after confirmation.

    `truncated`: the last verdict was cut off by a kill and is not among the verdicts.
    """

    run: Run
    verdicts: list[Verdict]
    truncated: bool


class RunWriter:
    """Writes one run folder.  `append` may be called from several threads; one process at a time holds the folder."""

    def __init__(self, folder: Path, file: io.BufferedWriter) -> None:
        self.folder = folder
        self._file = file
        self._lock = threading.Lock()

    @classmethod
    def create(cls, folder: Path, run: Run) -> Self:
        """Start a run: make the folder and write run.json with complete = false.  SpecError if it holds one already."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"{folder}: cannot be made ({error.strerror}); choose another --out") from error
        verdicts = folder / VERDICTS
        if (folder / RUN).exists() or (verdicts.exists() and verdicts.stat().st_size):
            raise SpecError(f"{folder}: already holds a run; continue it with --resume or choose another --out")
        writer = cls(folder, _hold(folder))
        write_run(folder, run.model_copy(update={"complete": False}))
        return writer

    @classmethod
    def resume(cls, folder: Path) -> tuple[Self, LoadedRun]:
        """Reopen a run and return what it holds; a verdict cut off by a kill is dropped from the file as well."""
        load_header(folder)
        writer = cls(folder, _hold(folder))
        # Read under the lock only: another process may have gone on writing until a moment ago.
        loaded = load_run(folder)
        end = _end(folder / VERDICTS)
        if loaded.truncated:
            writer._file.truncate(end)
        elif end < (folder / VERDICTS).stat().st_size:
            writer._write(b"\n")
        write_run(folder, loaded.run.model_copy(update={"complete": False}))
        return writer, loaded

    def append(self, verdict: Verdict) -> None:
        """Write one verdict and flush it, so that a killed run loses at most the trial in flight."""
        line = dump_json(verdict.model_dump(mode="json", by_alias=True)) + "\n"
        with self._lock:
            self._write(line.encode())

    def finish(self, run: Run) -> None:
        """Write the final run.json (`complete` is the caller's word) and let go of the folder."""
        write_run(self.folder, run)
        self.close()

    def close(self) -> None:
        """Let go of the folder; the run stays as it is and can be resumed."""
        with self._lock:
            self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise SpecError(
                f"{self.folder / VERDICTS}: cannot be written ({error.strerror}); free some space, then --resume"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_run(folder: Path, run: Run) -> None:
    """Write run.json, whole or not at all."""
    write_atomic(folder / RUN, dump_json(run.model_dump(mode="json", by_alias=True), indent=1) + "\n")


def load_run(folder: Path) -> LoadedRun:
    """Read a run folder; SpecError if it is missing, garbled, too large or of a newer schema."""
    run = load_header(folder)
    verdicts: dict[str, Verdict] = {}
    reader = _Reader(folder)
    for verdict in reader:
        verdicts[verdict.trial] = verdict
    return LoadedRun(run, list(verdicts.values()), reader.truncated)


def read_verdicts(folder: Path) -> Iterator[Verdict]:
    """Yield the verdicts of a run line by line, each validated; a last one that a kill cut off is left out.

    SpecError if the file is missing, garbled, too large or of a newer schema.
    """
    yield from _Reader(folder)


class _Reader:
    """The lines of verdicts.jsonl; after them `truncated` says whether the last was cut off."""

    def __init__(self, folder: Path):
        self.truncated = False
        self._path = folder / VERDICTS

    def __iter__(self) -> Iterator[Verdict]:
        with open_capped(self._path, VERDICTS_CAP) as file:
            number = 0
            while line := file.readline(_LINE_CAP):
                number += 1
                if line == b"\n":
                    continue
                try:
                    verdict = _parse_verdict(line, f"{self._path}, line {number}")
                except SpecError:
                    # Only a last line without its line end can come from a kill; any other was damaged by something.
                    if line.endswith(b"\n") or file.read(1):
                        raise
                    self.truncated = True
                    return
                yield verdict


def write_changes(folder: Path, previous: str, changes: Sequence[Change]) -> None:
    """Write changes.json: every change against the run `previous`, by class, worst class first."""
    classes = {
        name: [change.model_dump(mode="json") for change in changes if change.change == name]
        for name in ORDER
        if any(change.change == name for change in changes)
    }
    counts = {name: len(items) for name, items in classes.items()}
    data = {"schema": SCHEMA, "previous": previous, "counts": counts, "changes": classes}
    write_atomic(folder / CHANGES, dump_json(data, indent=1) + "\n")


def load_changes(folder: Path) -> list[Change]:
    """Return the changes in changes.json, worst first; an empty list where no previous run was compared."""
    path = folder / CHANGES
    if not os.path.lexists(path):
        return []
    data = read_object(path, CHANGES_CAP)
    try:
        return [Change.model_validate(item) for items in data["changes"].values() for item in items]
    except (KeyError, AttributeError, TypeError) as error:
        raise SpecError(f"{path}: has no changes by class; run `d3bot compare` again") from error
    except ValidationError as error:
        raise SpecError(f"{path}: {one_line(error)}; run `d3bot compare` again") from error


def load_header(folder: Path) -> Run:
    """Read run.json; SpecError if there is none, or one that is garbled or of a newer schema."""
    if not folder.is_dir():
        raise SpecError(f"{folder}: is not a folder; give the folder that `d3bot run --out` wrote")
    if not os.path.lexists(folder / RUN):
        raise SpecError(f"{folder}: holds no {RUN}; give the folder that `d3bot run --out` wrote")
    data = read_object(folder / RUN, RUN_CAP)
    try:
        return Run.model_validate(data)
    except ValidationError as error:
        raise SpecError(f"{folder / RUN}: {one_line(error)}; run again") from error


def _parse_verdict(line: bytes, where: str) -> Verdict:
    try:
        verdict = Verdict.model_validate_json(line)
        if verdict.schema_ <= SCHEMA and b'"schema"' in line:
            return verdict
    except ValidationError:
        pass  # what is wrong with it, and whether it is a newer schema, is said below
    try:
        return Verdict.model_validate(parse_object(line.decode(), where))
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: is not UTF-8 text; run again") from error
    except ValidationError as error:
        raise SpecError(f"{where}: {one_line(error)}; run again") from error


def _end(path: Path) -> int:
    """Return where the last whole line of a file ends, in bytes."""
    with open_capped(path, VERDICTS_CAP) as file:
        place = size = file.seek(0, os.SEEK_END)
        while place > 0:
            start = max(0, place - _LINE_CAP)
            file.seek(start)
            found = file.read(place - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            place = start
    return 0 if size else size


def _hold(folder: Path) -> io.BufferedWriter:
    try:
        file = (folder / VERDICTS).open("ab")
    except OSError as error:
        raise SpecError(f"{folder / VERDICTS}: cannot be written ({error.strerror}); choose another --out") from error
    try:
        # The lock goes with the open file: it needs no file of its own and ends with the process, killed or not.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise SpecError(f"{folder}: another d3bot is writing this run; wait for it or choose another --out") from error
    return file
