"""From a typed request to a Build: ask the index, install, identify."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from d3bot.builds import fetch, identify, install, layers
from d3bot.builds.errors import UnavailableError
from d3bot.builds.index import Index, Listed, list_wheels
from d3bot.builds.nights import Choice, age_in_days, exactly, newest, night_of, nights, releases, within
from d3bot.builds.spec import (
    DISTRIBUTIONS,
    Companion,
    Exact,
    Interpreter,
    Nightly,
    Range,
    Request,
    Wheel,
    parse,
    same_version,
)
from d3bot.spec import Build, Framework, SpecError

Log = Callable[[str], None]


@dataclass(frozen=True)
class Desk:
    """What every step needs: where to look, where to keep, whom to tell, and what day it is."""

    index: Index
    cache: Path
    log: Log
    today: date
    stale_days: int


def build_of(request: Request, desk: Desk, framework: Framework | None = None) -> Build:
    """Return the Build of a request.  SpecError for a wrong request, NoDataError for a build that cannot be had."""
    if isinstance(request, Interpreter):
        return _interpreter(request, desk, framework)
    if isinstance(request, Exact):
        return _exact(request, desk)
    if isinstance(request, Range):
        choice = chosen_release(request.name, request.specifiers, request.text, desk)
        exact = Exact(request.text, request.name, choice.taken.version, request.companions)
        return _exact(exact, desk, choice)
    if isinstance(request, Nightly):
        return _nightly(request, desk)
    return _wheel(request, desk)


def chosen_night(request: Nightly, desk: Desk) -> Choice:
    """Return the night that a request means, with all distributions of its set; UnavailableError if there is none."""
    choice_of = nights(list_set(request.name, request.companions, request.platform, desk.index))
    if request.version:
        return exactly(choice_of, request.version, request.text)
    if request.night:
        return exactly(choice_of, request.night, request.text)
    return newest(choice_of, request.text)


def list_set(name: str, companions: Sequence[Companion], platform: str, index: Index) -> dict[str, Sequence[Listed]]:
    """Return what the index lists for a nightly library and for each companion of the same night, library first."""
    listings: dict[str, Sequence[Listed]] = {}
    for part in (name, *(item.name for item in companions if not item.version)):
        listings[part] = list_wheels(_night_address(part, name, platform, index), part)
    return listings


def _night_address(part: str, library: str, platform: str, index: Index) -> str:
    """Return the index that has a part of a nightly set: Keras has its own nights, the rest lies beside its library."""
    return index.of(part if part == "keras-nightly" else library, True, platform)


def chosen_release(name: str, specifiers: str, text: str, desk: Desk) -> Choice:
    """Return the newest complete release within a range."""
    return within(releases({name: list_wheels(desk.index.of(name, False), name)}), specifiers, text)


def stale_note(name: str, night: str, desk: Desk) -> tuple[str, ...]:
    """Return the alarm for a newest night that is too long ago, or nothing."""
    age = age_in_days(night, desk.today)
    if age <= desk.stale_days:
        return ()
    return (f"stale: the newest complete {name} is of {night}, {age} days ago; the alarm is set to {desk.stale_days}",)


def _interpreter(request: Interpreter, desk: Desk, framework: Framework | None) -> Build:
    python = Path(request.python)
    if request.companions:
        base = identify.identify(python, None, request, framework=framework)
        return _layered(base, request, desk)
    overlay = Path(request.overlay) if request.overlay else None
    return identify.identify(python, overlay, request, framework=framework)


def _exact(request: Exact, desk: Desk, choice: Choice | None = None) -> Build:
    """Companions of pure Python are laid over the release's environment; others are installed into one with it."""
    layered: tuple[Companion, ...] = request.companions
    inside: tuple[Companion, ...] = ()
    if request.companions and not all(_is_pure(item, desk) for item in request.companions):
        layered, inside = (), request.companions
    plan = install.recipe(Exact(request.text, request.name, request.version, inside))

    def find() -> tuple[Listed, ...]:
        known = choice or exactly(
            releases({request.name: list_wheels(desk.index.of(request.name, False), request.name)}, prereleases=True),
            request.version,
            request.text,
        )
        return known.taken.wheels

    made = install.install(plan, desk.cache, desk.log, desk.index, find)
    build = identify.identify(
        made.python,
        None,
        request,
        source=made.source,
        wheel_hash=made.wheel_hash,
        cache=made.home / "identity.json",
        provenance={"pip_config": made.pip_config} | ({"with": _listed(inside)} if inside else {}),
        notes=choice.notes if choice else (),
    )
    return _layered(build, Exact(request.text, request.name, request.version, layered), desk) if layered else build


