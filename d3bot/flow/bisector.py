"""The bisection of one failure at work: builds installed ahead, run, judged by their key, remembered, thrown away."""

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

from d3bot.bisect import Answer, Memo, OutOfTimeError, Searched, by_commit, search
from d3bot.builds import NoDataError
from d3bot.builds.candidates import Option, Span
from d3bot.builds.upstream import (
    REPOSITORIES,
    Resolves,
    ask_github,
    compare_link,
    older_code,
    place_of_commit,
    reference,
)
from d3bot.engine.jobs import EngineError
from d3bot.spec import Attempt, Bisection, BisectStatus, Build, Point, Verdict

Resolve = Callable[[str], Build]
"""From a build spec to an installed Build; NoDataError if it cannot be had."""
Try = Callable[[Build], Sequence[Verdict]]
"""Run the trial on a build as often as it takes, each time in fresh processes; the verdicts in order."""
Script = Callable[[Build, Verdict], Attempt]
"""Run `python repro.py` on a build; whether it fails there as the verdict says."""

_BROKE: dict[str, BisectStatus] = {"new-end": "not-failing-now", "old-end": "already-failing"}
_MENDED: dict[str, BisectStatus] = {"new-end": "still-failing", "old-end": "never-failed"}


@dataclass(frozen=True)
class Question:
    """What is bisected: a failure by its key, over a span of builds."""

    failure: Verdict | None
    """The failing verdict whose key is looked for; None if the trial fails nowhere that is known."""
    span: Span
    direction: Literal["broke", "mended"]

    @property
    def bad_end(self) -> Option:
        """The build that is expected to fail."""
        return self.span.options[-1 if self.direction == "broke" else 0]


@dataclass(frozen=True)
class Means:
    """The shells that a bisection works through; tests hand in others."""

    resolve: Resolve
    try_on: Try
    memo: Memo
    script: Script | None = None
    resolves: Resolves = ask_github
    discard: Callable[[Build], None] = lambda build: None
    """Throw a build's environment away that only this bisection needed."""
    log: Callable[[str], None] = lambda line: None
    seconds: float = float("inf")


def bisect(question: Question, means: Means) -> Bisection:
    """Return where a failure came or went among the builds of a span, each answer resting on builds that were run.

    The same key in any of the tries is bad, a pass in all of them is good, anything else is unknown.
    """
    with _Bisector(question, means) as bisector:
        return bisector.result()


