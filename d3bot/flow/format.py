"""Rendered text brought into ruff's form, so that what is filed looks as a person's editor would leave it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_BATCH = 500


def format_files(paths: Sequence[Path]) -> None:
    """Format Python files in place, several hundred in one call.

    Looks are no reason to lose a run: a file that ruff cannot format stays as it was rendered, and whatever is wrong
    with it shows when it is run.
    """
    for start in range(0, len(paths), _BATCH):
        chosen = paths[start : start + _BATCH]
        if not _format(chosen) and len(chosen) > 1:
            for path in chosen:
                _format([path])


def _format(paths: Sequence[Path]) -> bool:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--quiet", "--line-length", "120"]
    return subprocess.run([*command, *map(str, paths)], capture_output=True).returncode == 0
