import pytest

from d3bot.findings import group_failing
from d3bot.findings.group import one_cause
from tests.findings.samples import case, verdict


def test_failures_of_one_key_are_one_group_and_nothing_else_is():
    verdicts = [verdict("diverged", "c1", key="k-a"), verdict("pass", "c2"), verdict("flaky", "c3", key="k-a")]
    verdicts += [verdict("hung", "c4", key="k-b"), verdict("diverged", "c5", key="k-a")]
    found = [(group.key, [seen.case for seen in group.members]) for group in group_failing(verdicts, {})]
    assert found == [("k-a", ["c1", "c5"]), ("k-b", ["c4"])]


def test_the_representative_is_the_smallest_case():
    big, small, long = case(3), case(1), case(1, steps=4)
    cases = {each.id: each for each in (big, small, long)}
    order = [(small, "ddp(world=2)"), (small, "fsdp1(world=2)"), (long, "ddp(world=2)"), (big, "ddp(world=2)")]
    verdicts = [verdict("diverged", each.id, setting, key="k") for each, setting in reversed(order)]
    verdicts.append(verdict("diverged", "c-unknown", "ddp(world=2)", key="k"))
    (group,) = group_failing(verdicts, cases)
    assert group.representative.case == small.id
    assert [(seen.case, seen.setting) for seen in group.members] == [
        *((each.id, setting) for each, setting in order),
        ("c-unknown", "ddp(world=2)"),
    ]


def test_failures_of_which_nothing_is_known_are_never_one_group():
    key = "torch-ddp-hung-unclassified-00000000"
    groups = group_failing([verdict("hung", f"c{i}", key=key) for i in range(3)] + [verdict("died", "c9")], {})
    assert [len(group.members) for group in groups] == [1, 1, 1, 1]
    assert all(group.catch_all for group in groups)


@pytest.mark.parametrize(
    ("names", "causes"),
    [
        ((), []),
        (("a", "b"), [[0], [1]]),
        (("ax", "b", "xc"), [[0, 2], [1]]),
        (("a", "b", "ab"), [[0, 1, 2]]),
        (("ab", "bc", "cd", "e"), [[0, 1, 2], [3]]),
    ],
)
def test_a8_what_shares_a_name_is_one_cause_over_others_too(names, causes):
    assert one_cause([set(each) for each in names]) == causes
