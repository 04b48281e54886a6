"""Install a released library into an environment of its own, once; later runs find it there and need no network."""

import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout
from packaging.utils import canonicalize_name
from packaging.version import Version
from platformdirs import user_cache_path

from d3bot.builds.errors import NoDataError
from d3bot.builds.fetch import fetch
from d3bot.builds.index import Index, Listed
from d3bot.builds.spec import Exact
from d3bot.builds.store import hold, share
from d3bot.spec import Framework

Log = Callable[[str], None]
Find = Callable[[], Sequence[Listed]]

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds; their local version +cpu wins over the much larger default build for Linux."""

NEEDED_GIB = {"torch": 2, "tensorflow": 3}
"""Free space that an environment needs while it is made: what is installed, and the wheel beside it."""

_PINS: dict[tuple[str, str], tuple[str, ...]] = {
    ("torch", "2.13.0"): ("numpy==2.4.6",),
    ("tensorflow", "2.21.0"): ("numpy==2.4.6", "keras==3.15.1"),
    ("tensorflow-cpu", "2.21.0"): ("numpy==2.4.6", "keras==3.15.1"),
}
"""Companions that decide numbers, pinned for the versions that d3bot's own runs follow."""

_TORCHREC_NEEDS = ("tensordict", "torchmetrics==1.0.3", "pyre-extensions", "tqdm")
"""What torchrec's metadata asks for beside fbgemm-gpu, which it names for CUDA alone (1.8)."""

# A refused connection costs a second with two retries; pip's five cost half a minute for each of a dozen packages.
_PIP_LIMITS = ("--retries", "2", "--timeout", "15")
_DECISIVE = re.compile(
    r"no space left|^\s*(error|ERROR)\b|^\s*\u00d7|No matching distribution|No solution found", re.IGNORECASE
)


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of.  Equal recipes share one environment."""

    text: str
    """The build spec, for messages."""
    name: str
    version: str
    framework: Framework
    requirements: tuple[str, ...]
    extra_index: str = ""
    """Searched beside the general index, or empty."""
    wheels: tuple[Listed, ...] = ()
    """Wheels that an index has been asked for, the library first; downloaded, checked and installed as files."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Kept with the environment, so that it can be told without the index: index, night, wheels, companions."""

    @property
    def alone(self) -> tuple[str, ...]:
        """What is installed last, without its dependencies: torchrec beside the CPU's fbgemm, which it does not know.

        Asked for its dependencies it would bring the CUDA build of the same files.
        """
        names = {_name(item) for item in self.requirements}
        return tuple(r for r in self.requirements if _name(r) == "torchrec" and "fbgemm-gpu-cpu" in names)

    @property
    def folder(self) -> str:
        """Name of the environment's folder: readable, and different for every recipe and Python."""
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        parts: list[object] = [self.requirements, self.extra_index, python, sys.base_prefix]
        if self.wheels:
            parts.append([wheel.sha256 for wheel in self.wheels])
        facts = json.dumps(parts)
        return f"{self.name}-{self.version}-{python}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Installed:
    """An environment that is there and complete."""

    python: Path
    source: str
    """Host or file that the library's wheel came from, as far as the installer said."""
    wheel_hash: str
    """`sha256:...` of the library's wheel, or empty."""
    pip_config: str = "isolated"
    """Whether the machine's pip configuration took part when it was made."""
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The environment's folder."""
        return self.python.parent.parent


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for everything kept between runs: D3BOT_CACHE, or the user's cache folder."""
    chosen = environ.get("D3BOT_CACHE", "")
    return Path(os.path.abspath(Path(chosen).expanduser())) if chosen else user_cache_path("d3bot")


def recipe(request: Exact) -> Recipe:
    """Return what to install for a request: the library exactly, its companions, and where else to look."""
    named = {item.name for item in request.companions}
    pins = _PINS.get((request.name, Version(request.version).public), ("numpy",))
    companions = (
        *(pin for pin in pins if pin.partition("==")[0] not in named),
        *(str(item) for item in request.companions),
    )
    extra = TORCH_CPU_INDEX if request.name == "torch" and sys.platform == "linux" else ""
    if {"torchrec", "fbgemm-gpu-cpu"} <= named:
        companions = (*companions, *(item for item in _TORCHREC_NEEDS if _name(item) not in named))
    requirements = (f"{request.name}=={request.version}", *companions)
    return Recipe(request.text, request.name, request.version, request.framework, requirements, extra)


