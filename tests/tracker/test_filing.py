import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from d3bot.findings import Symptom, render_issue, symptom_key
from d3bot.findings.lifecycle import summary_key
from d3bot.history.finding_folder import write_finding
from d3bot.history.folder import RunWriter
from d3bot.spec import SpecError
from d3bot.tracker import FolderTracker, file_run
from tests.findings.samples import BUILD, KEY, SETTING, finding, run, verdict

NIGHT = datetime(2026, 11, 30, 2, 0, tzinfo=UTC)
DAY = timedelta(days=1)
OTHER = KEY[:-8] + "00000000"
CATCH_ALL = symptom_key("torch", SETTING, Symptom("hung"))
SUMMARY = summary_key("torch")


@pytest.fixture
def tracker(tmp_path):
    return FolderTracker(tmp_path / "tracker")


@pytest.fixture
def night(tmp_path):
    """Return a function that writes a finished run of one night, with findings of these keys."""

    def made(number, *findings, **facts):
        folder = tmp_path / f"run{number}"
        header = {"started": (NIGHT + number * DAY).isoformat(), "previous": f"r{number - 1}" if number else ""}
        header |= facts
        RunWriter.create(folder, run(f"r{number}", **header)).finish(run(f"r{number}", **header))
        for each in findings:
            write_finding(folder, each, "print(1)\n", "bad", None, "@octocat wrote this")
        return folder

    return made


def filed(folder, tracker, number=0, **facts):
    return [(each.key, each.action) for each in file_run(folder, tracker, NIGHT + number * DAY + DAY / 6, **facts)]


def test_the_same_failure_ten_nights_running_is_one_file(night, tracker):
    assert filed(night(1, finding()), tracker, 1) == [(KEY, "file")]
    for number in range(2, 11):
        assert filed(night(number, finding()), tracker, number) == [(KEY, "update")]
    assert [path.name for path in tracker.path.glob("*.md")] == [f"{KEY}.md"]
    assert len(tracker.records()[KEY].seen_runs) == 10


def test_a_record_closed_by_a_person_is_reopened_in_place_once_the_fix_had_time(night, tracker):
    filed(night(1, finding()), tracker, 1)
    path = tracker.path / f"{KEY}.md"
    closing = f'state = "closed"\nclosed_at = {(NIGHT + DAY).isoformat()}'
    path.write_text(path.read_text().replace('state = "open"', closing))
    assert filed(night(2, finding()), tracker, 2) == [(KEY, "delay")]
    assert filed(night(4, finding()), tracker, 4) == [(KEY, "reopen")]
    assert [path.name for path in tracker.path.glob("*.md")] == [f"{KEY}.md"]
    assert tracker.records()[KEY].state == "open"


def test_filing_one_run_twice_changes_nothing(night, tracker):
    folder = night(1, finding())
    filed(folder, tracker, 1)
    before = (tracker.path / f"{KEY}.md").read_text()
    assert filed(folder, tracker, 1) == [(KEY, "skip")]
    assert (tracker.path / f"{KEY}.md").read_text() == before


