"""The script of a smallest trial is as long as one that a maintainer would write: a bound for each family and view."""

import ast
import itertools
import statistics

import pytest

from d3bot.flow.format import format_files
from d3bot.frameworks import View, families, obstacle, render
from d3bot.frameworks.tight import tightened
from d3bot.spec import FRAMEWORKS, Case, Framework, Role, Setting

DOCSTRING = "A title of a line.\n\nOne process and the distributed run must agree.\nNumbers.\nBuild and command.\n"
MOST, OWN = 110, 30
"""Lines of any script, and of what belongs to the case: its model and its batch."""
MEDIAN = {"ends badly": 63, "loss": 73, "grad": 77, "param": 79}
"""Lines of the median script over the families, by what it looks at; a family of two grids weighs as much as ddp."""
COMMON = {"torch ddp", "torch fsdp1", "torch fsdp2", "torch hsdp", "tensorflow mirrored", "tensorflow one_device"}
"""Families that most cases run under; of them half of the scripts have at most so many lines:"""
HALF = 70

SETTINGS: dict[tuple[Framework, str], str] = {("tensorflow", "dtensor"): "dtensor(replicas=2)"}
"""Of families whose own example is not one that every model can be trained under."""

VIEWS: list[tuple[Role, ...]] = [(), ("loss",), ("grad",), ("param",)]


def smallest(framework: Framework, setting: Setting, roles: tuple[Role, ...]) -> Case | None:
    """Return the shortest chain of linear layers, or one attention, for as few steps, that a setting applies to.

    Its loop is one that shows what is looked at.  None for a family of another sort of model.
    """
    chains = [[("linear", {"units": 2})] * length for length in range(1, 9)]
    loops = ["fit", "custom"] if framework == "tensorflow" and "grad" not in roles else ["custom"]
    for steps, chain, loop in itertools.product((1, 2), [*chains, [("attention", {"heads": 1})]], loops):
        layers = [
            {"name": f"{op}{i}", "op": op, "inputs": [f"{op}{i - 1}" if i else "x"], "options": options}
            for i, (op, options) in enumerate(chain)
        ]
        inputs = [{"name": "x", "shape": [2] if chain[0][0] == "linear" else [4, 4]}]
        more = {"batch": 8, "steps": steps, "loop": loop}
        case = Case.model_validate({"framework": framework, "inputs": inputs, "layers": layers} | more)
        if obstacle(case, setting) is None:
            return case
    return None


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """The shortest script of every family and view."""
    folder = tmp_path_factory.mktemp("scripts")
    paths = {}
    for framework in FRAMEWORKS:
        for name, family in families(framework).items():
            setting = Setting.parse(SETTINGS.get((framework, name), str(family.example)))
            cases = {roles: case for roles in VIEWS if (case := smallest(framework, setting, roles)) is not None}
            for roles, case in cases.items():
                path = folder / f"{framework}-{name}-{'-'.join(roles)}.py"
                path.write_text(render(case, setting, DOCSTRING, View(frozenset(roles), {}, 1e-12)).text)
                paths[f"{framework} {name}", " ".join(roles) or "ends badly"] = path
    format_files(list(paths.values()))
    for path in paths.values():
        path.write_text(tightened(path.read_text()))
    format_files(list(paths.values()))
    return {what: path.read_text() for what, path in paths.items()}


def test_no_script_is_longer_than_a_page_and_half_of_them_are_short(scripts: dict[tuple[str, str], str]) -> None:
    lines = {what: len(text.splitlines()) for what, text in scripts.items()}
    assert {what: count for what, count in lines.items() if count > MOST} == {}
    for seen, most in MEDIAN.items():
        assert statistics.median(count for what, count in lines.items() if what[1] == seen) <= most
    common = [count for what, count in lines.items() if what[0] in COMMON and what[1] != "ends badly"]
    assert statistics.median(common) <= HALF


def test_model_and_batch_take_a_small_part(scripts: dict[tuple[str, str], str]) -> None:
    for what, text in scripts.items():
        own = [node for node in ast.parse(text).body if getattr(node, "name", "") in ("Model", "build", "data")]
        assert sum((node.end_lineno or 0) - node.lineno + 1 for node in own) <= OWN, what


def test_nothing_is_imported_made_or_named_that_is_not_used(scripts: dict[tuple[str, str], str]) -> None:
    for what, text in scripts.items():
        tree = ast.parse(text)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        named = {each.id for node in tree.body for each in ast.walk(node) if isinstance(each, ast.Name)} - used
        imported = {
            (alias.asname or alias.name).split(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert defined <= used, (what, defined - used)
        assert not (imported - used), (what, imported - used)
        assert not named & {name for name in named if name.isupper()}, (what, named)
