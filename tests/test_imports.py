"""The rooms' one-way imports: that the contracts in pyproject.toml can break, and what they cannot see."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKER = ROOT / "d3bot" / "engine" / "worker"
LIBRARIES = {"numpy", "torch", "tensorflow", "keras"}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("judge/bounds.py", "import d3bot.engine.jobs", "Imports point one way"),
        ("judge/bounds.py", "import d3bot.shrink.loop", "Imports point one way"),
        ("spec/base.py", "import d3bot.templates", "Imports point one way"),
        ("rooms.py", "", "Imports point one way"),
        ("shrink/loop.py", "import subprocess", "What compares and decides"),
        ("tracker/folder.py", "from d3bot.frameworks import render", "What judges, records, reports and files"),
        ("builds/probe.py", "def late():\n    import torch", "Nothing but the worker"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(tmp_path: Path, file: str, line: str, contract: str) -> None:
    shutil.copytree(ROOT / "d3bot", tmp_path / "d3bot", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "d3bot" / file).open("a") as source:
        source.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stderr
    assert contract in done.stdout.partition("Broken contracts")[2]


@pytest.mark.parametrize("path", sorted(WORKER.glob("*.py")), ids=lambda path: path.name)
def test_the_worker_needs_nothing_of_ours_and_an_old_python_only(path: Path) -> None:
    """It runs in the interpreter of a build, which holds the library and no d3bot."""
    own = {file.stem for file in WORKER.glob("*.py")}
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names | LIBRARIES | own


def test_builds_are_resolved_with_the_configuration_and_in_no_other_way() -> None:
    importers = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "d3bot").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "d3bot.builds"
        and "resolve" in {n.name for n in node.names}
    ]
    assert importers == ["d3bot/flow/resolved.py"]
