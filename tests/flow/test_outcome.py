"""The result of a run for machines, and a run that goes on as it was begun."""

import json

import pytest

from d3bot.config import load_config
from d3bot.flow.night import Night
from d3bot.flow.outcome import EXIT_CODES, outcome, verdict_of
from d3bot.flow.resume import told_before
from d3bot.history.changes import compare
from d3bot.history.folder import RunWriter
from d3bot.spec import SpecError
from tests.findings.samples import KEY, finding, run, verdict

FAILS = [verdict("diverged", key=KEY)]


def night(tmp_path, verdicts=(), findings=(), **facts):
    changes = compare([verdict("pass")], verdicts)
    return Night(run(**facts), tuple(verdicts), tuple(changes), tuple(findings), tmp_path)


@pytest.mark.parametrize(
    ("facts", "known", "verdict_", "code"),
    [
        ({}, (), "nothing-new", 0),
        ({"verdicts": FAILS, "findings": [finding()]}, (), "new", 1),
        ({"verdicts": FAILS, "findings": [finding()]}, (KEY,), "nothing-new", 0),
        ({"verdicts": FAILS, "findings": [finding(verified=False)]}, (), "nothing-new", 0),
        ({"verdicts": FAILS, "findings": [finding()], "complete": False}, (), "no-data", 3),
    ],
)
def test_what_a_run_says_as_a_whole(tmp_path, facts, known, verdict_, code):
    done = night(tmp_path, **facts)
    assert verdict_of(done, known) == verdict_
    assert EXIT_CODES[verdict_of(done, known)] == outcome(done, known)["exit_code"] == code


def test_the_result_is_json_with_the_findings_and_where_they_are(tmp_path):
    told = json.loads(json.dumps(outcome(night(tmp_path, FAILS, [finding()]))))
    assert told["counts"]["new"] == 1
    assert [each["key"] for each in told["new"]] == [KEY]
    assert told["findings"][0]["folder"] == str(tmp_path / "findings" / KEY)
    assert told["headline"].startswith("1 new failure")


@pytest.mark.parametrize("seeds", ["none", "seeds"])
def test_a_run_goes_on_with_what_it_was_told(tmp_path, seeds):
    given = {"builds": ["python:/usr/bin/python3"], "seeds": seeds, "fresh": 7, "settings": ["tp*"], "shard": "2/3"}
    told = load_config(environ={}, cli=given)
    with RunWriter.create(tmp_path / "run", run(config=told.model_dump(mode="json", exclude={"cache"}))):
        pass
    assert load_config(environ={}, cli=told_before(tmp_path / "run")) == told


def test_there_must_be_something_to_go_on_with(tmp_path):
    with pytest.raises(SpecError, match="is not there"):
        told_before(tmp_path / "none")
