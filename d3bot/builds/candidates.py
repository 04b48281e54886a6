"""The builds that exist between two versions: what a bisection may try, gaps included."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from d3bot.builds.index import Index, list_wheels
from d3bot.builds.nights import Candidate, night_of, nights, releases
from d3bot.builds.resolve import list_set
from d3bot.builds.spec import DISTRIBUTIONS, NIGHTLY_SETS, Companion
from d3bot.spec import Build, SpecError

_DATE = re.compile(r"^(\d{4})-?(\d{2})-?(\d{2})$")
_NAMED = re.compile(r"^([A-Za-z][A-Za-z0-9._-]*)==(.+)$")


@dataclass(frozen=True)
class End:
    """One end of a range as a person wrote it: a version, a day, or NAME==VERSION."""

    text: str
    name: str
    """The distribution it names, or empty for that of the finding's build."""
    order: Version
    """Where it lies: a release's version, or a night as a number."""
    night: bool


@dataclass(frozen=True)
class Option:
    """One build of a range."""

    version: str
    spec: str
    """Build spec that gives exactly it; empty for a gap."""
    gap: str = ""
    """Why it cannot be installed here, or empty."""


@dataclass(frozen=True)
class Span:
    """The builds between two ends, oldest first, and what the ends had to give up."""

    subject: str
    options: tuple[Option, ...]
    notes: tuple[str, ...]


def read_end(text: str) -> End:
    """Return one end of a range; SpecError if it is neither a version nor a day."""
    match = _NAMED.match(text.strip())
    name, version = (canonicalize_name(match[1]), match[2]) if match else ("", text.strip())
    if day := _DATE.match(version):
        return End(text, name, Version("".join(day.groups())), True)
    try:
        found = Version(version)
    except InvalidVersion as error:
        raise SpecError(f"{text!r}: neither a version, nor a day such as 2026-10-19, nor NAME==VERSION") from error
    night = night_of(found) if found.is_devrelease else ""
    return End(text, name, Version(night) if night else found, bool(night))


def span(build: Build, first: End, last: End, index: Index) -> Span:
    """Return the builds from `first` to `last` that the index lists, with everything else as in `build`.

    The ends may be of the build's own library, or both of one companion, such as keras==3.7.0.  SpecError if the ends
    do not belong together, are the same, or leave less than two builds; UnavailableError if the index gives no answer.
    """
    subject = _subject(build, first, last)
    if first.order == last.order:
        raise SpecError(f"--good {last.text} --bad {first.text}: are the same build; a range has two ends")
    if first.night != last.night:
        raise SpecError(f"{first.text} and {last.text}: one is a night and one a release; give two of a kind")
    candidates, specs = _listed(build, subject, first, index)
    orders = [Version(item.label) for item in candidates]
    inside = [i for i, order in enumerate(orders) if first.order <= order <= last.order]
    notes = []
    if orders and first.order < orders[0]:
        notes.append(f"{first.text} is older than what the index still has; the range begins at {candidates[0].label}")
    if orders and last.order > orders[-1]:
        notes.append(f"{last.text} is not there yet; the range ends at the newest, {candidates[-1].label}")
    if len(inside) < 2:
        has = f"{candidates[0].label} to {candidates[-1].label}" if candidates else "none"
        raise SpecError(
            f"{subject}: the index has fewer than two builds from {first.text} to {last.text} (it has {has}); "
            "widen the range"
        )
    options = tuple(
        Option(candidates[i].version, specs[i], "")
        if candidates[i].state == "complete"
        else Option(candidates[i].version, "", f"{candidates[i].state}: {candidates[i].why}")
        for i in inside
    )
    return Span(subject, options, tuple(notes))


def newest_end(build: Build, like: End, index: Index) -> End:
    """Return the newest build that the index has of what `like` is of."""
    subject = like.name or build.name
    candidates, _ = _listed(build, subject, like, index)
    complete = [item for item in candidates if item.state == "complete"]
    if not complete:
        raise SpecError(f"{subject}: the index has no build that can be installed here")
    return read_end(f"{subject}=={complete[-1].version}")


def spec_of(build: Build, without: Sequence[str] = ()) -> str:
    """Return a build spec that gives this build again, without the companions named."""
    if build.source.startswith("python:"):
        base = f"python:{build.python}"
    elif build.source.startswith("overlay:"):
        base = f"overlay:{build.overlay}+python:{build.python}"
    else:
        base = f"{build.name}=={build.version}"
    companions = [part for part in build.provenance.get("with", "").split() if part.partition("==")[0] not in without]
    return f"{base} with {' '.join(companions)}" if companions else base


def _subject(build: Build, first: End, last: End) -> str:
    names = {end.name or build.name for end in (first, last)}
    if len(names) > 1:
        raise SpecError(f"{first.text} and {last.text}: are of two distributions; name one in both")
    (subject,) = names
    if subject == build.name and build.source.startswith(("overlay:", "python:")):
        raise SpecError(
            f"{build.spec}: is an environment as it is, so there are no other versions of {subject} to try; give a "
            f"companion such as keras==3.8.0, or name a build of an index with --build"
        )
    return subject


def _listed(build: Build, subject: str, like: End, index: Index) -> tuple[list[Candidate], list[str]]:
    """Return all candidates of a distribution, oldest first, and the build spec of each."""
    if subject in NIGHTLY_SETS and like.night and subject == build.name:
        _, mark, platform = build.version.partition("+")
        companions = [Companion(name) for name in _night_names(build)]
        found = nights(list_set(subject, companions, platform if mark else "", index))
        return found, [_night_spec(item) for item in found]
    own = subject == build.name
    listing = list_wheels(index.of(subject if subject in DISTRIBUTIONS else "keras", like.night), subject)
    found = nights({subject: listing}) if like.night else releases({subject: listing}, like.order.is_prerelease)
    if own:
        return found, [f"{subject}=={item.version}" for item in found]
    base = spec_of(build, without=(subject,))
    joint = " " if " with " in base else " with "
    return found, [f"{base}{joint}{subject}=={item.version}" for item in found]


def _night_names(build: Build) -> list[str]:
    """Return the companions that came of the library's own night."""
    parts = (part.partition("==") for part in build.provenance.get("with", "").split())
    return [name for name, _, version in parts if night_of(Version(version))]


def _night_spec(item: Candidate) -> str:
    if item.state != "complete":
        return ""
    first, *others = item.wheels
    companions = " ".join(f"{wheel.name}=={wheel.version}" for wheel in others)
    return f"{first.name}=={first.version}" + (f" with {companions}" if companions else "")
