import os
from datetime import UTC, datetime, timedelta

import pytest
import tomli_w

from d3bot.findings.lifecycle import new_record, seen_again
from d3bot.spec import SpecError
from d3bot.tracker import FolderTracker
from tests.findings.samples import KEY, finding

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


@pytest.fixture
def tracker(tmp_path):
    made = FolderTracker(tmp_path / "tracker")
    with made.locked():
        made.create(new_record(finding(), NOW, "r1"), "The body.")
    return made


@pytest.fixture
def file(tracker):
    return tracker.path / f"{KEY}.md"


def test_a_record_is_one_readable_file_and_is_read_back(tracker, file):
    assert tracker.records() == {KEY: new_record(finding(), NOW, "r1")}
    text = file.read_text()
    assert text.startswith("+++\nschema = 1\n")
    assert 'state = "open"\nignore = false\n' in text
    assert text.endswith("+++\n\nThe body.\n")


def test_an_update_keeps_what_a_person_added(tracker, file):
    mine = file.read_text().replace("ignore = false", 'ignore = false\nowner = "me"') + "My note.\n+++\nmore\n"
    file.write_text(mine)
    tracker.update(seen_again(tracker.records()[KEY], finding(), NOW + timedelta(days=1), "r2"))
    text = file.read_text()
    assert 'owner = "me"' in text
    assert text.endswith("\nThe body.\nMy note.\n+++\nmore\n")
    assert tracker.records()[KEY].seen_runs == ("r1", "r2")


def test_a_person_closes_a_record_by_one_word_and_the_file_says_when(tracker, file):
    file.write_text(file.read_text().replace('state = "open"', 'state = "closed"'))
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    record = tracker.records()[KEY]
    assert (record.state, record.closed_at) == ("closed", NOW)


def test_a_file_saved_with_other_line_ends_is_read(tracker, file):
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert tracker.records()[KEY].key == KEY


def test_other_files_in_the_folder_are_left_alone(tracker):
    (tracker.path / "README.md").write_text("How we work.")
    (tracker.path / "notes.md").write_text("Notes.")
    assert set(tracker.records()) == {KEY}


def test_a_record_is_never_created_over_another(tracker):
    with pytest.raises(SpecError, match="is there already"):
        tracker.create(new_record(finding(), NOW, "r2"), "other")


def test_a_key_that_leaves_the_folder_is_refused(tracker):
    with pytest.raises(SpecError, match="not a key"):
        tracker.create(new_record(finding(), NOW, "r1").model_copy(update={"key": "../x-00000000"}), "")


def front(**facts):
    return f"+++\n{tomli_w.dumps({'schema': 1, 'key': KEY} | facts)}+++\nbody\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no front matter", "restore them"),
        ("+++\nstate = open\n+++\n", "not valid TOML"),
        (front(), "title: Field required"),
        (front(title="t", first_seen=NOW, last_seen=NOW, state="shut"), "state: Input should be 'open' or 'closed'"),
        (front(title="t", first_seen=NOW, last_seen=NOW, key="torch-x-00000000"), "not its key"),
        (front(schema=2), "update d3bot"),
        ("x" * 2 * 1024**2, "larger than"),
    ],
)
def test_a_file_that_cannot_be_read_stops_the_listing(tracker, file, text, message):
    file.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        tracker.records()
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="choose another folder"):
        FolderTracker(tmp_path / "file").locked()


def test_a_folder_that_another_keeps_is_refused(tracker, monkeypatch):
    monkeypatch.setattr("d3bot.tracker.folder._WAIT_S", 0.05)
    with tracker.locked(), pytest.raises(SpecError, match="another d3bot has been filing"):
        FolderTracker(tracker.path).locked()