def test_two_filers_at_once_make_one_file(night, tracker):
    same = (NIGHT + DAY).isoformat()
    folders = [night(1, finding(), started=same), night(2, finding(), started=same)]
    found = []
    threads = [threading.Thread(target=lambda each=each: found.extend(filed(each, tracker, 2))) for each in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(action for _, action in found) == ["file", "update"]
    assert tracker.records()[KEY].seen_runs in (("r1", "r2"), ("r2", "r1"))


def test_a_first_run_is_one_record_that_lists_its_findings(night, tracker):
    unverified = finding(KEY[:-8] + "11111111", verified=False, unverified_reason="exit 0")
    hang = finding(CATCH_ALL, verdict=verdict("hung", key=CATCH_ALL))
    folder = night(0, finding(title="gradients of @octocat"), finding(OTHER), unverified, hang)
    assert sorted(filed(folder, tracker)) == sorted(
        [(SUMMARY, "file"), (KEY, "skip"), (OTHER, "skip"), (unverified.key, "delay"), (CATCH_ALL, "skip")]
    )
    assert set(tracker.records()) == {SUMMARY}
    assert set(tracker.records()[SUMMARY].covers) == {KEY, OTHER}
    text = (tracker.path / f"{SUMMARY}.md").read_text()
    assert f"| `{KEY}` | gradients of @&#8203;octocat |" in text
    assert "not verified: exit 0" in text


def test_later_nights_file_what_the_summary_does_not_list(night, tracker):
    filed(night(0, finding()), tracker)
    assert filed(night(1, finding(), finding(OTHER)), tracker, 1) == [(OTHER, "file"), (KEY, "skip")]
    assert set(tracker.records()) == {SUMMARY, OTHER}


def test_once_the_summary_is_closed_what_still_fails_is_filed(night, tracker):
    filed(night(0, finding()), tracker)
    path = tracker.path / f"{SUMMARY}.md"
    path.write_text(path.read_text().replace('state = "open"', 'state = "closed"'))
    assert filed(night(1, finding()), tracker, 1) == [(KEY, "file")]


def test_all_files_each_finding_of_a_first_run(night, tracker):
    folder = night(0, finding(), finding(OTHER))
    assert filed(folder, tracker, file_all=True) == [(OTHER, "file"), (KEY, "file")]


def test_all_files_each_after_the_summary_too(night, tracker):
    folder = night(0, finding())
    filed(folder, tracker)
    assert filed(folder, tracker, file_all=True) == [(KEY, "file")]


def test_a_first_run_without_findings_leaves_no_summary(night, tracker):
    assert filed(night(0), tracker) == []
    assert tracker.records() == {}


def test_what_is_known_upstream_is_never_filed(night, tracker):
    known = {KEY: "pytorch/pytorch#1"}
    assert filed(night(0, finding()), tracker, known=known) == [(KEY, "skip")]
    assert filed(night(1, finding()), tracker, 1, known=known) == [(KEY, "skip")]
    assert tracker.records() == {}


def test_an_incomplete_run_files_nothing_and_says_why(night, tracker):
    folder = night(1, finding(), complete=False)
    assert filed(folder, tracker, 1) == [(KEY, "delay")]
    assert tracker.records() == {}
    assert "incomplete" in json.loads((folder / "decisions.json").read_text())["decisions"][0]["reason"]


def test_every_decision_is_written_with_its_reason(night, tracker):
    folder = night(1, finding(), finding(OTHER, verified=False, unverified_reason="::error::x\x1b[0m\ny"))
    filed(folder, tracker, 1)
    data = json.loads((folder / "decisions.json").read_text())
    assert (data["schema"], data["run"], data["decided"]) == (1, "r1", "2026-12-01T06:00:00+00:00")
    assert data["decisions"] == [
        {"key": OTHER, "action": "delay", "reason": "not verified: ::error::x y"},
        {"key": KEY, "action": "file", "reason": "no record has this key"},
    ]


def test_the_text_is_rendered_anew_and_not_taken_from_the_run(night, tracker):
    folder = night(1, finding())
    filed(folder, tracker, 1)
    text = (tracker.path / f"{KEY}.md").read_text()
    assert "octocat" not in text
    assert text.endswith(render_issue(finding(), "print(1)\n", "bad", None).body.strip() + "\n")


def test_a_promise_comes_in_with_the_renderer(night, tracker):
    def render(folder):
        return render_issue(folder.finding, folder.script, folder.output_bad, folder.output_good, "It is promised.")

    filed(night(1, finding()), tracker, 1, render=render)
    assert "It is promised." in (tracker.path / f"{KEY}.md").read_text()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"key": "torch-ddp-hung"}, "not a key"),
        ({"key": "other-ddp-hung-x-00000000"}, "not a key"),
        ({"key": SUMMARY}, "not a key"),
        ({"key": "tensorflow-x-00000000", "framework": "tensorflow"}, "the run has no build"),
    ],
)
def test_a_forged_finding_stops_the_filing(night, tracker, facts, message):
    build = BUILD.model_copy(update={"framework": facts.get("framework", "torch")})
    folder = night(1, finding(), finding(facts["key"]).model_copy(update={"build": build}))
    with pytest.raises(SpecError, match=message):
        filed(folder, tracker, 1)
    assert tracker.records() == {}


def test_a_run_without_a_date_is_refused(night, tracker):
    with pytest.raises(SpecError, match="no ISO date"):
        filed(night(1, finding(), started="tonight"), tracker, 1)


def test_nothing_is_filed_when_the_tracker_cannot_be_listed(night, tracker):
    tracker.path.mkdir()
    (tracker.path / f"{OTHER}.md").write_text("garbled")
    with pytest.raises(SpecError, match="restore them"):
        filed(night(1, finding()), tracker, 1)
    assert not (tracker.path / f"{KEY}.md").exists()