def install(plan: Recipe, cache: Path, log: Log, index: Index, find: Find = lambda: ()) -> Installed:
    """Return the environment of a recipe under `cache`/envs, made now if it is not there, and held by this process.

    `find` asks an index for the library's wheel; it is called only if the environment is not there and the machine's
    pip configuration is not to be used.  Safe to call from many processes at once; one makes it and the others wait.
    NoDataError says on one line what stopped it and names the log.
    """
    home = cache / "envs" / plan.folder
    lock = FileLock(home.with_name(home.name + ".lock"))
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        hold(home)
        if ready := _ready(home):
            return ready
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log(f"{plan.text}: waiting for another run that installs it")
            lock.acquire()
        return _ready(home) or _make(plan, home, cache, log, index, find)
    except OSError as error:
        where = error.filename or home.parent
        raise NoDataError(
            f"{plan.text}: {where}: {error.strerror}; free space, or set D3BOT_CACHE to a folder that can be written"
        ) from error
    finally:
        lock.release()


def find_made(cache: Path, name: str, version: str, companions: str) -> Installed | None:
    """Return the environment of a nightly made earlier, held by this process: nights vanish from their index."""
    for marker in sorted((cache / "envs").glob(f"{name}-{version}-*/ready.json")):
        hold(marker.parent)
        found = _ready(marker.parent)
        if found is not None and found.provenance.get("with", "") == companions and _this_python(marker.parent):
            return found
    return None


def _this_python(home: Path) -> bool:
    return f"-cp{sys.version_info.major}{sys.version_info.minor}-" in home.name


