"""docs/first-day.md, walked: every command of the page in its order, as it stands, in a folder with one seed.

What is not as on a person's machine: `d3bot` and the library's environment are those of the tests, and what asks for
the network or changes the shell is left out, by name.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from d3bot.spec import Build

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/first-day.md").read_text()
COMMANDS = [
    line.removeprefix("$ ").split("  #")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
LEFT_OUT = ("make venv", "source .venv", "d3bot bisect", "d3bot --install-completion", "d3bot doctor")
"""Made for the tests already; asks the package index; writes to the shell's start file; depends on the machine."""

SEED = "uneven-micro-batches"

ENDS: dict[str, tuple[int, str]] = {
    "d3bot run --build": (1, "report: runs/first/report.html"),
    "python repro.py": (1, "<-- WRONG"),
    "python argued.py": (0, "max|difference|"),
    "d3bot replay runs/first/findings/torch-ddp-diverged-*": (1, "diverged"),
    "-s 'ddp(world=2)'": (0, "ddp(world=2): pass"),
    "--trace": (1, "grad"),
    "d3bot shrink": (0, "smallest/case.toml smallest/repro.py"),
    "d3bot list seeds": (0, "my-first-seed"),
    "d3bot replay misspelt.toml": (2, "misspelt.toml"),
    "d3bot file": (0, "file torch-ddp-diverged-"),
    "--previous runs/first": (0, "report: runs/second/report.html"),
    "d3bot compare": (0, "still-failing"),
    "d3bot report": (0, "site/index.html"),
    "d3bot check": (1, "new failure"),
}
"""Part of a command -> how it ends and what it says; the last that fits counts.  All others end with 0."""


@pytest.fixture
def shell(torch_build: Build, tmp_path: Path):
    """Return a function that runs a command where the last one left off; it returns the exit code and what was said."""
    home, work, bin_ = tmp_path / "home", tmp_path / "work", tmp_path / "bin"
    environment = Path(torch_build.python).parent.parent
    (home / ".cache/d3bot/envs").mkdir(parents=True)
    (home / ".cache/d3bot/envs/torch-2.13.0-tests").symlink_to(environment)
    (work / "seeds/torch").mkdir(parents=True)
    shutil.copy(ROOT / f"seeds/torch/{SEED}.toml", work / "seeds/torch")
    bin_.mkdir()
    (bin_ / "d3bot").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m d3bot "$@"\n')
    (bin_ / "d3bot").chmod(0o755)
    state = tmp_path / "state"
    state.write_text(f"cd {work}\n")

    def run(command: str) -> tuple[int, str]:
        # Folder and variables are handed on as a person's shell would keep them.
        text = f". {state}\n{command}\ncode=$?\n(echo cd $PWD; declare -p E T OLDPWD) 2>/dev/null > {state}\nexit $code"
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=300,
            env={
                "HOME": str(home),
                "PATH": f"{bin_}:/usr/bin:/bin",
                "XDG_CACHE_HOME": str(home / ".cache"),
                "D3BOT_SEED": "1",
                "D3BOT_FINDING_SECONDS": "10",
                "D3BOT_SHRINK_SECONDS": "5",
            },
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_every_command_of_the_first_day_does_what_the_page_says(shell, torch_build: Build, tmp_path: Path) -> None:
    assert all(any(command.startswith(each) for command in COMMANDS) for each in LEFT_OUT)
    met = set()
    for command in COMMANDS:
        if command.startswith(LEFT_OUT):
            continue
        fitting = [part for part in ENDS if part in command]
        met |= set(fitting)
        code, words = ENDS[fitting[-1]] if fitting else (0, "")
        got, said = shell(command.replace("torch==2.13.0", f"python:{torch_build.python}"))
        assert got == code, f"{command}\n{said}"
        assert words in said, f"{command}\n{said}"
    assert met == ENDS.keys()
    work = tmp_path / "work"
    assert (work / "runs/second/history.html").exists()
    assert "2 x the expected value, that is the world size" in (work / "check/summary.md").read_text()
    assert len(list((work / "issues").glob("torch-*.md"))) == len(list((work / "runs/first/findings").iterdir()))