def _nightly(request: Nightly, desk: Desk) -> Build:
    made: install.Installed | None = None
    notes: tuple[str, ...] = ()
    if request.version and all(item.version for item in request.companions):
        companions = _listed(request.companions)
        made = install.find_made(desk.cache, request.name, request.version, companions)
    if made is None:
        made, notes = _install_night(request, desk)
    night = made.provenance["night"]
    if not request.night and not request.version:
        notes += stale_note(request.name, night, desk)
    for note in notes:
        desk.log(f"{request.text}: {note}")
    build = identify.identify(
        made.python,
        None,
        request,
        source=made.source,
        wheel_hash=made.wheel_hash,
        cache=made.home / "identity.json",
        version=made.provenance["version"],
        framework=DISTRIBUTIONS[request.name],
        provenance={"pip_config": made.pip_config}
        | {key: value for key, value in made.provenance.items() if key != "version"},
        notes=notes,
    )
    if not build.commit:
        build = build.model_copy(update={"notes": (*build.notes, "no-commit: the library does not say what it is of")})
    return build


def _install_night(request: Nightly, desk: Desk) -> tuple[install.Installed, tuple[str, ...]]:
    """Companions of the night and companions with a version are installed alike, so that naming one changes nothing."""
    choice = chosen_night(request, desk)
    library, *others = choice.taken.wheels
    fixed = [
        _pinned(item, _night_address(item.name, request.name, request.platform, desk.index))
        for item in request.companions
        if item.version
    ]
    order = [item.name for item in request.companions]
    wheels = (library, *sorted((*others, *fixed), key=lambda wheel: order.index(wheel.name)))
    plan = install.Recipe(
        request.text,
        request.name,
        choice.taken.version,
        DISTRIBUTIONS[request.name],
        (*(f"{wheel.name}=={wheel.version}" for wheel in wheels), "numpy"),
        desk.index.of("torch", True, request.platform) if request.name == "torch" else "",
        wheels,
        {
            "index": library.index,
            "night": choice.taken.label,
            "version": choice.taken.version,
            "wheels": str(choice.taken.listed),
            "with": _listed([Companion(wheel.name, str(wheel.version)) for wheel in wheels[1:]]),
        },
    )
    made = install.install(plan, desk.cache, desk.log, desk.index)
    return replace(made, provenance=plan.provenance), choice.notes


def _wheel(request: Wheel, desk: Desk) -> Build:
    address, _, fragment = request.location.partition("#")
    filename = address.rstrip("/").rpartition("/")[2]
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise SpecError(f"build {request.text!r}: {filename} is not the name of a wheel; do not rename it") from error
    if name not in DISTRIBUTIONS:
        known = ", ".join(sorted(DISTRIBUTIONS))
        raise SpecError(f"build {request.text!r}: is a wheel of {name}; known are {known}")
    if not tags & set(sys_tags()):
        raise UnavailableError("partial", f"{request.text}: {filename} is not for this Python and platform")
    file, digest = _wheel_file(request, address, fragment, filename, desk)
    if "://" not in address:
        source, url = f"file:{file}", file.as_uri()
    else:
        source, url = address, address
    wheel = Listed(name, version, filename, url, digest, None, True, False, "")
    plan = install.Recipe(
        request.text,
        name,
        str(version),
        DISTRIBUTIONS[name],
        (f"{name}=={version}", *map(str, request.companions)),
        desk.index.of("torch", version.is_devrelease) if name == "torch" else "",
        (wheel,),
    )
    made = install.install(plan, desk.cache, desk.log, desk.index)
    return identify.identify(
        made.python,
        None,
        request,
        source=source[:500],
        wheel_hash=f"sha256:{digest}",
        cache=made.home / "identity.json",
        version=str(version),
        framework=DISTRIBUTIONS[name],
        provenance={"pip_config": made.pip_config}
        | ({"night": night_of(version)} if night_of(version) else {})
        | ({"with": _listed(request.companions)} if request.companions else {}),
    )


