from hypothesis import given
from hypothesis import strategies as st

from d3bot.bisect import by_commit

commits = st.lists(st.none() | st.tuples(st.sampled_from(["v1", "v2"]), st.integers(0, 9)), max_size=12)


@given(commits)
def test_builds_of_one_tag_rise(dated):
    order = by_commit(dated)
    assert sorted(order) == list(range(len(dated)))
    for tag in ("v1", "v2"):
        counts = [dated[at][1] for at in order if dated[at] and dated[at][0] == tag]
        assert counts == sorted(counts)


@given(commits)
def test_what_names_no_commit_keeps_its_order(dated):
    unknown = [at for at in by_commit(dated) if dated[at] is None]
    assert unknown == sorted(unknown)


@given(commits)
def test_what_rises_already_is_left_as_it_is(dated):
    once = [dated[at] for at in by_commit(dated)]
    assert by_commit(once) == list(range(len(once)))


def test_older_code_moves_before_the_newer_and_nothing_else_moves():
    assert by_commit([("v1", 10), None, ("v1", 9), ("v2", 3), ("v1", 12)]) == [2, 0, 1, 3, 4]
