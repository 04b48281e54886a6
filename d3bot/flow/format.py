"""Rendered text brought into ruff's form, so that what is filed looks as a person's editor would leave it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_BATCH = 500


def format_files(paths: Sequence[Path]) -> None:
    """Format Python files in place, several hundred in one call."""
    for start in range(0, len(paths), _BATCH):
        chosen = [str(path) for path in paths[start : start + _BATCH]]
        command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--quiet"]
        subprocess.run([*command, "--line-length", "120", *chosen], check=True, capture_output=True)
