"""Two run folders compared as they are read: the same answer as from lists, for any number of trials."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3bot.history import compared as module
from d3bot.history.changes import compare, other_names
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
    expected = compare(made(before), made(after))
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
