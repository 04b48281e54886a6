"""The search finds a change among answers that may be missing anywhere, and claims nothing that it did not see."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.bisect import Answer, OutOfTimeError, Searched, search

LETTERS: dict[str, Answer] = {"g": "good", "b": "bad", "u": "unknown"}

sequences = st.lists(st.sampled_from(list(LETTERS.values())), min_size=2, max_size=60)


def found(text: str, mended: bool = False) -> Searched:
    return search(len(text), lambda index: LETTERS[text[index]], "bad" if mended else "good")


@pytest.mark.parametrize(
    ("text", "status", "old", "new"),
    [
        ("gb", "found", 0, 1),
        ("ggggbbbb", "found", 3, 4),
        ("gbbbbbbb", "found", 0, 1),
        ("gggggggb", "found", 6, 7),
        ("gguuubbb", "found", 1, 5),
        ("guuuuuub", "found", 0, 7),
        ("uuggbbuu", "found", 3, 4),
        ("ggugubub", "found", 3, 5),
        ("gggg", "new-end", 3, None),
        ("gbgg", "new-end", 3, None),
        ("gggu", "new-end", 2, None),
        ("bbbb", "old-end", None, 0),
        ("ubbb", "old-end", None, 1),
        ("buuu", "old-end", None, 0),
        ("uuub", "unknown", None, 3),
        ("uuuu", "unknown", None, None),
    ],
)
def test_broke(text: str, status: str, old: int | None, new: int | None) -> None:
    """C3: an end that does not show it any more proves nothing, and is told instead of a first bad build."""
    result = found(text)
    assert (result.status, result.old, result.new) == (status, old, new)


@pytest.mark.parametrize(
    ("text", "status", "old", "new"),
    [
        ("bbbg", "found", 2, 3),
        ("bugg", "found", 0, 2),
        ("bbbb", "new-end", 3, None),
        ("gggg", "old-end", None, 0),
    ],
)
def test_mended_is_the_same_search_the_other_way(text: str, status: str, old: int | None, new: int | None) -> None:
    result = found(text, mended=True)
    assert (result.status, result.old, result.new) == (status, old, new)


def test_both_ends_are_asked_first_and_the_newest_before_the_oldest() -> None:
    assert list(found("ggggbbbb").answers)[:2] == [7, 0]
    assert list(found("gggggggg").answers) == [7], "not failing now: nothing else needs to be run"


@given(sequences, st.sampled_from(["good", "bad"]))
def test_of_any_answers_only_what_was_seen_is_claimed(answers: list[Answer], old_answer: str) -> None:
    asked: list[int] = []

    def ask(index: int) -> Answer:
        asked.append(index)
        return answers[index]

    result = search(len(answers), ask, "good" if old_answer == "good" else "bad")
    new_answer = "bad" if old_answer == "good" else "good"
    assert len(asked) == len(set(asked)), "nothing is asked twice"
    assert list(result.answers.items()) == [(index, answers[index]) for index in asked]
    unknown = sum(answers[index] == "unknown" for index in asked)
    assert len(asked) <= math.log2(len(answers)) + unknown + 3
    if result.old is not None:
        assert answers[result.old] == old_answer
    if result.new is not None:
        assert answers[result.new] == new_answer
    if result.status == "found":
        assert result.old is not None
        assert result.new is not None
        assert result.old < result.new
        between = range(result.old + 1, result.new)
        assert all(index in asked and answers[index] == "unknown" for index in between)
    assert result.status == expected_status(answers, old_answer)


def expected_status(answers: list[Answer], old_answer: str) -> str:
    known = [answer for answer in answers if answer != "unknown"]
    if not known:
        return "unknown"
    if known[-1] == old_answer:
        return "new-end"
    if known[0] == old_answer:
        return "found"
    return "old-end" if len(known) > 1 or answers[0] != "unknown" else "unknown"


@given(st.integers(2, 200), st.data())
def test_one_change_and_no_unknowns_are_found_exactly(count: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, count - 1))
    result = search(count, lambda index: "bad" if index >= first_bad else "good")
    assert (result.status, result.old, result.new) == ("found", first_bad - 1, first_bad)


@given(sequences)
def test_what_comes_next_was_announced(answers: list[Answer]) -> None:
    announced: list[tuple[int, int, tuple[int, ...]]] = []
    asked: list[int] = []

    def around(old: int, new: int, ahead: Sequence[int]) -> None:
        announced.append((old, new, tuple(ahead)))

    def ask(index: int) -> Answer:
        if announced:
            old, new, ahead = announced[-1]
            assert index == ahead[0]
            assert len(ahead) <= 3
            assert all(old < item < new for item in ahead)
            if len(announced) > 1 and answers[asked[-1]] != "unknown":
                assert index in announced[-2][2], "it was being installed while the one before ran"
        asked.append(index)
        return answers[index]

    search(len(answers), ask, around=around)


def test_out_of_time_keeps_what_is_known() -> None:
    asked: list[int] = []

    def ask(index: int) -> Answer:
        if len(asked) == 3:
            raise OutOfTimeError
        asked.append(index)
        return "bad" if index >= 40 else "good"

    result = search(100, ask)
    assert result.status == "out-of-time"
    assert (result.old, result.new) in ((0, 49), (0, 50))


def test_one_build_is_no_range() -> None:
    with pytest.raises(ValueError, match="two elements"):
        search(1, lambda index: "good")
