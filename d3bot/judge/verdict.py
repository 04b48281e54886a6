"""The judge: two observations in, one judgement out."""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from d3bot.judge.bounds import floors
from d3bot.judge.compare import Difference, compare
from d3bot.judge.diagnose import Clues, diagnose
from d3bot.judge.vacuity import Vacuity, vacuity
from d3bot.spec import AFTER, ArrayName, Arrays, ErrorReport, First, Kind, Observation, RankObservation, parse_name

_REFUSAL = re.compile(
    r"not (yet )?(supported|implemented)|does(n't| not) support|unsupported|no sharding strategy|"
    r"does not have a sharding strategy|only supports?\b|cannot (be evenly sharded|(un)?flatten unevenly sharded)|"
    r"no working C\+\+ compiler",
    re.IGNORECASE,
)
_SECONDARY = re.compile(
    r"connection (closed|reset|refused)|closed by peer|broken pipe|socket|timed? ?out|aborted|cancell?ed|heartbeat|"
    r"unavailable|remote process|got 0 bytes",
    re.IGNORECASE,
)
_DISK_FULL = "No space left on device"
_TOGETHER = 0.5
"""Seconds within which errors of several ranks count as one event, whose order is chance."""
_PYTHON_LIBRARY = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3[^/]*/")
_NODE = "[[{{node"
_DECORATION = re.compile(r"^(\{\{function_node [^}]*\}\} *|\(\d+\) [A-Z_]+: *)|( \[Op:\w+\])?( name:)?$")
"""What TensorFlow puts around the words of an error: where it was raised, its code, the operation."""
_STACK_LINE = re.compile(r'File "(?P<path>[^"]+)", line \d+ in (?P<function>\S+)')


@dataclass(frozen=True)
class Judgement:
    """A verdict before it has a key: what happened, where first, how far, and what it means."""

    kind: Kind
    reason: str
    first: First | None = None
    error: float | None = None
    bound: float | None = None
    diagnosis: str = ""
    pattern: str = ""
    """The diagnosis as a stable word."""
    detail: str = ""
    report: ErrorReport | None = None
    """The exception, or for a hang the library frames of its stacks, for the key."""
    differences: tuple[Difference, ...] = ()
    """Every array's comparison, the earliest first."""
    tightest: float = 0.0
    """Largest error / bound among the bounded arrays that pass."""
    vacuous: bool = False
    """Whether nothing differed in a case that could not have shown a fault."""


def judge(
    reference: Observation,
    distributed: Observation,
    exact: Callable[[ArrayName], bool],
    world: int,
    parts: int,
    packages: Sequence[str],
    clues: Clues | None = None,
    rounding: float = 0.0,
) -> Judgement:
    """Return what the two sides of a trial say about the library.

    `rounding` is the relative rounding unit of a lower type that the setting's numbers pass through, 0 for none.

    `clues` are for the diagnosis alone: no kind depends on them.
    """
    arrays = reference.ranks[0].arrays
    if not reference.ok or arrays is None:
        return _reference_failed(reference.ranks[0])
    returned = [rank.arrays for rank in distributed.ranks if rank.arrays is not None]
    unknown = _unknown_name([arrays, *reference.noise, *returned])
    if unknown:
        return Judgement("no-data", f"the script returned an array that no judge knows: {unknown}")
    infinite = [name for name in sorted(arrays, key=parse_name) if not np.isfinite(arrays[name]).all()]
    if infinite:
        return Judgement("reference-failed", f"one process itself is not finite: {infinite[0]}")
    if not distributed.ok:
        return _broken(distributed, packages)
    floor = floors(arrays, reference.noise, rounding)
    differences = compare(arrays, returned, floor, exact)
    tightest = max((item.error / item.bound for item in differences if not item.wrong and item.bound), default=0.0)
    wrong = [item for item in differences if item.wrong]
    if not wrong:
        return _passed(differences, tightest, vacuity(arrays, reference.shares, floor))
    earliest = [item for item in wrong if _place(item) == _place(wrong[0])]
    worst = max(earliest, key=lambda item: (item.excess, item.name))
    found = diagnose(worst, arrays, returned, world, parts, clues, differences)
    kind: Kind = "nonfinite" if worst.wrong == "nonfinite" else "diverged"
    number = f"off by {worst.error:.3g}, allowed {worst.bound:.3g}; " if worst.wrong == "value" else ""
    return Judgement(
        kind=kind,
        reason=f"{worst.name}: {number}{found.text}; {len(wrong)} of {len(differences)} arrays are wrong",
        first=_first(worst),
        error=worst.error if np.isfinite(worst.error) else None,
        bound=worst.bound,
        diagnosis=found.text,
        pattern=found.kind,
        differences=tuple(differences),
        tightest=tightest,
    )


def _passed(differences: Sequence[Difference], tightest: float, controls: Vacuity) -> Judgement:
    if controls.reason:
        return Judgement("not-applicable", f"vacuous: {controls.reason}", differences=tuple(differences), vacuous=True)
    exact = sum(1 for item in differences if not item.bound)
    closest = max(differences, key=lambda item: item.error / item.bound if item.bound else -1.0)
    reason = f"{exact} arrays bit-equal, {len(differences) - exact} within their noise bound"
    blind = f"; {controls.blind} of {controls.of} gradients could not show a fault" if controls.blind else ""
    if not closest.bound:
        return Judgement("pass", f"{reason}{blind}", differences=tuple(differences))
    return Judgement(
        "pass",
        f"{reason}, the closest ({closest.name}) at {tightest:.2f} of it{blind}",
        first=_first(closest),
        error=closest.error,
        bound=closest.bound,
        differences=tuple(differences),
        tightest=tightest,
    )