class _Bisector:
    """One bisection at work: which builds are installed, which answers are known."""

    def __init__(self, question: Question, means: Means):
        self._question = question
        self._means = means
        self._options = question.span.options
        self._order = list(range(len(self._options)))
        """The options from the oldest code to the newest: as the index dates them, until commits say otherwise."""
        self._between: tuple[int, ...] = ()
        self._points: dict[int, Point] = {}
        self._key = question.failure.key if question.failure else ""
        self._builds: dict[int, Future[Build]] = {}
        self._installer = ThreadPoolExecutor(1, thread_name_prefix="d3bot-install")
        self._ends = time.monotonic() + means.seconds

    def __enter__(self) -> "_Bisector":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._installer.shutdown(wait=True, cancel_futures=True)

    def result(self) -> Bisection:
        """Search; if the commits of what was run say that nights are out of order, search again in that of the code.

        Answers are kept, so that each further search asks only what the new order makes necessary.
        """
        found = self._search()
        while (order := by_commit([self._commit(index) for index in range(len(self._options))])) != self._order:
            self._order = order
            found = self._search()
        return self._told(found)

    def _search(self) -> Searched:
        old: Literal["good", "bad"] = "good" if self._question.direction == "broke" else "bad"
        order = self._order
        found = search(
            len(order),
            lambda place: self._ask(order[place]),
            old,
            lambda first, last, ahead: self._around(order[first], order[last], [order[place] for place in ahead]),
        )
        self._between = () if found.old is None or found.new is None else tuple(order[found.old + 1 : found.new])
        return replace(
            found,
            old=None if found.old is None else order[found.old],
            new=None if found.new is None else order[found.new],
        )

    def _commit(self, index: int) -> tuple[str, int] | None:
        point = self._points.get(index)
        return place_of_commit(point.commit) if point else None

    def _ask(self, index: int) -> Answer:
        if index not in self._points:
            self._points[index] = self._point(index)
            point = self._points[index]
            self._means.log(f"{point.version}: {point.answer} {point.seen} {point.reason}".rstrip())
        answer = self._points[index].answer
        return "unknown" if answer == "gap" else answer

    def _point(self, index: int) -> Point:
        option = self._options[index]
        if option.gap:
            return Point(version=option.version, spec="", answer="gap", reason=option.gap[:500])
        known = self._means.memo.get(option.spec)
        if known is not None:
            return known
        if time.monotonic() > self._ends:
            raise OutOfTimeError
        try:
            build = self._build(index)
            verdicts = self._means.try_on(build)
        except (NoDataError, EngineError) as error:
            return Point(version=option.version, spec=option.spec, answer="unknown", reason=str(error)[:500])
        point = self._judged(option, build, verdicts)
        if not any(verdict.kind == "no-data" for verdict in verdicts):
            self._means.memo.put(point)
        return point

    def _judged(self, option: Option, build: Build, verdicts: Sequence[Verdict]) -> Point:
        same = [verdict for verdict in verdicts if self._key and verdict.key == self._key]
        passed = [verdict for verdict in verdicts if verdict.kind == "pass"]
        if same:
            answer: Answer = "bad"
        else:
            answer = "good" if verdicts and len(passed) == len(verdicts) else "unknown"
        count = len(same) if same else len(passed)
        other = next((verdict for verdict in verdicts if verdict not in same and verdict not in passed), None)
        shown = same[0] if same else other
        return Point(
            version=option.version,
            spec=option.spec,
            answer=answer,
            seen=f"{count}/{len(verdicts)}",
            reason=f"{shown.kind}: {shown.reason}"[:500] if shown else "",
            label=build.label,
            commit=build.commit if build.name == self._question.span.subject else "",
        )

    def _build(self, index: int) -> Build:
        if index not in self._builds:
            self._builds[index] = self._installer.submit(self._means.resolve, self._options[index].spec)
        return self._builds[index].result()

    def _around(self, old: int, new: int, ahead: Sequence[int]) -> None:
        """Throw away what lies outside the range, and install what may be asked next while this one runs."""
        for index in [index for index in self._builds if index not in (old, new, *ahead)]:
            future = self._builds.pop(index)
            if not future.cancel() and future.exception() is None:
                self._means.discard(future.result())
        for index in ahead:
            option = self._options[index]
            if not option.gap and index not in self._builds and self._means.memo.get(option.spec) is None:
                self._builds[index] = self._installer.submit(self._means.resolve, option.spec)

    def _told(self, found: Searched) -> Bisection:
        question = self._question
        broke = question.direction == "broke"
        old = self._points.get(found.old) if found.old is not None else None
        new = self._points.get(found.new) if found.new is not None else None
        good, bad = (old, new) if broke else (new, old)
        status: BisectStatus = "unknown"
        if found.status in ("found", "out-of-time"):
            status = "found" if found.status == "found" else "out-of-time"
        elif found.status in ("new-end", "old-end"):
            status = (_BROKE if broke else _MENDED)[found.status]
        result = Bisection(
            subject=question.span.subject,
            direction=question.direction,
            status=status,
            key=self._key,
            good=good,
            bad=bad,
            points=tuple(self._points[index] for index in self._order if index in self._points),
            notes=(*question.span.notes, *self._inversions(), *self._resorted()),
        )
        if status != "found" or found.old is None or found.new is None or old is None or new is None:
            return result
        between = tuple(self._points[index] for index in self._between)
        compare, checked = self._compare(old, new)
        rechecked, agrees = self._recheck(found.old, found.new, broke)
        return result.model_copy(
            update={
                "between": between,
                "compare": compare,
                "compare_checked": checked,
                "rechecked": rechecked,
                "agrees": agrees,
            }
        )

    def _inversions(self) -> list[str]:
        """Return a note for each build that is known to be of older code than one before it."""
        points = [self._points[index] for index in sorted(self._points) if self._points[index].commit]
        return [
            f"older-code: {after.version} is of {after.commit}, older than {before.version} of {before.commit}"
            for before, after in itertools.pairwise(points)
            if older_code(before.commit, after.commit)
        ]

    def _resorted(self) -> tuple[str, ...]:
        if self._order == sorted(self._order):
            return ()
        return ("re-sorted: the builds are taken in the order of their commits, which is not that of their nights",)

    def _compare(self, old: Point, new: Point) -> tuple[str, bool | None]:
        """Return the compare link and whether both ends exist upstream; none for one that does not (I4)."""
        subject = self._question.span.subject
        first, last = (reference(subject, point.version, point.commit) for point in (old, new))
        link = compare_link(subject, first, last)
        if not link or first == last:
            return "", None
        known = [self._means.resolves(REPOSITORIES[subject], end) for end in (first, last)]
        if False in known:
            return "", False
        return link, True if all(known) else None

    def _recheck(self, old: int, new: int, broke: bool) -> tuple[tuple[str, ...], bool | None]:
        """Run the script on both ends: it must fail on the bad one and end with 0 on the good one (K4)."""
        failure = self._question.failure
        if self._means.script is None or failure is None:
            return (), None
        lines, agrees = [], True
        for index, should_fail in ((old, not broke), (new, broke)):
            version = self._options[index].version
            try:
                attempt = self._means.script(self._build(index), failure)
            except (NoDataError, EngineError) as error:
                lines.append(f"python repro.py on {version}: could not be run: {error}"[:500])
                agrees = False
                continue
            lines.append(f"python repro.py on {version}: {attempt.outcome}")
            agrees &= attempt.failed if should_fail else attempt.outcome == "exit 0"
        return tuple(lines), agrees
