"""The result of a bisection in words: no more than was run, and what nobody could check is marked so."""

from pathlib import Path

import pytest

from d3bot.bisect import Memo, conclusion, describe
from d3bot.spec import Bisection, Point

GOOD = Point(version="3.6.0", spec="k with keras==3.6.0", answer="good", seen="3/3", commit="aaaa")
GAP = Point(version="3.6.1", spec="", answer="gap", reason="yanked: broken")
BAD = Point(version="3.7.0", spec="k with keras==3.7.0", answer="bad", seen="2/3", reason="diverged: off by 1")


@pytest.mark.parametrize(
    ("status", "direction", "good", "bad", "words"),
    [
        ("found", "broke", GOOD, BAD, "Last good keras 3.6.0, first bad 3.7.0."),
        ("found", "mended", GOOD, BAD, "Last bad keras 3.7.0, first good 3.6.0."),
        ("already-failing", "broke", None, BAD, "Already failing at the oldest keras that could be run, 3.7.0."),
        ("not-failing-now", "broke", GOOD, None, "Not failing now: keras 3.6.0, the newest that could be run, passes."),
        (
            "still-failing",
            "mended",
            None,
            BAD,
            "Still failing: keras 3.7.0, the newest that could be run, fails in the same way.",
        ),
        (
            "never-failed",
            "mended",
            GOOD,
            None,
            "Not failing at the oldest keras that could be run, 3.6.0: there is nothing that was mended.",
        ),
        ("out-of-time", "broke", GOOD, BAD, "Time is up: keras is narrowed to good 3.6.0 and bad 3.7.0."),
        ("out-of-time", "broke", None, BAD, "Time is up: keras is narrowed to bad 3.7.0."),
        ("out-of-time", "broke", None, None, "Time is up before both ends were run."),
        ("unknown", "broke", None, BAD, "No answer: no two builds of keras gave one."),
    ],
)
def test_conclusion(status: str, direction: str, good: Point | None, bad: Point | None, words: str) -> None:
    result = Bisection(subject="keras", direction=direction, status=status, good=good, bad=bad)
    assert conclusion(result) == words


def test_everything_that_it_rests_on_is_listed() -> None:
    result = Bisection(
        subject="keras",
        direction="broke",
        status="found",
        good=GOOD,
        bad=BAD,
        between=(GAP,),
        points=(GOOD, GAP, BAD),
        compare="https://github.com/keras-team/keras/compare/v3.6.0...v3.7.0",
        compare_checked=None,
        rechecked=("python repro.py on 3.6.0: exit 1",),
        agrees=False,
        notes=("3.5.0 is older than what the index still has",),
    )
    assert describe(result) == [
        "Last good keras 3.6.0, first bad 3.7.0, with 1 between that gave no answer.",
        "good: aaaa",
        f"changes: {result.compare} (not checked: upstream could not be asked)",
        "python repro.py on 3.6.0: exit 1",
        "The script does not agree with the answers above: take them as unverified.",
        "note: 3.5.0 is older than what the index still has",
        "  3.6.0                  good 3/3",
        "  3.6.1                  gap: yanked: broken",
        "  3.7.0                  bad 2/3: diverged: off by 1",
    ]


def test_a_memo_is_read_back_and_a_broken_one_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "bisect" / "memo.json"
    Memo(path).put(GOOD)
    Memo(path).put(BAD)
    assert Memo(path).get(GOOD.spec) == GOOD
    assert Memo(path).get(BAD.spec) == BAD
    path.write_text('{"x": 1')
    assert Memo(path).get(GOOD.spec) is None
    Memo(path).put(BAD)
    assert Memo(path).get(BAD.spec) == BAD
