"""The documentation against the code: reference pages are current, commands exist, links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from d3bot.cli import app
from d3bot.config import Config, TrackerConfig
from d3bot.flow.reference import pages, write_pages

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
named = pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))


def test_the_reference_pages_are_current():
    stale = [
        name
        for name, text in pages().items()
        if not (ROOT / "docs" / name).exists() or (ROOT / "docs" / name).read_text() != text
    ]
    there = {f"settings/{path.name}" for path in (ROOT / "docs/settings").glob("*.md")}
    assert (stale, there - pages().keys()) == ([], set()), "run `make docs`"


def test_a_page_of_a_family_that_is_gone_is_removed(tmp_path):
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/torch-gone.md").write_text("")
    assert {str(path.relative_to(tmp_path)) for path in write_pages(tmp_path)} == set(pages())
    assert not (tmp_path / "settings/torch-gone.md").exists()


@pytest.mark.parametrize("model", [Config, TrackerConfig], ids=lambda model: model.__name__)
def test_every_key_is_described(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


@named
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def commands(path):
    """Return every call of d3bot in a page's blocks and code, as words after `d3bot`, comments cut."""
    text = path.read_text()
    blocks = "\n".join(re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL))
    lines = [line.removeprefix("$ ").strip() for line in blocks.splitlines()]
    lines += [line.strip() for line in re.findall(r"^    (d3bot .*)$", text, re.MULTILINE)]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("d3bot ")]


@named
def test_commands_in_the_docs_exist_with_their_options(path):
    for words in commands(path):
        group, name = get_command(app), words[0]
        if name == "--install-completion":
            continue
        if name == "bench":
            group, words = group.commands["bench"], words[1:]
            name = words[0]
        assert name in group.commands, words
        known = {option for each in group.commands[name].params for option in (*each.opts, *each.secondary_opts)}
        given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, words
