"""Which earlier run a run is compared with, and which it must not be compared with.  Pure but for the search."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from d3bot.history.folder import RUN, LoadedRun, load_header, load_run
from d3bot.spec import Build, SpecError, environment_class


@dataclass(frozen=True)
class Previous:
    """The run to compare with, if there is one, and what was passed over on the way to it, each with its reason."""

    folder: Path | None
    loaded: LoadedRun | None
    passed_over: tuple[str, ...] = ()


def difference(before: Sequence[Build], after: Sequence[Build]) -> str:
    """Return why runs on these builds cannot be compared, in a few words; empty if they can.

    They must share a library, and what they share must have run in one class of environment: another accelerator or
    architecture is another experiment, not a change.
    """
    old = {build.framework: build for build in before}
    shared = [(old[build.framework], build) for build in after if build.framework in old]
    if not shared:
        return f"is of {_names(before)}, not of {_names(after)}"
    for one, other in shared:
        mine, theirs = environment_class(one.environment), environment_class(other.environment)
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                return f"ran with {name} {mine.get(name, 'none')}, not {theirs.get(name, 'none')}"
    return ""


def latest_comparable(root: Path, builds: Sequence[Build], without: Path) -> Previous:
    """Return the newest complete run among the sub-folders of `root` that can be compared with one on these builds.

    Whatever cannot be read, is incomplete or is of something else is passed over: a search among old folders must not
    stop at a broken one.
    """
    found: list[tuple[datetime, str, Path]] = []
    over: list[str] = []
    for path in sorted(root.glob(f"*/{RUN}")):
        folder = path.parent
        if folder.resolve() == without.resolve():
            continue
        try:
            run = load_header(folder)
            started = datetime.fromisoformat(run.started)
        except ValueError as error:
            over.append(f"{folder.name}: {error}")
            continue
        reason = difference(run.builds, builds) if run.complete else "is incomplete"
        if reason:
            over.append(f"{folder.name}: {reason}")
        else:
            found.append((started if started.tzinfo else started.replace(tzinfo=UTC), folder.name, folder))
    for _, name, folder in sorted(found, reverse=True):
        try:
            return Previous(folder, load_run(folder), tuple(over))
        except SpecError as error:
            over.append(f"{name}: {error}")
    return Previous(None, None, tuple(over))


def named(folder: Path, builds: Sequence[Build]) -> Previous:
    """Return the run that a person named; SpecError if it cannot be read or compared with one on these builds."""
    loaded = load_run(folder)
    reason = difference(loaded.run.builds, builds)
    if reason:
        raise SpecError(f"{folder}: {reason}; runs of different inputs are not compared, choose another one")
    return Previous(folder, loaded)


def _names(builds: Sequence[Build]) -> str:
    return " and ".join(sorted({build.framework for build in builds})) or "no build"