def environments_made(cache: Path) -> list[tuple[str, Path]]:
    """Return the spec and the interpreter of every complete environment under `cache`."""
    made = []
    for marker in sorted((cache / "envs").glob("*/ready.json")):
        try:
            made.append((str(json.loads(marker.read_text())["spec"]), marker.parent / "bin" / "python"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return made


def _ready(home: Path) -> Installed | None:
    """Return the environment if its marker, written last, is there and the Python it was made from still exists."""
    try:
        marker = json.loads((home / "ready.json").read_text())
        config = str(marker.get("pip_config", "machine"))  # it always did before this was written down
        provenance = {str(key): str(value) for key, value in dict(marker.get("provenance", {})).items()}
        source, wheel_hash = str(marker["source"]), str(marker["wheel_hash"])
        found = Installed(home / "bin" / "python", source, wheel_hash, config, provenance)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.python.exists() else None


def _make(plan: Recipe, home: Path, cache: Path, log: Log, index: Index, find: Find) -> Installed:
    needed, free = NEEDED_GIB[plan.framework], shutil.disk_usage(home.parent).free / 2**30
    if free < needed:
        raise NoDataError(
            f"{plan.text}: {home.parent} has {free:.1f} GiB free and needs about {needed}; "
            "free some space, or set D3BOT_CACHE to a folder on a larger disk"
        )
    machine = index.pip_config == "machine"
    wheels = plan.wheels or (() if machine else tuple(find()))
    files = [fetch(wheel, cache, log) for wheel in wheels]
    log(f"{plan.text}: installing into {home} (once; later runs use it again)")
    extra = plan.extra_index
    if extra and not reachable(extra):
        told = "using the package indexes configured here" if machine else "going on without it"
        log(f"{plan.text}: {extra} does not answer; {told}")
        extra = ""
    given = {wheel.name: str(file) for wheel, file in zip(wheels, files, strict=True)}
    rest = [item for item in plan.requirements if item not in plan.alone and _name(item) not in given]
    wanted = [*(file for name, file in given.items() if name not in map(_name, plan.alone)), *rest]
    alone = [given.get(_name(item), item) for item in plan.alone]
    sources = Sources("" if machine else index.url, extra)
    # uv reads neither pip's configuration nor its local folders of wheels.
    installers = [_with_uv, _with_pip] if shutil.which("uv") and not machine else [_with_pip]
    logfile = home.with_name(home.name + ".log")
    logfile.unlink(missing_ok=True)
    for installer in installers:
        shutil.rmtree(home, ignore_errors=True)
        if installer(wanted, alone, home, logfile, sources):
            break
    else:
        shutil.rmtree(home, ignore_errors=True)
        raise NoDataError(f"{plan.text}: could not be installed: {decisive_line(logfile)}; the log is {logfile}")
    source, digest = _origin(home / "pip-report.json", plan.name)
    if wheels:
        source, digest = wheels[0].host or wheels[0].url, f"sha256:{wheels[0].sha256}"
    done = Installed(home / "bin" / "python", source, digest, index.pip_config, plan.provenance)
    share(home, cache)
    marker = {
        "spec": plan.text,
        "name": plan.name,
        "version": plan.version,
        "requirements": plan.requirements,
        "source": done.source,
        "wheel_hash": done.wheel_hash,
        "pip_config": index.pip_config,
        "provenance": dict(plan.provenance),
    }
    temporary = home / "ready.json.new"
    temporary.write_text(json.dumps(marker))
    os.replace(temporary, home / "ready.json")
    return done


def _name(requirement: str) -> str:
    return str(canonicalize_name(re.split(r"[=<>!~ ]", requirement, maxsplit=1)[0]))


def reachable(index: str) -> bool:
    """Return whether something answers at this address within a few seconds; what it answers does not matter."""
    try:
        urllib.request.urlopen(urllib.request.Request(index + "/", method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        # pip may know a certificate that this interpreter does not: let it try.
        return isinstance(error.reason, ssl.SSLError)
    except OSError:
        return False
    return True


def decisive_line(logfile: Path) -> str:
    """Return the line of an installer's log that says why it failed: the last that names an error, else the last."""
    try:
        lines = [line.strip() for line in logfile.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    full = [line for line in lines if "no space left" in line.lower()]
    # pip's last word on a conflict is an address; what was in conflict stands before it.
    errors = full or [line for line in lines if _DECISIVE.search(line) and "for help visit" not in line]
    return (errors or lines or ["the installer printed nothing"])[-1][:300]


@dataclass(frozen=True)
class Sources:
    """Where an installer looks.  `index` empty means: as this machine's pip is configured."""

    index: str
    extra: str

    @property
    def environ(self) -> dict[str, str]:
        """Return the installer's environment: isolated from configuration files and variables unless told."""
        dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        if not self.index:
            return {key: value for key, value in os.environ.items() if key not in dropped}
        # How to reach the network is the machine's business; what is found there is not.
        kept = {"PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "UV_CACHE_DIR", "UV_NATIVE_TLS"}
        environ = {
            key: value
            for key, value in os.environ.items()
            if key not in dropped and (key in kept or not key.startswith(("PIP_", "UV_")))
        }
        return environ | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}

    @property
    def options(self) -> list[str]:
        """Return the options that name the indexes, understood by pip and uv."""
        index = ["--index-url", self.index] if self.index else []
        return [*index, *(["--extra-index-url", self.extra] if self.extra else [])]


def _with_uv(wanted: Sequence[str], alone: Sequence[str], home: Path, logfile: Path, sources: Sources) -> bool:
    python = str(home / "bin" / "python")
    made = ["uv", "venv", "--no-project", "--python", sys.executable, str(home)]
    install = ["uv", "pip", "install", "--python", python, *sources.options, "--index-strategy", "unsafe-best-match"]
    done = _run(made, logfile, sources) and _run([*install, *wanted], logfile, sources)
    return done and (not alone or _run([*install, "--no-deps", *alone], logfile, sources))


def _with_pip(wanted: Sequence[str], alone: Sequence[str], home: Path, logfile: Path, sources: Sources) -> bool:
    python = str(home / "bin" / "python")
    own = find_spec("pip") is not None  # one pip serves all environments, and each saves the time to unpack its own
    made = [sys.executable, "-m", "venv", *(["--without-pip"] if own else []), str(home)]
    pip = [sys.executable, "-m", "pip", "--python", python] if own else [python, "-m", "pip"]
    report = ["--report", str(home / "pip-report.json")]
    install = [*pip, "install", "--no-input", "--disable-pip-version-check", *_PIP_LIMITS, *sources.options]
    done = _run(made, logfile, sources) and _run([*install, *report, *wanted], logfile, sources)
    return done and (not alone or _run([*install, "--no-deps", *alone], logfile, sources))


def _origin(report: Path, name: str) -> tuple[str, str]:
    """Return where pip took the wheel from, and its hash, out of pip's own report."""
    try:
        for item in json.loads(report.read_text())["install"]:
            if item["metadata"]["name"].lower().replace("_", "-") == name:
                info = item["download_info"]
                url = urllib.parse.urlsplit(info["url"])
                digest = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
                return url.hostname or Path(urllib.parse.unquote(url.path)).name, f"sha256:{digest}" if digest else ""
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return "package index", ""


def _run(command: list[str], logfile: Path, sources: Sources) -> bool:
    """Run one installer command, its output appended to the log; return whether it succeeded."""
    with logfile.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(
                command, env=sources.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        except OSError as error:
            out.write(f"error: {command[0]}: {error.strerror}\n".encode())
            return False
        return done.returncode == 0
