"""Two run folders compared as they are read: the same answer as from lists, for any number of trials."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3bot.history import compared as module
from d3bot.history.changes import compare, known_again, other_names
from d3bot.history.compared import compare_folders
from d3bot.history.folder import RunWriter
from d3bot.spec import KINDS
from tests.findings.samples import KEY, finding, run, verdict

RUNS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(KINDS), st.sampled_from(["", "k-a", "k-b"])), max_size=12)


def written(folder, verdicts):
    with RunWriter.create(folder, run(folder.name)) as writer:
        for each in verdicts:
            writer.append(each)
        writer.finish(run(folder.name))
    return folder


def made(rows):
    return [verdict(kind, f"c{number}", key=key) for number, kind, key in rows]


@settings(max_examples=50, deadline=None)
@given(before=RUNS, after=RUNS)
def test_what_is_read_from_folders_is_what_lists_give(tmp_path_factory, before, after):
    folder = tmp_path_factory.mktemp("runs")
    found = compare_folders(written(folder / "a", made(before)), written(folder / "b", made(after)))
    expected = known_again(compare(made(before), made(after)))
    assert found.changes == expected
    assert not found.more
    assert sum(found.counts.values()) == len(expected)


def test_of_very_many_changes_some_are_listed_and_all_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LISTED", 2)
    one = written(tmp_path / "a", [verdict("pass", f"c{i}") for i in range(5)])
    other = written(tmp_path / "b", [verdict("hung", f"c{i}", key="k") for i in range(5)])
    found = compare_folders(one, other)
    assert found.counts == {"regressed": 5}
    assert len(found.changes) == 2
    assert found.more == {"regressed": 3}


@pytest.mark.parametrize(("key", "change"), [("k-symptom", "still-failing"), ("k-other", "fails-differently")])
def test_a_symptom_that_nobody_looked_into_is_that_of_its_finding(tmp_path, key, change):
    names = other_names([finding(symptoms=("k-symptom",))])
    one = written(tmp_path / "a", [verdict("diverged", "c1", key=KEY)])
    other = written(tmp_path / "b", [verdict("diverged", "c1", key=key)])
    assert compare_folders(one, other, names).counts == {change: 1}


VERDICTS_EACH = int(os.environ.get("D3BOT_TEST_VERDICTS", "20000"))
"""Verdicts of each of two runs that are compared; 1000000 for the size that the limits are set for."""
SECONDS, GIB = 60, 2
"""For a million against a million, of processor time and memory."""

MEASURED = """
import json, re, sys, time
from pathlib import Path
from d3bot.history.compared import compare_folders

began = time.process_time()
found = compare_folders(Path(sys.argv[1]), Path(sys.argv[2]))
seconds = time.process_time() - began
# Not ru_maxrss, which begins with what the process that started this one held.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps([found.counts, seconds, peak / 2**20]))
"""


def of_many(folder, shift):
    """Write a run of very many verdicts, of which every hundredth, counted from `shift`, is a crash."""
    written(folder, [])
    plain = json.loads(verdict("pass").model_dump_json(by_alias=True))
    with (folder / "verdicts.jsonl").open("w") as file:
        for i in range(VERDICTS_EACH):
            kind = "crashed" if i % 100 == shift else "pass"
            line = {
                "trial": f"t{i:012x}",
                "case": f"c{i // 20:012x}",
                "setting": f"ddp(world={i % 20 + 1})",
                "kind": kind,
            }
            file.write(json.dumps(plain | line | {"key": KEY if kind == "crashed" else ""}) + "\n")
    return folder


def test_a_million_verdicts_are_compared_from_disk_within_a_minute_and_two_gigabytes(tmp_path):
    one, other = of_many(tmp_path / "a", 3), of_many(tmp_path / "b", 5)
    done = subprocess.run([sys.executable, "-c", MEASURED, one, other], capture_output=True, text=True, check=True)
    counts, seconds, gib = json.loads(done.stdout)
    assert sum(counts.values()) == VERDICTS_EACH
    assert counts["still-passing"] == VERDICTS_EACH * 98 // 100
    part = VERDICTS_EACH / 1_000_000
    assert seconds <= SECONDS * part + 1
    assert gib <= GIB * part + 0.2
