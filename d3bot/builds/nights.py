"""Which night, or which release, of what an index lists: a pure choice that never takes another version silently."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from d3bot.builds.errors import UnavailableError
from d3bot.builds.index import Listed
from d3bot.builds.spec import same_version

State = Literal["complete", "missing", "partial", "yanked", "no-hash"]

_SHOWN = 5
"""Nights passed over that are told one by one."""


@dataclass(frozen=True)
class Candidate:
    """One night or one release: what it consists of, or why it cannot be installed here."""

    label: str
    """The night as `YYYYMMDD`, or the release."""
    state: State
    why: str
    """What is wrong with it, or empty."""
    wheels: tuple[Listed, ...]
    """The chosen wheel of each distribution of the set, the library first; empty unless complete."""
    version: str
    """Version of the library."""
    listed: int
    """How many wheels of the library the index lists for it."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the newer ones that were not."""

    taken: Candidate
    passed_over: tuple[Candidate, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each newer candidate that could not be taken, so that nobody mistakes the old for the new."""
        lines = [f"{item.state}: {item.label} was passed over: {item.why}" for item in self.passed_over[:_SHOWN]]
        more = len(self.passed_over) - _SHOWN
        return (*lines, f"{more} more newer ones were passed over") if more > 0 else tuple(lines)


def night_of(version: Version) -> str:
    """Return the night of a version as YYYYMMDD: of its .dev number, or of a release that is a date; else empty."""
    if version.dev is not None:
        text = str(version.dev)[:8]
    elif len(version.release) >= 3 and version.release[0] >= 2000:
        text = f"{version.release[0]}{version.release[1]:02}{version.release[2]:02}"
    else:
        return ""
    return text if len(text) == 8 and _day(text) else ""


def _day(night: str) -> date | None:
    try:
        return date(int(night[:4]), int(night[4:6]), int(night[6:8]))
    except ValueError:
        return None


def age_in_days(night: str, today: date) -> int:
    """Return how many days ago a night was; ValueError if it is no night."""
    day = _day(night)
    if day is None:
        raise ValueError(f"{night!r} is not a night")
    return (today - day).days


def nights(listings: Mapping[str, Sequence[Listed]]) -> list[Candidate]:
    """Return every night of the first distribution, oldest first, each judged with all others of the set.

    `listings` holds what the index lists for each distribution of the set, the library first.
    """
    return _candidates(listings, lambda item: night_of(item.version))


def releases(listings: Mapping[str, Sequence[Listed]], prereleases: bool = False) -> list[Candidate]:
    """Return every release of the one distribution in `listings`, oldest first."""
    (name,) = listings

    def label(item: Listed) -> str:
        unwanted = item.version.is_devrelease or (item.version.is_prerelease and not prereleases)
        return "" if unwanted else item.version.public

    found = _candidates({name: listings[name]}, label)
    return sorted(found, key=lambda item: Version(item.label))


def _candidates(listings: Mapping[str, Sequence[Listed]], label: Callable[[Listed], str]) -> list[Candidate]:
    names = list(listings)
    by_label: dict[str, dict[str, list[Listed]]] = {}
    for name in names:
        for item in listings[name]:
            by_label.setdefault(label(item), {}).setdefault(name, []).append(item)
    return [_candidate(text, names, by_label[text]) for text in sorted(by_label) if text and names[0] in by_label[text]]


def _candidate(label: str, names: Sequence[str], found: Mapping[str, Sequence[Listed]]) -> Candidate:
    library = found[names[0]]
    version = str(max(item.version for item in library))
    chosen: list[Listed] = []
    for name in names:
        state, why, wheel = _wheel(name, found.get(name, ()))
        if wheel is None:
            return Candidate(label, state, why, (), version, len(library))
        chosen.append(wheel)
    return Candidate(label, "complete", "", tuple(chosen), str(chosen[0].version), len(library))


def _wheel(name: str, items: Sequence[Listed]) -> tuple[State, str, Listed | None]:
    """Return the newest usable wheel of one distribution on one night, or what is in the way."""
    if not items:
        return "missing", f"{name} has no build of it", None
    fitting = [item for item in items if item.fits]
    if not fitting:
        return "partial", f"{len(items)} wheels of {name}, none for this Python and platform", None
    standing = [item for item in fitting if item.withdrawn is None]
    if not standing:
        reason = next((item.withdrawn for item in fitting if item.withdrawn), "no reason given")
        return "yanked", f"{name} was withdrawn ({reason[:100]})", None
    best = max(standing, key=lambda item: (item.version, item.filename))
    if not best.sha256:
        return "no-hash", f"{best.filename} is listed without a SHA-256 hash, so it cannot be checked", None
    return "complete", "", best


def newest(candidates: Sequence[Candidate], what: str) -> Choice:
    """Return the newest complete candidate, with all newer ones as passed over.

    UnavailableError, with the state of the newest, if none is complete.
    """
    passed_over: list[Candidate] = []
    for item in reversed(candidates):
        if item.state == "complete":
            return Choice(item, tuple(passed_over))
        passed_over.append(item)
    if not candidates:
        raise UnavailableError("missing", f"{what}: the index lists none")
    last = candidates[-1]
    assert last.state != "complete"
    raise UnavailableError(
        last.state, f"{what}: none of {len(candidates)} is complete; the newest, {last.label}: {last.why}"
    )


def exactly(candidates: Sequence[Candidate], wanted: str, what: str) -> Choice:
    """Return the candidate of one label or version and no other; UnavailableError says why it cannot be had."""
    for item in candidates:
        if wanted == item.label or same_version(wanted, item.version):
            if item.state != "complete":
                raise UnavailableError(item.state, f"{what}: {item.label}: {item.why}; name another version")
            return Choice(item)
    if not candidates:
        raise UnavailableError("missing", f"{what}: the index lists none")
    labels = [item.label for item in candidates]
    before = max((text for text in labels if _order(text) < _order(wanted)), default="", key=_order)
    after = min((text for text in labels if _order(text) > _order(wanted)), default="", key=_order)
    near = " and ".join(text for text in (before, after) if text)
    raise UnavailableError(
        "missing",
        f"{what}: {wanted} is not on the index, which has {labels[0]} to {labels[-1]}"
        f"{f' (nearest: {near})' if near else ''}; name one of these",
    )


def within(candidates: Sequence[Candidate], specifiers: str, what: str) -> Choice:
    """Return the newest complete release that a range admits."""
    allowed = SpecifierSet(specifiers)
    return newest([item for item in candidates if allowed.contains(item.version, prereleases=True)], what)


def _order(label: str) -> Version:
    version = Version(label)
    return Version(night_of(version)) if night_of(version) else version
