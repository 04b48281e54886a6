import itertools

import pytest

from d3bot.history.changes import NEWS, ORDER, classify, compare, fails_alike, known_again, unknown_since
from d3bot.spec import FAILING, KINDS
from tests.findings.samples import verdict

# Rows: before.  Columns: after.  F stands for every failing kind and B for what says nothing about the library.
TABLE = """
before   | none    pass          refused        F             flaky  B
none     | -       new-passing   new-passing    new-failing   flaky  indeterminate
pass     | retired still-passing regressed      regressed     flaky  indeterminate
refused  | retired still-passing still-passing  new-failing   flaky  indeterminate
F        | lost    fixed         fixed          *             flaky  indeterminate
flaky    | retired flaky         flaky          flaky         flaky  indeterminate
B        | retired indeterminate indeterminate  indeterminate flaky  indeterminate
"""
CLASSES = {
    "none": [None],
    "pass": ["pass"],
    "refused": ["refused"],
    "F": sorted(FAILING),
    "flaky": ["flaky"],
    "B": ["no-data", "not-applicable", "reference-failed"],
}


def pairs():
    head, *rows = [line.replace("|", " ").split() for line in TABLE.strip().splitlines()]
    for before, *cells in rows:
        for after, expected in zip(head[1:], cells, strict=True):
            yield from ((a, b, expected) for a, b in itertools.product(CLASSES[before], CLASSES[after]))


def made(kind, key=""):
    return verdict(kind, key=key) if kind else None


def test_the_table_holds_every_pair_of_kinds():
    assert {(a, b) for a, b, _ in pairs()} == set(itertools.product([None, *KINDS], repeat=2))


@pytest.mark.parametrize(("before", "after", "expected"), [row for row in pairs() if row[2] not in "-*"])
def test_every_pair_has_its_class(before, after, expected):
    """D7, D10: every pair of verdicts has one class, and what says nothing is never a change."""
    assert classify(made(before), made(after)) == expected


@pytest.mark.parametrize(("before", "after"), list(itertools.product(sorted(FAILING), repeat=2)))
def test_two_failures_are_one_only_if_key_and_kind_agree(before, after):
    same_kind = "still-failing" if before == after else "fails-differently"
    assert classify(made(before), made(after)) == same_kind
    assert classify(made(before, "one"), made(after, "other")) == "fails-differently"
    assert classify(made(before, "one"), made(after)) == "fails-differently"
    assert classify(made(before, "one"), made(after, "one")) == "still-failing"


def test_no_verdict_on_either_side_is_a_programming_error():
    with pytest.raises(ValueError, match="at least one side"):
        classify(None, None)


@pytest.mark.parametrize("blank", ["no-data", "not-applicable", "reference-failed", "flaky"])
@pytest.mark.parametrize("other", [None, *KINDS])
def test_what_says_nothing_steady_opens_and_closes_nothing(blank, other):
    opening_or_closing = {*NEWS, "fixed", "lost", "new-passing"}
    assert classify(made(blank), made(other)) not in opening_or_closing
    assert classify(made(other), made(blank)) not in opening_or_closing


def test_compare_pairs_by_trial_and_puts_the_worst_first():
    before = [verdict("pass", "c1"), verdict("pass", "c2"), verdict("hung", "c3", key="k"), verdict("pass", "c5")]
    after = [
        verdict("pass", "c1"),
        verdict("diverged", "c2", key="n"),
        verdict("crashed", "c4"),
        verdict("flaky", "c5"),
    ]
    found = [(change.case, change.change, change.before, change.after) for change in compare(before, after)]
    assert found == [
        ("c2", "regressed", "pass", "diverged"),
        ("c4", "new-failing", None, "crashed"),
        ("c3", "lost", "hung", None),
        ("c5", "flaky", "pass", "flaky"),
        ("c1", "still-passing", "pass", "pass"),
    ]
    assert compare(before, after)[0].after_key == "n"
    assert compare(before, after)[2].before_key == "k"


def test_a_trial_written_twice_counts_with_its_later_line():
    changes = compare([verdict("pass")], [verdict("no-data"), verdict("pass")])
    assert [change.change for change in changes] == ["still-passing"]


def test_a_failure_without_a_steady_verdict_before_it_is_named():
    """D5: what nobody can compare is named, not hidden."""
    before = [verdict("no-data", "c1"), verdict("flaky", "c2"), verdict("pass", "c3"), verdict("no-data", "c4")]
    after = [verdict("hung", "c1"), verdict("died", "c2"), verdict("hung", "c3"), verdict("pass", "c4")]
    assert [change.case for change in unknown_since(compare(before, after))] == ["c2", "c1"]


def test_every_class_has_its_place_in_the_order():
    of_one_trial = {expected for *_, expected in pairs()} - {"-", "*"} | {"still-failing", "fails-differently"}
    assert of_one_trial | {"represented"} == set(ORDER)


@pytest.mark.parametrize(
    ("kind_before", "key", "change"),
    [("pass", "k", "still-failing"), ("pass", "k-symptom", "still-failing"), ("pass", "other", "new-failing")],
)
def test_another_case_that_fails_by_a_known_cause_is_still_failing(kind_before, key, change):
    """One rule for the headline and for the exit code."""
    before = [verdict("diverged", "c1", key="k"), verdict(kind_before, "c2")]
    after = [verdict("diverged", "c1", key="k"), verdict("diverged", "c3", key=key)]
    names = {"k": frozenset(["k-symptom"])}
    found = {each.case: each.change for each in known_again(compare(before, after, names), names)}
    assert found == {"c1": "still-failing", "c2": "retired", "c3": change}


def test_a_failure_with_two_symptoms_is_still_failing_under_either():
    one = verdict("diverged", "c1", key="a").model_copy(update={"also": ("b",)})
    assert classify(one, made("nonfinite", "b")) == "still-failing"
    assert classify(made("nonfinite", "b"), one) == "still-failing"
    assert classify(one, made("nonfinite", "c")) == "fails-differently"


def test_a_failure_that_was_not_tried_again_is_represented_by_one_of_its_key_that_still_fails():
    before = [verdict("diverged", case, key="k") for case in ("c1", "c2")] + [verdict("diverged", "c3", key="other")]
    still = [verdict("diverged", "c1", key="k")]
    assert {change.case: change.change for change in compare(before, still)} == {
        "c1": "still-failing",
        "c2": "represented",
        "c3": "lost",
    }
    mended = [verdict("pass", "c1")]
    assert {change.case: change.change for change in compare(before, mended)} == {
        "c1": "fixed",
        "c2": "lost",
        "c3": "lost",
    }


def test_fails_alike_is_by_key_by_symptom_or_by_a_name_of_the_finding():
    old = verdict("diverged", "c1", key="finding")
    assert fails_alike(old, verdict("diverged", "c1", key="finding"))
    assert not fails_alike(old, verdict("diverged", "c1", key="symptom"))
    assert fails_alike(old.model_copy(update={"also": ("symptom",)}), verdict("diverged", "c1", key="symptom"))
    assert fails_alike(old, verdict("diverged", "c1", key="symptom"), {"finding": frozenset({"symptom"})})
    assert not fails_alike(old, verdict("pass", "c1"))
    assert not fails_alike(verdict("pass", "c1"), verdict("pass", "c1"))
