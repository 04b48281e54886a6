"""The documentation against the code: reference pages are current, commands exist, links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from d3bot.builds import Index
from d3bot.cli import app
from d3bot.config import Config, TrackerConfig
from d3bot.flow.doc_pages import pages, write_pages

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


def anchors(path):
    """Return the fragments that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@named
def test_links_lead_to_files_and_headings(path):
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            file, _, fragment = target.partition("#")
            there = path.parent / file if file else path
            assert there.exists(), target
            assert not fragment or fragment in anchors(there), target


def test_every_page_is_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
            left += [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert set(DOCS) <= seen


def commands(path):
    """Return every call of d3bot in a page's blocks and code, as words after `d3bot`, comments cut."""
    text = path.read_text()
    blocks = "\n".join(re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL))
    lines = [line.removeprefix("$ ").removeprefix(".venv/bin/").strip() for line in blocks.splitlines()]
    lines += [line.strip() for line in re.findall(r"^    (d3bot .*)$", text, re.MULTILINE)]
    lines += re.findall(r"`(d3bot [a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("d3bot ")]


def name_of(words):
    """Return which command a call is: `run`, `bench noise`."""
    return " ".join(words[:2]) if words[0] == "bench" and len(words) > 1 else words[0]


@named
def test_commands_in_the_docs_exist_with_their_options(path):
    for words in commands(path):
        if words[0].startswith("--"):
            continue
        command = get_command(app)
        for word in name_of(words).split():
            assert word in command.commands, words
            command = command.commands[word]
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, words


FIRST_DAY = "tests/test_first_day.py::test_every_command_of_the_first_day_does_what_the_page_says"
GITHUB = "tests/github/test_github_cli.py"
RUN_BY = {
    **dict.fromkeys(("run", "replay", "promote", "list", "file", "check", "compare", "report", "shrink"), FIRST_DAY),
    "doctor": "tests/test_cli.py::test_the_doctor_says_what_the_configuration_comes_to_and_what_must_be_mended",
    "script": "tests/test_cli.py::test_a_seed_is_replayed_and_printed_as_a_script",
    "bisect": "tests/flow/test_bisect_findings.py::test_a_person_asks_at_the_terminal",
    "plan": f"{GITHUB}::test_the_matrix_is_json_and_the_shards_share_a_seed",
    "merge": f"{GITHUB}::test_f6_a_missing_shard_fails_the_merge_and_names_itself",
    "fetch": f"{GITHUB}::test_an_artifact_is_fetched_and_its_absence_is_an_answer",
    "post": f"{GITHUB}::test_a_check_is_posted_to_the_pull_request_of_the_event",
    "command": f"{GITHUB}::test_a_command_is_answered_and_a_request_becomes_outputs",
    "approved": f"{GITHUB}::test_g4_approval_is_an_exit_code_and_a_commit",
    "retest": "tests/github/test_act.py::test_c4_a_retest_that_was_asked_for_runs_without_a_token_and_closes_the_issue",
    "bench recall": "tests/bench/test_bench_commands.py::test_recall_finds_a_planted_fault_in_both_columns",
    "bench findings": "tests/bench/test_bench_commands.py::test_findings_makes_one_of_a_fault",
    "bench noise": "tests/bench/test_bench_commands.py::test_noise_tells_how_near_passes_come",
    "bench speed": "tests/bench/test_bench_commands.py::test_speed_times_the_engine_beside_the_scripts",
    "bench d3": "tests/bench/test_bench_commands.py::test_d3_tells_both_rules_on_both_kinds_of_trials",
}
"""Every command that the documentation names, and the test that runs it."""


def test_every_command_in_the_docs_is_run_by_a_test():
    told = {name_of(words) for path in DOCS for words in commands(path) if not words[0].startswith("--")} - {"bench"}
    assert told == RUN_BY.keys()
    for name, test in RUN_BY.items():
        path, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), f"{name}: {test} is not there"


def test_every_target_of_make_in_the_docs_exists():
    there = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCS:
        assert set(re.findall(r"(?:`|^\$ |&& )make ([a-z]+)", path.read_text(), re.MULTILINE)) <= there, path


def test_every_variable_in_the_docs_is_one_that_somebody_reads():
    sources = [
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("d3bot/**/*.py"),
        *ROOT.glob(".github/**/*.yml"),
        ROOT / "Makefile",
    ]
    read = "\n".join(path.read_text() for path in sources)
    keys = {f"D3BOT_{name.upper()}" for name in Config.model_fields}
    keys |= {f"D3BOT_TRACKER_{name.upper()}" for name in TrackerConfig.model_fields}
    keys |= {f"D3BOT_INDEX_{name.upper()}" for name in Index.model_fields}
    for path in DOCS:
        for name in set(re.findall(r"\bD3BOT_[A-Z_]*[A-Z]\b", path.read_text())):
            assert name in keys or name in read, f"{path}: {name}"


def test_the_page_on_frameworks_names_every_module_that_knows_one():
    page = (ROOT / "docs/add-a-framework.md").read_text()
    for path in sorted((ROOT / "d3bot").rglob("*.py")):
        if '"tensorflow"' in path.read_text() and "frameworks/tensorflow" not in str(path):
            assert f"`{path.relative_to(ROOT)}`" in page or f"`{path.name}`" in page, path
            assert f"{path.parent.relative_to(ROOT)}/" in page, path


def test_the_pages_are_written_by_the_command(tmp_path, capsys):
    get_command(app).main(["docs", str(tmp_path)], standalone_mode=False)
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in pages()]
