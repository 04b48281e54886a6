"""Which files a run folder may hold: the list that the filing half checks before it reads any of them."""

import os
import re
import stat
from pathlib import Path

from d3bot.spec import SpecError

MAX_FILES = 10_000
MAX_BYTES = 1024**3
"""Of a whole folder, unpacked."""

_TOP = frozenset(
    {"run.json", "verdicts.jsonl", "changes.json", "plan.json", "report.html", "summary.md", "decisions.json"}
    | {"evidence.json", "check.json", "history.json", "history.html", "coverage.json"}
)
_FINDING = r"(?:case\.toml|setting\.toml|repro\.py|finding\.json|output-bad\.txt|output-good\.txt|issue\.md)"
_BELOW = re.compile(rf"(?:findings|fixed)/[a-z0-9][a-z0-9_-]{{0,119}}/{_FINDING}")
_SMALLEST = re.compile(r"smallest/t[0-9a-f]{8,64}\.toml")
"""What a run that was killed while it shrank goes on from."""
_SIDES = ("base/", "head/")
"""The two runs of a check, each a run folder of its own."""


def allowed(name: str) -> bool:
    """Return whether a file of this relative name belongs into a run folder, or into one of a check's two."""
    for side in _SIDES:
        if name.startswith(side):
            name = name.removeprefix(side)
            break
    return name in _TOP or bool(_BELOW.fullmatch(name) or _SMALLEST.fullmatch(name))


def check_folder(folder: Path) -> None:
    """SpecError unless a folder holds nothing but plain files that belong into a run, and not too much of it."""
    files, size, places = 0, 0, [folder]
    if folder.is_symlink() or not folder.is_dir():
        raise SpecError(f"{folder}: is not a plain folder; give the folder that `d3bot run --out` wrote")
    while places:
        with os.scandir(places.pop()) as entries:
            for entry in entries:
                name = str(Path(entry.path).relative_to(folder))
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    if name.count("/") > 2:
                        raise SpecError(f"{folder}: {name[:120]!r} does not belong into a run folder; refused")
                    places.append(Path(entry.path))
                elif not stat.S_ISREG(found.st_mode):
                    raise SpecError(f"{folder}: {name[:120]!r} is not a regular file; refused")
                elif not allowed(name):
                    raise SpecError(f"{folder}: {name[:120]!r} does not belong into a run folder; refused")
                files, size = files + 1, size + found.st_size
                if files > MAX_FILES or size > MAX_BYTES:
                    raise SpecError(f"{folder}: more than {MAX_FILES:,} entries or {MAX_BYTES:,} bytes; refused")
