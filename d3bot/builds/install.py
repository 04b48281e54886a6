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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from packaging.version import Version
from platformdirs import user_cache_path

from d3bot.builds.errors import NoDataError
from d3bot.builds.spec import Exact

Log = Callable[[str], None]

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

# A refused connection costs a second with two retries; pip's five cost half a minute for each of a dozen packages.
_PIP_LIMITS = ("--retries", "2", "--timeout", "15")
_DECISIVE = re.compile(
    r"no space left|^\s*(error|ERROR)\b|^\s*\u00d7|No matching distribution|No solution found", re.IGNORECASE
)


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of.  Equal recipes share one environment."""

    request: Exact
    requirements: tuple[str, ...]
    extra_index: str
    """Searched beside the machine's own package indexes, or empty."""

    @property
    def folder(self) -> str:
        """Name of the environment's folder: readable, and different for every recipe and Python."""
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        facts = json.dumps([self.requirements, self.extra_index, python, sys.base_prefix])
        return f"{self.request.name}-{self.request.version}-{python}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Installed:
    """An environment that is there and complete."""

    python: Path
    source: str
    """Host or file that the library's wheel came from, as far as the installer said."""
    wheel_hash: str
    """`sha256:...` of the library's wheel, or empty."""

    @property
    def home(self) -> Path:
        """The environment's folder."""
        return self.python.parent.parent


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for everything kept between runs: D3BOT_CACHE, or the user's cache folder."""
    chosen = environ.get("D3BOT_CACHE", "")
    return Path(os.path.abspath(Path(chosen).expanduser())) if chosen else user_cache_path("d3bot")


def recipe(request: Exact) -> Recipe:
    """Return what to install for a request: the library exactly, its pinned companions, and where else to look."""
    companions = _PINS.get((request.name, Version(request.version).public), ("numpy",))
    extra = TORCH_CPU_INDEX if request.name == "torch" and sys.platform == "linux" else ""
    return Recipe(request, (f"{request.name}=={request.version}", *companions), extra)


def install(request: Exact, cache: Path, log: Log) -> Installed:
    """Return the environment for a request under `cache`/envs, made now if it is not there.

    Safe to call from many processes at once; one makes it and the others wait.  NoDataError says on one line what
    stopped it and names the log.
    """
    plan = recipe(request)
    home = cache / "envs" / plan.folder
    if ready := _ready(home):
        return ready
    lock = FileLock(home.with_name(home.name + ".lock"))
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log(f"{request.text}: waiting for another run that installs it")
            lock.acquire()
        return _ready(home) or _make(plan, home, log)
    except OSError as error:
        where = error.filename or home.parent
        raise NoDataError(
            f"{request.text}: {where}: {error.strerror}; free space, or set D3BOT_CACHE to a folder that can be written"
        ) from error
    finally:
        lock.release()


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
        found = Installed(home / "bin" / "python", str(marker["source"]), str(marker["wheel_hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.python.exists() else None


def _make(plan: Recipe, home: Path, log: Log) -> Installed:
    request = plan.request
    needed, free = NEEDED_GIB[request.framework], shutil.disk_usage(home.parent).free / 2**30
    if free < needed:
        raise NoDataError(
            f"{request.text}: {home.parent} has {free:.1f} GiB free and needs about {needed}; "
            "free some space, or set D3BOT_CACHE to a folder on a larger disk"
        )
    log(f"{request.text}: installing into {home} (once; later runs use it again)")
    if plan.extra_index and not reachable(plan.extra_index):
        log(f"{request.text}: {plan.extra_index} does not answer; using the package indexes configured here")
        plan = Recipe(request, plan.requirements, "")
        # uv reads neither pip's configuration nor its local folders of wheels, which are all that is left.
        installers = [_with_pip]
    else:
        installers = [_with_uv, _with_pip] if shutil.which("uv") else [_with_pip]
    logfile = home.with_name(home.name + ".log")
    logfile.unlink(missing_ok=True)
    for installer in installers:
        shutil.rmtree(home, ignore_errors=True)
        done = installer(plan, home, logfile)
        if done:
            break
    else:
        shutil.rmtree(home, ignore_errors=True)
        raise NoDataError(f"{request.text}: could not be installed: {decisive_line(logfile)}; the log is {logfile}")
    marker = {
        "spec": request.text,
        "requirements": plan.requirements,
        "source": done.source,
        "wheel_hash": done.wheel_hash,
    }
    temporary = home / "ready.json.new"
    temporary.write_text(json.dumps(marker))
    os.replace(temporary, home / "ready.json")
    return done


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


def _with_uv(plan: Recipe, home: Path, logfile: Path) -> Installed | None:
    extra = ["--extra-index-url", plan.extra_index, "--index-strategy", "unsafe-best-match"] if plan.extra_index else []
    python = home / "bin" / "python"
    made = _run(["uv", "venv", "--no-project", "--python", sys.executable, str(home)], logfile)
    if made and _run(["uv", "pip", "install", "--python", str(python), *extra, *plan.requirements], logfile):
        return Installed(python, "package index", "")
    return None


def _with_pip(plan: Recipe, home: Path, logfile: Path) -> Installed | None:
    extra = ["--extra-index-url", plan.extra_index] if plan.extra_index else []
    python = home / "bin" / "python"
    report = home / "pip-report.json"
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--report", str(report)]
    if not _run([sys.executable, "-m", "venv", str(home)], logfile):
        return None
    if not _run([*pip, *_PIP_LIMITS, *extra, *plan.requirements], logfile):
        return None
    return Installed(python, *_origin(report, plan.request.name))


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


def _run(command: list[str], logfile: Path) -> bool:
    """Run one installer command, its output appended to the log; return whether it succeeded."""
    environ = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    with logfile.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        except OSError as error:
            out.write(f"error: {command[0]}: {error.strerror}\n".encode())
            return False
        return done.returncode == 0
