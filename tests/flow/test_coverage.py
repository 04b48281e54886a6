"""What a run covers, over several nights and several shards."""

from pathlib import Path

import pytest

from d3bot.flow.coverage import aged, merge_coverage, record_coverage
from d3bot.flow.totals import totals
from d3bot.generate import fresh_cases
from d3bot.generate.coverage import NEVER, known_pairs, pairs_of
from d3bot.generate.risky import is_triple
from d3bot.history.coverage import COVERAGE, load_coverage
from d3bot.spec import Coverage, Kind, Setting, SpecError, Trial
from tests.findings.samples import verdict

CASE = fresh_cases("torch", 1, 1)[0]
DDP = Trial(case=CASE, setting=Setting.parse("ddp(world=2)"))
TP = Trial(case=CASE, setting=Setting.parse("tp(world=2)"))


def judged(trial: Trial, kind: Kind, **more):
    return verdict(kind, "any").model_copy(update={"trial": trial.id} | more)


@pytest.mark.parametrize(
    ("before", "covered", "after"),
    [
        ({}, {("a", "x")}, {("a", "x"): 0}),
        ({("a", "x"): 4}, {("a", "x")}, {("a", "x"): 0}),
        ({("a", "x"): 4}, {("b", "x")}, {("a", "x"): 5, ("b", "x"): 0}),
        ({("a", "x"): NEVER - 1}, set(), {}),
    ],
)
def test_a_pair_is_a_run_older_until_it_is_covered_again_or_forgotten(before, covered, after):
    assert aged(before, covered) == after


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("pass", True),
        ("diverged", True),
        ("crashed", True),
        ("refused", False),
        ("not-applicable", False),
        ("reference-failed", False),
        ("no-data", False),
    ],
)
def test_only_an_executed_trial_covers(tmp_path: Path, kind: Kind, counts: bool):
    found = record_coverage(tmp_path, None, [DDP], [judged(DDP, kind)])
    pairs, triples = found.pairs["torch"], found.triples["torch"]
    reachable = known_pairs("torch").reachable
    had = pairs_of(CASE, DDP.setting) & reachable
    assert triples.covered == (sum(map(is_triple, had)) if counts else 0)
    assert pairs.covered + triples.covered == (len(had) if counts else 0)
    assert pairs.reachable + triples.reachable == len(reachable)


def test_what_could_not_have_shown_a_fault_covers_nothing(tmp_path: Path):
    blind = judged(DDP, "pass", vacuous=True)
    assert record_coverage(tmp_path, None, [DDP], [blind]).pairs["torch"].covered == 0
    assert totals([blind])["coverage"] == {}


def test_coverage_adds_up_over_nights(tmp_path: Path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir(), second.mkdir()
    one = record_coverage(first, None, [DDP], [judged(DDP, "pass")]).pairs["torch"]
    two = record_coverage(second, first, [TP], [judged(TP, "pass")]).pairs["torch"]
    assert two.lately == one.covered + two.covered
    assert two.left == two.reachable - two.lately
    ages = load_coverage(second).of("torch")
    assert {ages[pair] for pair in pairs_of(CASE, DDP.setting)} == {1}
    assert {ages[pair] for pair in pairs_of(CASE, TP.setting)} == {0}


def test_shards_cover_together_what_each_covered(tmp_path: Path):
    parts = [tmp_path / "1", tmp_path / "2"]
    for part, trial in zip(parts, (DDP, TP), strict=True):
        part.mkdir()
        record_coverage(part, None, [trial], [judged(trial, "pass")])
    whole = merge_coverage(tmp_path, parts).pairs["torch"]
    assert whole.covered == whole.lately > 0
    assert set(load_coverage(tmp_path).of("torch")) == pairs_of(CASE, DDP.setting) | pairs_of(CASE, TP.setting)


def test_a_run_without_the_file_has_covered_nothing_and_a_garbled_file_is_an_error(tmp_path: Path):
    assert load_coverage(tmp_path) == Coverage()
    (tmp_path / COVERAGE).write_text('{"schema": 1, "ages": {"torch": 7}}')
    with pytest.raises(SpecError, match="remove it"):
        load_coverage(tmp_path)
