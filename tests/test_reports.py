"""The table of public reports and the tests that answer them are one list."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"^\| ([a-k]\d{1,2}) \|", (ROOT / "docs/reports.md").read_text(), re.MULTILINE)


@cache
def named() -> dict[str, list[str]]:
    """Return row -> the tests that name it: `test_b3_b5_...`, or a docstring that begins with `B3, B5:`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            name = re.match(r"test((?:_[a-k]\d{1,2})+)_", node.name)
            said = re.match(r"((?:[A-K]\d{1,2}, )*[A-K]\d{1,2}):", ast.get_docstring(node) or "")
            rows = [*(name[1].strip("_").split("_") if name else ()), *(said[1].lower().split(", ") if said else ())]
            for row in rows:
                found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def test_a_row_stands_once() -> None:
    assert len(ROWS) == len(set(ROWS)) > 60


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_its_tests(row: str) -> None:
    assert named().get(row), f"no test names {row}"


def test_a_row_that_a_test_names_stands_in_the_table() -> None:
    assert named().keys() <= set(ROWS), {row: tests for row, tests in named().items() if row not in ROWS}
