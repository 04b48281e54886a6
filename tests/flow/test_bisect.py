"""Bisection over builds that are installed from an index: a toy library whose reduction breaks at a known night."""

import subprocess
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest
from toy_index import ELSEWHERE, FIRST, RAISES, SUM, ToyIndex, serve

from d3bot.bisect import Memo, conclusion, describe
from d3bot.builds import Index, resolve
from d3bot.builds.candidates import End, read_end, span
from d3bot.builds.store import kept_environments, remove
from d3bot.builds.upstream import Resolves
from d3bot.flow.bisect import question_of
from d3bot.flow.bisector import Means, bisect
from d3bot.spec import Attempt, Bisection, Build, SpecError, Verdict

TODAY = date(2026, 10, 30)
KEY = "torch-toy-diverged"
SCRIPT = """
import sys
import torch
got = torch.all_reduce([1.0, 2.0, 3.0])
print(got)
sys.exit(0 if got == [6.0] * 3 else 1)
"""


def verdict(kind: str, key: str = "", reason: str = "") -> Verdict:
    return Verdict(
        trial="t0", framework="torch", build="b0", case="c0", setting="toy(world=3)", kind=kind, reason=reason, key=key
    )


FAILURE = verdict("diverged", KEY, "the first rank's value")


def run(build: Build) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build.python, "-c", SCRIPT], capture_output=True, text=True)


def tries(build: Build) -> Sequence[Verdict]:
    """Three tries of the toy's trial; what is wrong decides the key, as it does for a real library."""
    done = run(build)
    if done.returncode == 0:
        one = verdict("pass", "", "equal")
    elif "RuntimeError" in done.stderr:
        one = verdict("crashed", "torch-toy-crashed", "RuntimeError: out of order")
    else:
        one = FAILURE
    return [one] * 3


def script(build: Build, failure: Verdict) -> Attempt:
    code = run(build).returncode
    return Attempt(how="script", build=build.label, failed=code == 1, outcome=f"exit {code}")


class Lab:
    """A toy index, a cache, and a bisection over them that counts what it does."""

    def __init__(self, index: ToyIndex, cache: Path):
        self.toy = index
        self.cache = cache
        self.index = Index(url=index.url, torch=index.url, torch_nightly=index.url)
        self.tried: list[str] = []
        self.most_kept = 0
        index.add("numpy", "2.4.6")

    def night(self, day: int, reduce: str = SUM, count: int | None = None, **options: object) -> None:
        commit = f"v1.0-{count if count is not None else day}-g{day:07x}"
        self.toy.add_torch(f"9.9.0.dev202610{day:02}", reduce, commit, **options)

    def build(self, day: int) -> Build:
        return self.resolve(f"torch@2026-10-{day:02}")

    def resolve(self, spec: str) -> Build:
        return resolve(spec, self.cache, index=self.index, today=TODAY)

    def try_on(self, build: Build) -> Sequence[Verdict]:
        self.tried.append(build.version[-2:])
        self.most_kept = max(self.most_kept, len(kept_environments(self.cache)))
        return tries(build)

    def discard(self, build: Build) -> None:
        remove(Path(build.python).parent.parent)

    def bisect(self, good: str | None, bad: str | None, of: int, seconds: float = 1e9) -> Bisection:
        question = question_of(self.build(of), FAILURE, self.index, good, bad)
        means = Means(
            resolve=self.resolve,
            try_on=self.try_on,
            memo=Memo(self.cache / "memo.json"),
            script=script,
            resolves=lambda repository, reference: None,
            discard=self.discard,
            seconds=seconds,
        )
        return bisect(question, means)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    folder = tmp_path / "index"
    folder.mkdir()
    with serve(folder) as index:
        yield Lab(index, tmp_path / "cache")


def test_i10_the_first_bad_night_among_gaps_and_unknowns_and_then_from_memory(lab: Lab) -> None:
    for day in (10, 11, 12, 13):
        lab.night(day)
    lab.night(14, RAISES)  # fails too, but otherwise: unknown (I10)
    lab.night(15, tag=ELSEWHERE)  # partial: a gap (I1)
    for day in (17, 18, 19, 20):  # 16 is missing
        lab.night(day, FIRST, count=5 if day == 19 else None)

    result = lab.bisect("2026-10-10", "9.9.0.dev20261020", of=20)
    assert result.status == "found"
    assert (result.good and result.good.version, result.bad and result.bad.version) == (
        "9.9.0.dev20261013",
        "9.9.0.dev20261017",
    )
    assert [(point.version[-2:], point.answer) for point in result.between] == [("14", "unknown"), ("15", "gap")]
    assert "RuntimeError" in result.between[0].reason
    assert "none for this Python" in result.between[1].reason
    assert {point.seen for point in result.points if point.answer in ("good", "bad")} == {"3/3"}
    assert result.compare == "https://github.com/pytorch/pytorch/compare/000000d...0000011"
    assert result.compare_checked is None
    assert "not checked" in " ".join(describe(result)), "I4: nothing is claimed of commits nobody could look up"
    assert result.rechecked == (
        "python repro.py on 9.9.0.dev20261013: exit 0",
        "python repro.py on 9.9.0.dev20261017: exit 1",
    )
    assert result.agrees is True
    assert lab.tried[:2] == ["20", "10"], "both ends first"
    assert len(lab.tried) == len(set(lab.tried))
    assert lab.most_kept <= 5, "environments outside the range are thrown away"
    assert conclusion(result) == (
        "Last good torch 9.9.0.dev20261013, first bad 9.9.0.dev20261017, with 2 between that gave no answer."
    )

    lab.tried.clear()
    assert lab.bisect("2026-10-10", "2026-10-20", of=20).model_copy(update={"points": result.points}) == result
    assert lab.tried == [], "everything is remembered"


