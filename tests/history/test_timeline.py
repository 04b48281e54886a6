"""What the history says of a key from what the nights said: first bad, last good, and nothing that nobody saw."""

import pytest

from d3bot.history.changes import compare
from d3bot.history.timeline import MAX_NIGHTS, History, extend, lines, load_history, record, write_history
from d3bot.spec import Evidence, SpecError
from tests.findings.samples import BUILD, KEY, finding, run, verdict

FAILS = [verdict("diverged", key=KEY)]
PASSES = [verdict("pass")]
UNSEEN = [verdict("pass", "c7")]
GONE = Evidence(key=KEY, build=BUILD, script="0" * 64, runs=3, passed=3)


def history(*nights, findings=()):
    """Return the history of nights, each its verdicts and, where it has some, its evidence."""
    grown, before = History(), []
    for number, night in enumerate(nights):
        verdicts, evidence = night if isinstance(night, tuple) else (night, ())
        build = BUILD.model_copy(update={"version": f"2.{number}"})
        changes = compare(before, verdicts) if number else []
        made = record(run(f"r{number}", builds=(build,)), verdicts, changes, findings, evidence)
        grown, before = extend(grown, made, verdicts, findings), verdicts
    return grown


@pytest.mark.parametrize(
    ("nights", "now", "last_good", "first_bad"),
    [
        ([FAILS], "fails", "", "torch 2.0"),
        ([PASSES, FAILS, FAILS], "fails", "torch 2.0", "torch 2.1"),
        ([UNSEEN, FAILS], "fails", "", "torch 2.1"),  # not seen is not passed
        ([FAILS, PASSES], "passes", "torch 2.1", ""),
        ([FAILS, (UNSEEN, [GONE])], "passes", "torch 2.1", ""),
        ([FAILS, UNSEEN], "fails", "", "torch 2.0"),  # what was said last stands
        ([FAILS, (UNSEEN, [GONE]), UNSEEN, FAILS], "fails", "torch 2.1", "torch 2.3"),
        ([FAILS, [verdict("flaky")], FAILS], "fails", "", "torch 2.0"),
    ],
)
def test_first_bad_and_last_good(nights, now, last_good, first_bad):
    (line,) = lines(history(*nights))
    assert (line.now, line.last_good, line.first_bad) == (now, last_good, first_bad)
    assert len(line.sightings) == len(nights)


def test_a_finding_names_its_key_and_the_build_on_which_its_script_passes():
    good = BUILD.model_copy(update={"version": "1.9"})
    (line,) = lines(history(FAILS, findings=[finding(title="weights differ", good=good)]))
    assert (line.facts.title, line.last_good) == ("weights differ", "torch 1.9")


def test_the_last_nights_are_kept_and_keys_of_dropped_nights_go():
    grown = history(FAILS, *[UNSEEN] * MAX_NIGHTS)
    assert len(grown.nights) == MAX_NIGHTS
    assert lines(grown) == []


def test_a_night_that_is_written_again_replaces_itself():
    grown = history(FAILS)
    again = extend(grown, record(run("r0"), PASSES), PASSES)
    assert len(again.nights) == 1


def test_it_is_read_back_as_it_was_written(tmp_path):
    grown = history(PASSES, FAILS)
    write_history(tmp_path, grown)
    assert load_history(tmp_path) == grown


@pytest.mark.parametrize(
    "text", ["[]", '{"schema": 1, "nights": 3}', '{"schema": 1, "facts": {"../x": {}}}', "nonsense"]
)
def test_a_garbled_file_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "history.json").write_text(text)
    with pytest.raises(SpecError) as error:
        load_history(tmp_path)
    assert "\n" not in str(error.value)


def test_no_file_is_no_history(tmp_path):
    assert load_history(tmp_path) == History()


def test_a_bug_that_a_night_had_no_time_to_look_into_goes_on_in_its_line():
    known = finding(KEY, symptoms=("symptom",))
    failing = [verdict("diverged", "c1", key="symptom")]
    night = record(run("r2"), failing, known=[known])
    assert list(night.keys) == [KEY]
    assert [line.key for line in lines(extend(History(), night, failing, [known]))] == [KEY]


def test_a_symptom_of_two_bugs_keeps_its_own_line():
    both = [finding(KEY, symptoms=("symptom",)), finding("torch-pp-crashed-other-1", symptoms=("symptom",))]
    assert list(record(run("r2"), [verdict("diverged", "c1", key="symptom")], known=both).keys) == ["symptom"]
