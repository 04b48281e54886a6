"""The sticky comment and the check run of a pull request."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.github.actions import MAX_SUMMARY, notes, quiet_commands, write_outputs, write_summary
from d3bot.github.checks import Annotation, post_check
from d3bot.github.sticky import MAX_COMMENT, fitting, post_sticky
from tests.findings.test_markdown import HOSTILE
from tests.github.emulator import BOT
from tests.github.proxy import Fault


@pytest.fixture
def pull(hub):
    """A conversation; to comments it is all the same whether an issue or a pull request."""
    return hub.person("POST", "/issues", {"title": "a change"})["number"]


def at(hub, run_id, attempt=1, sha="a" * 40):
    return hub.client(place=hub.place(run_id=run_id, attempt=attempt, sha=sha))


def test_b7_ten_pushes_are_one_comment_that_is_edited(hub, pull):
    for run in range(10):
        post_sticky(at(hub, run + 1, sha=f"{run:040x}"), pull, f"result {run}", BOT)
    (comment,) = hub.comments(pull)
    assert "result 9" in comment["body"]


def test_b7_nothing_is_written_when_nothing_changed(hub, pull):
    assert post_sticky(at(hub, 1), pull, "result", BOT).what == "created"
    hub.proxy.requests.clear()
    assert post_sticky(at(hub, 2), pull, "result\r\n", BOT).what == "unchanged"
    assert {method for method, _ in hub.proxy.requests} == {"GET"}


@pytest.mark.parametrize(("first", "late"), [((9, 1), (8, 1)), ((9, 2), (9, 1))])
def test_f2_an_older_run_that_ends_late_does_not_overwrite_a_newer_one(hub, pull, first, late):
    post_sticky(at(hub, *first), pull, "newer", BOT)
    assert post_sticky(at(hub, *late), pull, "older", BOT).what == "superseded"
    assert "newer" in hub.comments(pull)[0]["body"]


@pytest.mark.parametrize("kind", ["after", "drop", "before"])
def test_a7_a_comment_is_posted_once_whatever_the_server_answers(hub, pull, kind):
    hub.proxy.faults.append(Fault(kind, "POST", "/comments$"))
    assert post_sticky(at(hub, 1), pull, "result", BOT).what == "created"
    assert len(hub.comments(pull)) == 1


def test_a_strangers_comment_with_our_marker_is_not_edited(hub, pull):
    mark = f"<!-- d3bot:sticky v1 run=99 attempt=1 sha={'a' * 40} -->"
    hub.person("POST", f"/issues/{pull}/comments", {"body": mark}, "reader-token")
    assert post_sticky(at(hub, 1), pull, "result", BOT).what == "created"


def test_g1_a_comment_that_may_not_be_written_is_no_error(hub, pull):
    hub.proxy.faults.append(Fault("403", "POST", "/comments$"))
    posted = post_sticky(at(hub, 1), pull, "result", BOT)
    assert posted.what == "refused"
    assert "403" in posted.reason


def test_e1_a_megabyte_is_posted_cut_and_says_so(hub, pull):
    post_sticky(at(hub, 1), pull, "```diff\n" + "+ a line\n" * 120_000 + "```", BOT)
    body = hub.comments(pull)[0]["body"]
    assert len(body.encode()) <= 65_536
    assert "Cut here" in body
    assert body.count("```") == 2


def test_what_fits_is_left_as_it_is():
    assert fitting("x" * MAX_COMMENT) == "x" * MAX_COMMENT
    assert len(fitting("😀" * MAX_COMMENT).encode()) <= MAX_COMMENT


def annotations(count):
    return [Annotation(f"findings/k{i}/repro.py", f"message {i}", "title") for i in range(count)]


def test_e5_annotations_go_in_batches_of_fifty(hub):
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    posted = post_check(hub.client(), sha, "d3bot", "failure", "3 new", "text", annotations(143))
    assert posted.what == "created"
    assert [method for method, path in hub.proxy.requests if "/check-runs" in path] == ["POST", "PATCH", "PATCH"]


def test_e5_more_annotations_than_help_anybody_are_counted(hub):
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    post_check(hub.client(), sha, "d3bot", "failure", "new", "text", annotations(1000))
    (made,) = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/{sha}/check-runs")["check_runs"]
    assert made["conclusion"] == "failure"
    assert "800 more annotations" in made["output"]["summary"]


def test_g1_a_check_run_that_may_not_be_created_is_no_error(hub):
    hub.proxy.faults.append(Fault("403", "POST", "/check-runs$"))
    assert post_check(hub.client(), "a" * 40, "d3bot", "success", "t", "s").what == "refused"


def test_e1_a_check_runs_summary_fits(hub):
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    assert post_check(hub.client(), sha, "d3bot", "neutral", "t" * 500, "ä" * 70_000).what == "created"


def test_e5_a_step_writes_ten_annotations_at_most_and_counts_the_others():
    rows = notes("error", [(f"t{i}", "m") for i in range(143)])
    assert len(rows) == 10
    assert rows[-1] == "::error::and 134 more; see the summary"
    assert len(notes("error", [("t", "m")] * 10)) == 10


def test_a_message_is_no_command():
    (row,) = notes("error", [("a,b::c", "x\n::stop-commands::y%")])
    assert row == "::error title=a%2Cb%3A%3Ac::x%0A::stop-commands::y%25"


@given(HOSTILE, HOSTILE)
def test_no_title_and_no_message_ends_its_annotation_or_begins_a_command(title, message):
    (row,) = notes("error", [(title, message)])
    assert len(row.splitlines()) == 1
    named, marks, _ = row.removeprefix("::error title=").partition("::")
    assert marks
    assert not re.search(r"[,:\r\n]", named)


@given(st.dictionaries(st.sampled_from(["verdict", "new", "key"]), HOSTILE, max_size=3))
def test_any_output_reads_back_as_it_was_and_is_the_only_one(values):
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", newline="") as file:
        write_outputs(Path(file.name), values)
        rest = file.read()
    for name, value in values.items():
        head, _, rest = rest.partition("\n")
        mark = head.removeprefix(f"{name}<<")
        told, end, rest = rest.partition(f"\n{mark}\n")
        assert end
        assert told == value.encode(errors="backslashreplace").decode()
    assert rest == ""


def test_an_output_cannot_begin_another_one(tmp_path):
    path = tmp_path / "output"
    write_outputs(path, {"verdict": "x\nnew=1\nEOF", "new": "0"})
    lines = path.read_text().split("\n")
    mark = lines[0].removeprefix("verdict<<")
    assert lines[1:5] == ["x", "new=1", "EOF", mark]
    assert lines[5].startswith("new<<")
    write_outputs(None, {"a": "b"})


def test_a_summary_never_grows_beyond_what_github_shows(tmp_path):
    path = tmp_path / "summary"
    for _ in range(5):
        write_summary(path, "ä" * 200_000)
    assert path.stat().st_size <= MAX_SUMMARY
    assert "left out" in path.read_text()


def test_what_is_printed_inside_commands_nothing(capsys):
    import sys

    with quiet_commands(sys.stdout, True):
        print("::error::forged")
    first, _, last = capsys.readouterr().out.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert last == f"::{token}::"
    assert len(token) > 30