def test_i10_one_try_of_three_that_fails_alike_is_bad_and_one_that_fails_otherwise_is_unknown(lab: Lab) -> None:
    for day in (10, 11, 12, 13):
        lab.night(day)
    equal, other = verdict("pass", "", "equal"), verdict("crashed", "torch-toy-crashed", "RuntimeError")
    answers = {"10": [equal] * 3, "11": [equal, other, equal], "12": [equal, equal, FAILURE], "13": [FAILURE] * 3}
    means = Means(
        resolve=lab.resolve,
        try_on=lambda build: answers[build.version[-2:]],
        memo=Memo(lab.cache / "memo.json"),
        resolves=lambda repository, reference: None,
    )
    result = bisect(question_of(lab.build(13), FAILURE, lab.index, "2026-10-10", "2026-10-13"), means)
    assert [(point.version[-2:], point.answer, point.seen) for point in result.points] == [
        ("10", "good", "3/3"),
        ("11", "unknown", "2/3"),
        ("12", "bad", "1/3"),
        ("13", "bad", "3/3"),
    ]


def test_a_bisection_that_is_stopped_goes_on_from_what_it_knows(lab: Lab) -> None:
    for day in (10, 11, 12):
        lab.night(day)
    lab.night(13, FIRST)
    question = question_of(lab.build(13), FAILURE, lab.index, "2026-10-10", "2026-10-13")
    ran: list[str] = []

    def try_on(build: Build) -> Sequence[Verdict]:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(build.version[-2:])
        return tries(build)

    means = Means(resolve=lab.resolve, try_on=try_on, memo=Memo(lab.cache / "memo.json"))
    with pytest.raises(KeyboardInterrupt):
        bisect(question, means)
    assert ran == ["13", "10"]
    assert lab.bisect("2026-10-10", "2026-10-13", of=13).status == "found"
    assert not {"13", "10"} & set(lab.tried), "what was answered is not run again"


def test_results_that_are_no_pair_and_the_other_direction(lab: Lab) -> None:
    for day in (10, 11):
        lab.night(day, FIRST)
    for day in (12, 13):
        lab.night(day)
    mended = lab.bisect("2026-10-13", "2026-10-10", of=10)
    assert mended.direction == "mended"
    assert conclusion(mended) == "Last bad torch 9.9.0.dev20261011, first good 9.9.0.dev20261012."
    assert mended.agrees is True
    newest = lab.bisect(None, "2026-10-10", of=10)
    assert newest.good == mended.good, "an end that is left out is the newest there is (I6)"
    cases = [
        ("2026-10-10", "2026-10-11", "already-failing", "Already failing at the oldest torch"),
        ("2026-10-12", "2026-10-13", "not-failing-now", "Not failing now"),
        ("2026-10-11", "2026-10-10", "still-failing", "Still failing"),
        ("2026-10-13", "2026-10-12", "never-failed", "Not failing at the oldest"),
    ]
    for good, bad, status, words in cases:
        result = lab.bisect(good, bad, of=10)
        assert result.status == status
        assert conclusion(result).startswith(words)
        assert not result.compare


def test_older_code_on_a_later_night_is_flagged(lab: Lab) -> None:
    lab.night(10, count=100)
    lab.night(11, count=90)
    lab.night(12, FIRST, count=110)
    result = lab.bisect("2026-10-10", "2026-10-12", of=12)
    assert result.status == "found"
    assert [note.partition(":")[0] for note in result.notes] == ["older-code", "re-sorted"]
    assert "9.9.0.dev20261011" in result.notes[0]


def test_i5_i6_the_range_is_clipped_to_what_exists_and_says_so(lab: Lab) -> None:
    lab.night(10)
    lab.night(11, FIRST)
    result = lab.bisect("2026-01-01", "2026-12-31", of=11)
    assert result.status == "found"
    assert result.notes == (
        "2026-01-01 is older than what the index still has; the range begins at 20261010",
        "2026-12-31 is not there yet; the range ends at the newest, 20261011",
    )


