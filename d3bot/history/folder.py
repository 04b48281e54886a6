"""The run folder: run.json, verdicts.jsonl and changes.json."""

import fcntl
import io
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from d3bot.history.changes import ORDER
from d3bot.history.files import dump_json, parse_object, read_capped, read_object, write_atomic
from d3bot.spec import SCHEMA, Change, Run, SpecError, Verdict, one_line

RUN = "run.json"
VERDICTS = "verdicts.jsonl"
CHANGES = "changes.json"

RUN_CAP = 4 * 1024**2
VERDICTS_CAP = 512 * 1024**2
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
        _load_header(folder)
        writer = cls(folder, _hold(folder))
        # Read under the lock only: another process may have gone on writing until a moment ago.
        loaded = load_run(folder)
        content = read_capped(folder / VERDICTS, VERDICTS_CAP)
        if loaded.truncated:
            writer._file.truncate(content.rfind(b"\n") + 1)
        elif content and not content.endswith(b"\n"):
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
    run = _load_header(folder)
    content = read_capped(folder / VERDICTS, VERDICTS_CAP)
    verdicts: dict[str, Verdict] = {}
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            verdict = _parse_verdict(line, f"{folder / VERDICTS}, line {number}")
        except SpecError:
            # Only a last line without its line end can come from a kill; any other was damaged by something else.
            if number < len(lines):
                raise
            return LoadedRun(run, list(verdicts.values()), truncated=True)
        verdicts[verdict.trial] = verdict
    return LoadedRun(run, list(verdicts.values()), truncated=False)


def latest_run(root: Path) -> Path | None:
    """Return the newest complete run (by `started`) among the sub-folders of `root`; None if there is none.

    What cannot be read is passed over: a search among old folders must not stop at a broken one.
    """
    found: list[tuple[datetime, str, Path]] = []
    for path in root.glob(f"*/{RUN}"):
        try:
            run = _load_header(path.parent)
            started = datetime.fromisoformat(run.started)
        except ValueError:
            continue
        if run.complete:
            found.append((started if started.tzinfo else started.replace(tzinfo=UTC), path.parent.name, path.parent))
    return max(found)[2] if found else None


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


def _load_header(folder: Path) -> Run:
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
        return Verdict.model_validate(parse_object(line.decode(), where))
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: is not UTF-8 text; run again") from error
    except ValidationError as error:
        raise SpecError(f"{where}: {one_line(error)}; run again") from error


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