def _wheel_file(request: Wheel, address: str, fragment: str, filename: str, desk: Desk) -> tuple[Path, str]:
    """Return the wheel in the cache, under its own hash, and that hash; a hash in the address must agree."""
    wanted = fragment.removeprefix("sha256=").lower() if fragment.startswith("sha256=") else ""
    if "://" in address:
        (desk.cache / "wheels").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=desk.cache / "wheels", prefix=".incoming-") as incoming:
            draft = Path(incoming, filename)
            desk.log(f"downloading {filename} from {address}")
            digest = fetch.download(address, draft, wanted)
            return fetch.keep(draft, digest, desk.cache), digest
    path = Path(address).expanduser().absolute()
    if not path.is_file():
        raise SpecError(f"build {request.text!r}: {path} is not there; give the path of a wheel")
    digest = fetch.file_hash(path)
    if wanted and wanted != digest:
        raise UnavailableError("wrong-hash", f"{request.text}: its SHA-256 is {digest[:12]}..., not {wanted[:12]}...")
    return fetch.keep(path, digest, desk.cache), digest


def _layered(base: Build, request: Exact | Interpreter, desk: Desk) -> Build:
    """Lay companions of pure Python over an environment that is only read."""
    wheels = [_companion_wheel(item, desk) for item in request.companions]
    for wheel in wheels:
        if not wheel.pure:
            raise SpecError(
                f"build {request.text!r}: {wheel.name} is not pure Python, so it cannot be laid over an environment"
            )
    files = [fetch.fetch(wheel, desk.cache, desk.log) for wheel in wheels]
    folder = layers.layer(files, [wheel.sha256 for wheel in wheels], desk.cache)
    build = identify.identify(
        Path(base.python),
        folder,
        Interpreter(request.text, base.python, str(folder), request.companions),
        framework=base.framework,
        source=base.source,
        provenance=base.provenance | {"with": _listed(request.companions)},
        notes=base.notes,
    )
    for item in request.companions:
        found = build.packages.get(item.name, item.version)
        if found != item.version:
            raise UnavailableError("wrong-version", f"{request.text}: imports {item.name} {found} instead")
    return build


def _companion_wheel(item: Companion, desk: Desk) -> Listed:
    return _pinned(item, desk.index.of("keras", False))


def _pinned(item: Companion, address: str) -> Listed:
    """Return the wheel of a companion in exactly its version; of several builds of one night, the one asked for."""
    listed = list_wheels(address, item.name)
    same = [wheel for wheel in listed if same_version(item.version, str(wheel.version))]
    listing = {item.name: same or listed}
    found = nights(listing) if night_of(Version(item.version)) else releases(listing, prereleases=True)
    return exactly(found, item.version, str(item)).taken.wheels[0]


def _is_pure(item: Companion, desk: Desk) -> bool:
    return _companion_wheel(item, desk).pure


def _listed(companions: Sequence[Companion]) -> str:
    return " ".join(map(str, companions))


def resolve(
    spec: str,
    cache: Path | None = None,
    log: Log = lambda line: None,
    framework: Framework | None = None,
    index: Index | None = None,
    stale_days: int = 7,
    today: date | None = None,
) -> Build:
    """Return the Build of a spec such as `torch==2.13.0`, installed first if need be, and checked to be what it says.

    `cache` is the folder for all that d3bot keeps (default: `default_cache()`); `log` is given progress a line at a
    time; `framework` says which library is meant where the spec does not (`python:`); `index` says where to look
    (default: what D3BOT_INDEX_* variables say); a newest night older than `stale_days` on `today` is told.
    """
    desk = Desk(
        index or Index.from_environ(),
        cache or install.default_cache(),
        log,
        today or datetime.now(UTC).date(),
        stale_days,
    )
    return build_of(parse(spec), desk, framework)