def _place(item: Difference) -> tuple[int, int]:
    return item.parsed.step, item.parsed.order


def _first(item: Difference) -> First:
    step = None if item.parsed.step == AFTER else item.parsed.step
    return First(step=step, role=item.parsed.role, tensor=item.parsed.tensor)


def _unknown_name(sets: Sequence[Arrays]) -> str:
    """Return what is wrong with the first array name that cannot be read; empty if all can."""
    for arrays in sets:
        for name in arrays:
            try:
                parse_name(name)
            except ValueError as error:
                return str(error)
    return ""


def _reference_failed(rank: RankObservation) -> Judgement:
    if rank.error and _DISK_FULL in rank.error.message:
        return Judgement("no-data", _headline(rank.error), detail=rank.error.text)
    if rank.error:
        reason = f"one process itself fails: {_headline(rank.error)}"
        return Judgement("reference-failed", reason, detail=rank.error.text, report=rank.error)
    return Judgement("reference-failed", f"one process itself fails: {_ending(rank)}", detail=rank.output)


def _broken(observation: Observation, packages: Sequence[str]) -> Judgement:
    """Judge a rank set that did not return: the first cause among its ranks, not the peers' echo of it."""
    errors = [rank.error for rank in observation.ranks if rank.error]
    full = [error for error in errors if _DISK_FULL in error.message]
    if full:
        return Judgement("no-data", _headline(full[0]), detail=full[0].text)
    primary = [error for error in errors if not _SECONDARY.search(error.message)]
    died = [(i, rank) for i, rank in enumerate(observation.ranks) if _died(rank)]
    if died and not primary:
        i, rank = died[0]
        return Judgement("died", f"rank {i} {_ending(rank)}", pattern=_signal(rank), detail=rank.output)
    if errors:
        error = _first_cause(primary or errors)
        kind: Kind = "refused" if _refuses(error) else "crashed"
        return Judgement(kind, _headline(error), detail=error.text, report=error)
    hung = [(i, rank) for i, rank in enumerate(observation.ranks) if rank.why == "deadline"]
    if hung:
        i, rank = hung[0]
        frames = stack_frames(rank.output, packages)
        place = f" in {frames[-1]}" if frames else ""
        report = ErrorReport("hang", "", frames) if frames else None
        reason = f"rank {', '.join(str(i) for i, _ in hung)} did not end within {rank.seconds:.0f} s{place}"
        return Judgement("hung", reason, detail=rank.output, report=report)
    return Judgement("no-data", "every rank was killed because of another, and none failed by itself")


def _first_cause(errors: Sequence[ErrorReport]) -> ErrorReport:
    """Return the error of the lowest rank among those that came together with the earliest.

    `errors` are in the order of the ranks.  When all ranks fail alike, which of them is a few milliseconds ahead is
    chance, and must not decide what is reported.
    """
    earliest = min(error.at for error in errors)
    return next(error for error in errors if error.at <= earliest + _TOGETHER)


def _died(rank: RankObservation) -> bool:
    """Whether a rank ended by itself without a result and without an exception, or was killed for what it used."""
    if rank.why:
        return rank.why in ("memory", "output")
    return rank.error is None and (rank.code != 0 or rank.arrays is None)


def _signal(rank: RankObservation) -> str:
    """Return how a rank died as a stable word."""
    if rank.why:
        return rank.why
    return _signal_name(-rank.code).lower() if rank.code < 0 else "exit"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time signals have no name
        return f"SIG{number}"


def _ending(rank: RankObservation) -> str:
    if rank.why == "memory":
        return "was killed: it went over its memory limit"
    if rank.why == "output":
        return "was killed: it printed more than its limit"
    if rank.why == "deadline":
        return f"did not end within {rank.seconds:.0f} s"
    if rank.code < 0:
        return f"was ended by {_signal_name(-rank.code)}"
    return f"ended with exit code {rank.code} and without a result"


def _refuses(error: ErrorReport) -> bool:
    return error.type == "NotImplementedError" or bool(_REFUSAL.search(error.message))


def _headline(error: ErrorReport) -> str:
    """Return the error's type and its first line; of a TensorFlow graph, whose first line says only that it is one,
    the line that stands above the node where it arose."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()] or [""]
    place = next((at for at, line in enumerate(lines) if line.startswith(_NODE)), 0)
    line = lines[place - 1] if place and lines[0] == "Graph execution error:" else lines[0]
    return f"{error.type}: {_DECORATION.sub('', line)[:300]}"


def stack_frames(output: str, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the library's `module:function` frames of the last thread dump in the output, outermost first.

    Of the dump, the thread that took the signal counts: the main one, unless it had ended.
    """
    start = output.rfind("Current thread 0x")
    dump = output[max(start, 0) :]
    end = dump.find("\n\n")  # a blank line ends a thread's frames
    frames = []
    for match in _STACK_LINE.finditer(dump[: end if start >= 0 and end >= 0 else len(dump)]):
        module = _module(match["path"], packages)
        if module:
            frames.append(f"{module}:{match['function']}")
    return tuple(reversed(frames))


def _module(path: str, packages: Sequence[str]) -> str:
    """Return the dotted module of a file of one of the packages; empty for any other file.

    Below Python's own library only what is installed there counts: the folder of an environment may be called `torch`
    too.  Anywhere else (an overlay) the package is the last folder of its name.
    """
    installed = _PYTHON_LIBRARY.match(path)
    for package in packages:
        if installed:
            inside = path[installed.end() :] if path[installed.end() :].startswith(f"{package}/") else ""
        else:
            inside = path[path.rindex(f"/{package}/") + 1 :] if f"/{package}/" in path else ""
        if inside:
            return inside.removesuffix(".py").replace("/", ".")
    return ""
