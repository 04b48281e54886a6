"""Which earlier run a run is compared with: none, one of another library or environment, broken, incomplete, newer."""

import json

import pytest

from d3bot.history.compared import compare_folders
from d3bot.history.folder import RUN, VERDICTS, RunWriter
from d3bot.history.previous import difference, latest_comparable, named
from d3bot.spec import SpecError
from tests.findings.samples import BUILD, run, verdict

CPU = BUILD.model_copy(update={"environment": {"machine": "x86_64", "os": "Debian", "cpu": "one"}})
OTHER_CPU = BUILD.model_copy(update={"environment": {"machine": "x86_64", "os": "Ubuntu", "cpu": "two"}})
GPU = BUILD.model_copy(update={"environment": {"machine": "x86_64", "gpus": "H200"}})
KERAS = CPU.model_copy(update={"framework": "tensorflow", "name": "tensorflow-cpu"})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([CPU], [CPU], ""),
        ([CPU], [CPU.model_copy(update={"version": "2.14.0"})], ""),
        ([CPU], [OTHER_CPU], ""),
        ([CPU, KERAS], [CPU], ""),
        ([CPU], [CPU, KERAS], ""),
        ([CPU], [KERAS], "is of torch, not of tensorflow"),
        ([], [CPU], "is of no build, not of torch"),
        ([CPU], [GPU], "ran with gpus none, not H200"),
    ],
)
def test_what_can_be_compared(before, after, words):
    """D2: two sides that differ in more than the build give no verdict."""
    assert difference(before, after) == words


def written(folder, started="2026-11-30T02:00:00+00:00", builds=(CPU,), **facts):
    header = run(folder.name, started=started, **facts).model_copy(update={"builds": builds})
    with RunWriter.create(folder, header) as writer:
        writer.append(verdict("pass", "c1"))
        writer.finish(header)
    return folder


def garbled(folder, name=RUN):
    (written(folder) / name).write_text("{")
    return folder


def newer(folder):
    data = json.loads((written(folder) / RUN).read_text())
    (folder / RUN).write_text(json.dumps(data | {"schema": 99}))
    return folder


def test_the_newest_that_can_be_compared_is_taken_and_the_rest_is_told(tmp_path):
    """F4: an older run that is gone or broken is "no baseline", never a crash and never "everything is new"."""
    old = written(tmp_path / "old", "2026-11-28T02:00:00")
    best = written(tmp_path / "best", "2026-11-29T02:00:00")
    written(tmp_path / "gpu", builds=(GPU,))
    written(tmp_path / "keras", builds=(KERAS,))
    written(tmp_path / "half", complete=False)
    garbled(tmp_path / "broken")
    newer(tmp_path / "newer")
    cut = written(tmp_path / "cut", "2026-11-29T12:00:00")
    (cut / VERDICTS).write_text("garbled\n{}\n")
    mine = written(tmp_path / "mine", "2026-12-01T02:00:00")
    found = latest_comparable(tmp_path, [CPU], without=mine)
    assert found.folder == best != old
    told = " | ".join(found.passed_over)
    for words in ("gpu: ran with gpus", "keras: is of", "half: is incomplete", "broken: ", "schema 99", "cut: "):
        assert words in told


def test_nothing_to_compare_with_is_no_error(tmp_path):
    found = latest_comparable(tmp_path, [CPU], without=tmp_path / "mine")
    assert (found.folder, found.loaded, found.passed_over) == (None, None, ())


def test_a_run_that_a_person_names_is_compared_or_refused(tmp_path):
    folder = written(tmp_path / "a")
    assert named(folder, [CPU]).folder == folder
    with pytest.raises(SpecError, match="different inputs are not compared"):
        named(folder, [GPU])
    with pytest.raises(SpecError, match="is not a folder"):
        named(tmp_path / "gone", [CPU])


def test_folders_of_different_inputs_are_refused_not_compared(tmp_path):
    one, other = written(tmp_path / "a"), written(tmp_path / "b", builds=(KERAS,))
    with pytest.raises(SpecError, match="different inputs are not compared"):
        compare_folders(one, other)