def test_out_of_time_says_how_far_it_came_and_goes_on_later(lab: Lab) -> None:
    for day in (10, 11, 12):
        lab.night(day)
    lab.night(13, FIRST)
    assert lab.bisect("2026-10-10", "2026-10-13", of=13, seconds=-1).status == "out-of-time"
    assert lab.tried == []
    assert lab.bisect("2026-10-10", "2026-10-13", of=13).status == "found"


@pytest.fixture
def build(lab: Lab) -> Build:
    for day in (10, 11):
        lab.night(day)
    lab.toy.add_torch("9.8.0")
    return Build(
        spec="torch@nightly", framework="torch", name="torch", version="9.9.0.dev20261010", python="/e/bin/python"
    )


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("2026-10-10", "9.9.0.dev20261010", "are the same build"),  # I9
        ("2027-10-10", "2027-10-11", "fewer than two builds"),  # I9, I11: nothing to search is an error, not a result
        ("9.8.0", "2026-10-11", "one is a night and one a release"),
        ("keras==3.7.0", "2026-10-11", "are of two distributions"),
        ("yesterday", "2026-10-11", "neither a version, nor a day"),
    ],
)
def test_i9_i11_a_range_that_is_none_is_refused_in_words(
    lab: Lab, build: Build, good: str, bad: str, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        question_of(build, FAILURE, lab.index, good, bad)
    assert words in str(caught.value)


def test_an_environment_as_it_is_has_no_other_versions(lab: Lab, build: Build) -> None:
    fixed = build.model_copy(update={"source": "python:/e/bin/python", "spec": "python:/e/bin/python"})
    with pytest.raises(SpecError, match="so there are no other versions of torch to try"):
        span(fixed, read_end("2026-10-10"), read_end("2026-10-11"), lab.index)
    lab.toy.add("keras", "3.7.0")
    lab.toy.add("keras", "3.8.0")
    found = span(fixed, read_end("keras==3.7.0"), read_end("keras==3.8.0"), lab.index)
    assert [option.spec for option in found.options] == [
        f"python:{build.python} with keras==3.7.0",
        f"python:{build.python} with keras==3.8.0",
    ]


@pytest.mark.parametrize(
    ("text", "name", "night"),
    [
        ("2026-10-10", "", True),
        ("20261010", "", True),
        ("9.9.0.dev20261010+cpu", "", True),
        ("9.8.0", "", False),
        ("Keras==3.8.0", "keras", False),
    ],
)
def test_an_end_as_a_person_writes_it(text: str, name: str, night: bool) -> None:
    end: End = read_end(text)
    assert (end.name, end.night) == (name, night)


def test_k4_a_script_that_does_not_show_it_leaves_the_result_unverified(lab: Lab) -> None:
    lab.night(10)
    lab.night(17, FIRST)
    question = question_of(lab.build(17), FAILURE, lab.index, "2026-10-10", "2026-10-17")

    def silent(build: Build, failure: Verdict) -> Attempt:
        return Attempt(how="script", build=build.label, failed=False, outcome="exit 0")

    means = Means(
        resolve=lab.resolve,
        try_on=tries,
        memo=Memo(lab.cache / "memo.json"),
        script=silent,
        resolves=lambda repository, reference: None,
    )
    result = bisect(question, means)
    assert (result.status, result.agrees) == ("found", False)
    assert "take them as unverified" in " ".join(describe(result))


def test_i4_a_commit_that_upstream_does_not_know_is_not_shown(lab: Lab) -> None:
    lab.night(10)
    lab.night(17, FIRST)
    question = question_of(lab.build(17), FAILURE, lab.index, "2026-10-10", "2026-10-17")
    memo = Memo(lab.cache / "memo.json")

    def shown(resolves: Resolves) -> tuple[bool, bool | None]:
        result = bisect(question, Means(resolve=lab.resolve, try_on=tries, memo=memo, resolves=resolves))
        return bool(result.compare), result.compare_checked

    assert shown(lambda repository, reference: True) == (True, True)
    assert shown(lambda repository, reference: None) == (True, None)
    assert shown(lambda repository, reference: reference != "0000011") == (False, False)


def test_a_night_of_older_code_is_taken_in_the_order_of_the_code(lab: Lab) -> None:
    lab.night(10)
    lab.night(11)
    lab.night(12, count=9)  # built from older code than the two nights before
    lab.night(13, FIRST)
    lab.night(14, FIRST)
    result = lab.bisect("2026-10-10", "2026-10-14", of=14)
    assert result.status == "found"
    assert (result.good and result.good.version[-2:], result.bad and result.bad.version[-2:]) == ("11", "13")
    assert result.compare.endswith("/compare/000000b...000000d")
    assert [point.version[-2:] for point in result.points] == ["12", "10", "11", "13", "14"]
    assert any(note.startswith("re-sorted") for note in result.notes)
    assert any(note.startswith("older-code") for note in result.notes)
    assert len(lab.tried) == len(set(lab.tried)), "nothing is run twice for the new order"
