"""Scripts of findings that a run does not show: run again, counted, kept."""

import pytest

from d3bot.config import Shard
from d3bot.engine.script import ScriptRun
from d3bot.findings.lifecycle import script_hash
from d3bot.flow.evidence import find_known, gather, known_findings
from d3bot.history.evidence import MAX_EVIDENCE, load_evidence
from d3bot.history.finding_folder import write_finding
from d3bot.spec import SpecError
from tests.findings.samples import BUILD, KEY, finding

OTHER = KEY[:-8] + "00000000"
NEWER = BUILD.model_copy(update={"version": "2.14.0"})


@pytest.fixture
def before(tmp_path):
    folder = tmp_path / "before"
    write_finding(folder, finding(), "print(1)\n", "bad", None, "x")
    write_finding(folder, finding(OTHER), "print(2)\n", "bad", None, "x")
    write_finding(folder, finding(KEY[:-8] + "11111111", verified=False), "print(3)\n", "bad", None, "x")
    return folder


@pytest.fixture
def codes(monkeypatch):
    """Exit codes of the scripts that are run, in their order; 0 once they are used up."""
    given: list[int] = []
    ran: list[str] = []

    def run(build, script, seconds):
        ran.append(script.read_text())
        return ScriptRun(given.pop(0) if given else 0, "output")

    monkeypatch.setattr("d3bot.flow.evidence.run_script", run)
    run.given, run.ran = given, ran
    return run


def test_what_fails_again_and_what_was_never_verified_is_no_matter_of_evidence(before, codes, tmp_path):
    (item,) = gather(before, {"torch": NEWER}, {OTHER}, {OTHER}, tmp_path / "out", 3, Shard())
    assert (item.key, item.runs, item.passed, item.script) == (KEY, 3, 3, script_hash("print(1)\n"))
    assert codes.ran == ["print(1)\n"] * 3
    assert load_evidence(tmp_path / "out") == [item]
    assert [folder.finding.key for folder in known_findings(tmp_path / "out")] == [KEY]


def test_what_fails_but_was_not_looked_into_is_kept_and_not_asked(before, codes, tmp_path):
    assert gather(before, {"torch": NEWER}, {KEY, OTHER}, {OTHER}, tmp_path / "out", 3, Shard()) == []
    assert codes.ran == []
    assert [folder.finding.key for folder in known_findings(tmp_path / "out")] == [KEY]


def test_the_first_failure_ends_the_asking(before, codes, tmp_path):
    codes.given += [0, 1]
    (item,) = gather(before, {"torch": NEWER}, {OTHER}, {OTHER}, tmp_path / "out", 3, Shard())
    assert (item.runs, item.passed, item.outcome) == (2, 1, "exit 1")


def test_a_later_run_goes_on_from_what_was_kept(before, codes, tmp_path):
    gather(before, {"torch": NEWER}, set(), set(), tmp_path / "second", 1, Shard())
    items = gather(tmp_path / "second", {"torch": NEWER}, set(), set(), tmp_path / "third", 1, Shard())
    assert {item.key for item in items} == {KEY, OTHER}


def test_each_shard_takes_its_part(before, codes, tmp_path):
    parts = [
        gather(before, {"torch": NEWER}, set(), set(), tmp_path / f"s{i}", 1, Shard(index=i, count=4))
        for i in range(1, 5)
    ]
    assert sorted(item.key for part in parts for item in part) == sorted([KEY, OTHER])


def test_a_framework_without_a_build_is_not_asked(before, codes, tmp_path):
    assert gather(before, {}, set(), set(), tmp_path / "out", 1, Shard()) == []
    assert not (tmp_path / "out").exists()


def test_a_finding_is_found_by_its_key(before):
    assert find_known(before, KEY).finding.key == KEY
    with pytest.raises(SpecError, match="has no finding"):
        find_known(before, "torch-x-00000000")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"schema": 1}',
        '{"schema": 1, "evidence": [{}]}',
        f'{{"schema": 1, "evidence": {[0] * (MAX_EVIDENCE + 1)}}}',
    ],
)
def test_garbled_evidence_is_refused(tmp_path, text):
    (tmp_path / "evidence.json").write_text(text)
    with pytest.raises(SpecError):
        load_evidence(tmp_path)
