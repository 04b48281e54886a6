"""A strict reader and applier of unified diffs against the Python files of a library.

Stricter than `patch`: a hunk applies at the line it names or not at all, because a fault or a fork that lands somewhere
near the right place would measure something else than it says.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from d3bot.spec import SpecError

PACKAGES = ("torch", "keras", "tensorflow")
"""Import packages that a patch may touch."""
MAX_BYTES = 4 * 1024 * 1024

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True)
class Hunk:
    """Lines from `start` (1 is the file's first; the old file's count) that become other lines; ends kept."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class FileChange:
    """All hunks of one file, in order.  `path` starts with the package's name and never leaves it."""

    path: PurePosixPath
    hunks: tuple[Hunk, ...]

    @property
    def package(self) -> str:
        """The import package that the file belongs to."""
        return self.path.parts[0]

    def apply(self, text: str, where: str) -> str:
        """Return the file's new text.  SpecError, beginning with `where`, if the old lines are not there."""
        lines = _lines(text)
        result: list[str] = []
        done = 0
        for hunk in self.hunks:
            first = hunk.start - 1 if hunk.old else hunk.start
            if first < done or tuple(lines[first : first + len(hunk.old)]) != hunk.old:
                raise SpecError(
                    f"{where}: the hunk at line {hunk.start} of {self.path} does not apply: "
                    "the lines there are others; make the diff against exactly this version of the library"
                )
            result += [*lines[done:first], *hunk.new]
            done = first + len(hunk.old)
        return "".join(result + lines[done:])


def read_patch(patch: Path) -> tuple[FileChange, ...]:
    """Read a unified diff with paths such as a/torch/...; SpecError if it is not one or leaves the packages."""
    try:
        if patch.stat().st_size > MAX_BYTES:
            raise SpecError(f"{patch}: larger than {MAX_BYTES // 1024} KiB; give a fork that large as its own build")
        # Bytes first: read_text would turn \r\n into \n, and the context must match exactly.
        text = patch.read_bytes().decode()
    except OSError as error:
        raise SpecError(f"{patch}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{patch}: not text ({error.reason}); give a unified diff of Python files") from error
    changes = _parse(_lines(text), str(patch))
    if not changes:
        raise SpecError(f"{patch}: holds no change; give a unified diff with paths such as a/torch/...")
    paths = [change.path for change in changes]
    if len(set(paths)) != len(paths):
        raise SpecError(f"{patch}: changes one file in two places of the diff; make it one diff")
    return tuple(changes)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only \\n ends one, str.splitlines also breaks at the form feeds of sources."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _parse(lines: list[str], where: str) -> list[FileChange]:
    changes: list[FileChange] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith(("GIT binary patch", "Binary files ", "rename from ", "copy from ")):
            raise SpecError(f"{where}: line {at + 1}: only changed lines of existing text files can be applied")
        if not lines[at].startswith("--- "):
            at += 1  # `diff --git`, `index` and the words of a commit between two files
            continue
        if at + 1 == len(lines) or not lines[at + 1].startswith("+++ "):
            raise SpecError(f"{where}: line {at + 1}: a --- line without its +++ line; give a unified diff")
        path = _path(lines[at], lines[at + 1], f"{where}: line {at + 1}")
        at += 2
        hunks: list[Hunk] = []
        while at < len(lines) and lines[at].startswith("@@"):
            hunk, at = _hunk(lines, at, where)
            hunks.append(hunk)
        if at < len(lines) and lines[at][0] in " +-" and not lines[at].startswith(("--- ", "-- ")):
            raise SpecError(f"{where}: line {at + 1}: the hunk before it has more lines than its header says")
        if not hunks:
            raise SpecError(f"{where}: {path}: no hunk follows its header")
        changes.append(FileChange(path, tuple(hunks)))
    return changes


def _path(old: str, new: str, where: str) -> PurePosixPath:
    before, after = (line[4:].rstrip("\r\n").split("\t")[0] for line in (old, new))
    if "/dev/null" in (before, after):
        raise SpecError(f"{where}: adds or removes a file; only existing files can be changed")
    if before[:2] != "a/" or after[:2] != "b/" or before[2:] != after[2:]:
        raise SpecError(f"{where}: the two paths must be a/FILE and b/FILE, not {before!r} and {after!r}")
    parts = after[2:].split("/")
    if len(parts) < 2 or parts[0] not in PACKAGES or any(part in ("", ".", "..") for part in parts):
        raise SpecError(f"{where}: {after[2:]!r} is not a file inside {', '.join(PACKAGES)}")
    return PurePosixPath(*parts)


def _hunk(lines: list[str], at: int, where: str) -> tuple[Hunk, int]:
    """Return the hunk whose @@ line is at `at`, and the place after it."""
    head = _HUNK.match(lines[at])
    if not head:
        raise SpecError(f"{where}: line {at + 1}: not a hunk header of a unified diff")
    want_old, want_new = (1 if count is None else int(count) for count in (head[2], head[3]))
    old: list[str] = []
    new: list[str] = []
    first, at = at, at + 1
    while len(old) < want_old or len(new) < want_new:
        mark, body = (lines[at][0], lines[at][1:]) if at < len(lines) else ("", "")
        if mark in ("\n", "\r"):
            # Editors strip the one space of an empty context line.
            mark, body = " ", lines[at]
        if mark not in (" ", "-", "+"):
            break
        at += 1
        if at < len(lines) and lines[at].startswith("\\"):  # "\ No newline at end of file"
            body = body.rstrip("\r\n")
            at += 1
        if mark in " -":
            old.append(body)
        if mark in " +":
            new.append(body)
    if (len(old), len(new)) != (want_old, want_new):
        raise SpecError(f"{where}: line {first + 1}: the hunk has fewer lines than its header says")
    return Hunk(int(head[1]), tuple(old), tuple(new)), at
