import json
import math
import os
import threading

import pytest

from d3bot.history.changes import compare
from d3bot.history.files import write_atomic
from d3bot.history.folder import RunWriter, load_changes, load_run, write_changes
from d3bot.spec import SpecError
from tests.findings.samples import run, verdict


@pytest.fixture
def written(tmp_path):
    folder = tmp_path / "out"
    with RunWriter.create(folder, run()) as writer:
        for i in range(3):
            writer.append(verdict("pass", f"c{i}"))
        writer.finish(run(trials=3, counts={"pass": 3}))
    return folder


def test_what_was_written_is_read_back(written):
    loaded = load_run(written)
    assert loaded.run == run(trials=3, counts={"pass": 3})
    assert loaded.verdicts == [verdict("pass", f"c{i}") for i in range(3)]
    assert not loaded.truncated


def test_a_verdict_written_again_takes_the_place_of_the_first(tmp_path):
    with RunWriter.create(tmp_path, run()) as writer:
        for each in (verdict("hung", "c1"), verdict("pass", "c2"), verdict("flaky", "c1")):
            writer.append(each)
    assert load_run(tmp_path).verdicts == [verdict("flaky", "c1"), verdict("pass", "c2")]


def test_a_run_that_was_never_finished_is_readable_and_incomplete(tmp_path):
    writer = RunWriter.create(tmp_path / "out", run())
    writer.append(verdict())
    loaded = load_run(tmp_path / "out")
    assert (loaded.run.complete, loaded.verdicts) == (False, [verdict()])
    writer.close()


def test_every_line_is_standard_json_even_of_a_number_that_json_lacks(tmp_path):
    seen = verdict("nonfinite", error=math.inf, bound=0.0)
    with RunWriter.create(tmp_path, run()) as writer:
        writer.append(seen)
    (line,) = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert load_run(tmp_path).verdicts == [seen]


def test_many_threads_append_whole_lines(tmp_path):
    with RunWriter.create(tmp_path, run()) as writer:

        def work(thread: int) -> None:
            for i in range(50):
                writer.append(verdict("hung", f"c{thread}x{i}", detail="stack\n" * 200))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({seen.trial for seen in load_run(tmp_path).verdicts}) == 200


@pytest.mark.parametrize("lost", [1, 2, 40])
def test_a_last_line_cut_off_by_a_kill_is_dropped_and_told(written, lost):
    path = written / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[: -1 - lost])
    loaded = load_run(written)
    assert loaded.truncated
    assert [seen.case for seen in loaded.verdicts] == ["c0", "c1"]


def test_resume_drops_the_cut_line_and_goes_on(written):
    path = written / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    writer, loaded = RunWriter.resume(written)
    assert [seen.case for seen in loaded.verdicts] == ["c0", "c1"]
    assert not load_run(written).run.complete
    writer.append(verdict("hung", "c9"))
    writer.finish(run())
    again = load_run(written)
    assert not again.truncated
    assert [seen.case for seen in again.verdicts] == ["c0", "c1", "c9"]


def test_resume_after_a_last_line_that_lacks_only_its_end(written):
    path = written / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    writer, loaded = RunWriter.resume(written)
    assert not loaded.truncated
    writer.append(verdict("hung", "c9"))
    writer.close()
    assert [seen.case for seen in load_run(written).verdicts] == ["c0", "c1", "c2", "c9"]


def test_a_run_in_progress_is_held_against_a_second_writer(tmp_path):
    with RunWriter.create(tmp_path, run()), pytest.raises(SpecError, match="another d3bot"):
        RunWriter.resume(tmp_path)


def test_a_folder_that_holds_a_run_is_not_begun_anew(written):
    with pytest.raises(SpecError, match="--resume"):
        RunWriter.create(written, run())


def damage(name, text):
    return lambda folder: (folder / name).write_text(text)


def linked(folder):
    (folder / "run.json").rename(folder / "elsewhere.json")
    (folder / "run.json").symlink_to("elsewhere.json")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damage("run.json", "{"), "run.json: is not valid JSON"),
        (damage("run.json", "[" * 100_000), "run.json: is not valid JSON"),
        (damage("run.json", "[]"), "holds no JSON object"),
        (damage("run.json", '{"run": "x"}'), "has no schema number"),
        (damage("run.json", '{"schema": 2}'), "update d3bot"),
        (damage("run.json", '{"schema": 1, "run": "x"}'), "started: Field required"),
        (damage("run.json", " " * 5 * 1024**2), "larger than"),
        (damage("verdicts.jsonl", '{"schema": 7}\n'), "line 1: schema 7 is newer"),
        (damage("verdicts.jsonl", "cut\n" + '{"sch'), "line 1: is not valid JSON"),
        (damage("verdicts.jsonl", '{"schema": 1}\n'), "line 1: trial: Field required"),
        (linked, "run.json: cannot be read"),
        (lambda folder: (folder / "run.json").unlink(), "holds no run.json"),
        (lambda folder: (folder / "verdicts.jsonl").unlink(), "verdicts.jsonl: cannot be read"),
        (lambda folder: [(folder / "run.json").unlink(), os.mkfifo(folder / "run.json")], "not a regular file"),
    ],
)
def test_a_garbled_run_is_refused_in_one_line(written, spoil, message):
    spoil(written)
    with pytest.raises(SpecError, match=message) as caught:
        load_run(written)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_refused_with_what_to_give(tmp_path):
    with pytest.raises(SpecError, match="d3bot run --out"):
        load_run(tmp_path / "nothing")


def test_changes_are_written_by_class_and_read_back(tmp_path):
    changes = compare([verdict("pass", "c1"), verdict("hung", "c2")], [verdict("hung", "c1"), verdict("pass", "c2")])
    assert load_changes(tmp_path) == []
    write_changes(tmp_path, "r0", changes)
    assert json.loads((tmp_path / "changes.json").read_text())["counts"] == {"regressed": 1, "fixed": 1}
    assert load_changes(tmp_path) == changes


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_atomic(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpecError, match="No space left"):
        write_atomic(path, "new")
    assert [item.name for item in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text() == "old"
