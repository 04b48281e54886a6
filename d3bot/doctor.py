"""Preflight: can this machine run trials, and what can it not test?  Every failure says what to do about it.

Looking (`probe`) is apart from judging (`judge`), which is a pure function of the facts.
"""

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from d3bot.builds.errors import NoDataError
from d3bot.builds.identify import identify
from d3bot.builds.install import NEEDED_GIB, environments_made
from d3bot.builds.probe import nvidia
from d3bot.builds.spec import parse
from d3bot.spec import SpecError

OLDEST_PYTHON = (3, 11)
GIB = 2**30
OUT_GIB = 0.5
"""A run folder holds text; what needs room is the arrays of the trials in flight."""
GIB_PER_WORLD = 3.0
"""A preloaded parent, the ranks forked from it, and the noise runs beside them."""
PORTS = 1000
FILES = 1024
SHM_MIB = 64
"""Containers get this much by default, which NCCL and data loader workers outgrow."""


@dataclass(frozen=True)
class Check:
    """One line of the doctor's answer.  `ok` None is a limit to know of, which stops nothing."""

    name: str
    ok: bool | None
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Folder:
    """A folder that will be written to.  `error` says why it cannot be, or is empty."""

    path: str
    free_gib: float
    error: str = ""


@dataclass(frozen=True)
class Environment:
    """An environment made earlier.  `error` says why its library does not import, or is empty."""

    name: str
    detail: str
    error: str = ""
    cuda: str = ""
    nccl: str = ""


@dataclass(frozen=True)
class Facts:
    """What was seen on the machine."""

    system: str
    python: tuple[int, int]
    cache: Folder
    out: Folder
    memory_gib: float
    cores: int
    loopback: str
    """Why no port can be bound on 127.0.0.1, or empty."""
    hostname: str
    """Why this machine's own name has no address, or empty."""
    ports: int
    """How many ports the system gives out by itself."""
    files: int
    """How many files a process may have open; 0 for any number."""
    shm_mib: float | None
    """Size of /dev/shm, or None where there is none."""
    uv: bool
    venv: bool
    """Whether this Python can make environments with pip in them."""
    gpus: tuple[str, ...]
    gpu_error: str
    """What nvidia-smi says in place of a list of GPUs, or empty."""
    environments: tuple[Environment, ...]


def diagnose(cache: Path, out: Path) -> list[Check]:
    """Return the checks of this machine, for environments under `cache` and a run folder at `out`.

    Imports the library of every environment made earlier, which takes some seconds each.
    """
    return judge(probe(cache, out))


def judge(facts: Facts) -> list[Check]:
    """Return what the facts mean, in the order in which a person would mend them."""
    return [
        _system(facts),
        _python(facts),
        _installer(facts),
        _disk("disk for environments", facts.cache, _cache_need(facts), "set D3BOT_CACHE to a folder on a larger disk"),
        _disk("disk for the run", facts.out, OUT_GIB, "choose another --out"),
        _memory(facts),
        _cores(facts),
        _loopback(facts),
        _hostname(facts),
        _ports(facts),
        _files(facts),
        _shm(facts),
        _gpus(facts),
        *_environments(facts),
        _nccl(facts),
    ]


def preflight(cache: Path, out: Path) -> None:
    """NoDataError if a run cannot even begin here: that is no fault of the library, and must never look like one.

    Takes some milliseconds; what needs a library imported is left to the doctor.
    """
    looks = (
        _disk("disk for the run", _folder(out), OUT_GIB, "choose another --out"),
        _disk("disk for environments", _folder(cache), OUT_GIB, "set D3BOT_CACHE to a folder on a larger disk"),
        _port(_bind()),
    )
    for check in looks:
        if check.ok is False:
            raise NoDataError(f"{check.name}: {check.detail}; {check.mend}")


def _system(facts: Facts) -> Check:
    if facts.system == "Linux":
        return Check("system", True, "Linux")
    mend = "run it on Linux, in a container or a virtual machine for example"
    return Check("system", False, f"{facts.system}: ranks are forked and limited by what Linux offers", mend)


def _python(facts: Facts) -> Check:
    have, want = (".".join(map(str, version)) for version in (facts.python, OLDEST_PYTHON))
    ok = facts.python >= OLDEST_PYTHON
    return Check("python", ok, have, "" if ok else f"run d3bot with Python {want} or newer")


def _installer(facts: Facts) -> Check:
    if facts.uv or facts.venv:
        return Check("installer", True, "uv, pip behind it" if facts.uv else "venv and pip")
    mend = "install your system's package for venv (Debian: python3-venv), or uv"
    return Check("installer", False, "this Python has no venv with pip, and there is no uv", mend)


def _cache_need(facts: Facts) -> float:
    """An environment made earlier needs no room again; without one, the smallest must fit."""
    return OUT_GIB if facts.environments else float(min(NEEDED_GIB.values()))


def _disk(name: str, folder: Folder, need: float, mend: str) -> Check:
    if folder.error:
        return Check(
            name, False, f"{folder.path}: cannot be written ({folder.error})", f"mend its permissions, or {mend}"
        )
    detail = f"{folder.path}: {folder.free_gib:.1f} GiB free"
    ok = folder.free_gib >= need
    return Check(name, ok, detail, "" if ok else f"needs about {need:g} GiB: free some space, or {mend}")


def _memory(facts: Facts) -> Check:
    detail = f"{facts.memory_gib:.1f} GiB"
    if facts.memory_gib >= GIB_PER_WORLD:
        return Check("memory", True, detail)
    mend = f"a set of ranks needs about {GIB_PER_WORLD:g} GiB: close other programs, or expect trials to be killed"
    return Check("memory", False, detail, mend)


def _cores(facts: Facts) -> Check:
    if facts.cores >= 2:
        return Check("cores", True, str(facts.cores))
    return Check("cores", None, "1: ranks take turns, so time limits may be met", "expect slow runs; use one worker")


def _loopback(facts: Facts) -> Check:
    return _port(facts.loopback)


def _port(error: str) -> Check:
    if not error:
        return Check("loopback", True, "127.0.0.1 can be bound")
    mend = "ranks meet there: bring the interface up (ip link set lo up), or allow it in the sandbox"
    return Check("loopback", False, f"127.0.0.1 cannot be bound ({error})", mend)


def _hostname(facts: Facts) -> Check:
    if not facts.hostname:
        return Check("host name", True, "this machine's own name has an address")
    mend = "gloo may look it up: add the name to /etc/hosts behind 127.0.0.1"
    return Check("host name", None, f"this machine's own name has no address ({facts.hostname})", mend)


def _ports(facts: Facts) -> Check:
    detail = f"{facts.ports} are given out by the system"
    if facts.ports >= PORTS:
        return Check("ports", True, detail)
    mend = "ranks of many trials may find none: widen net.ipv4.ip_local_port_range, or use fewer workers"
    return Check("ports", None, detail, mend)


def _files(facts: Facts) -> Check:
    detail = f"{facts.files or 'any number of'} for a process"
    if not facts.files or facts.files >= FILES:
        return Check("open files", True, detail)
    return Check("open files", None, detail, f"raise the limit for many ranks: ulimit -n {FILES}")


def _shm(facts: Facts) -> Check:
    if facts.shm_mib is None:
        return Check("shared memory", None, "no /dev/shm", "mount a tmpfs there; NCCL and data loader workers need it")
    detail = f"/dev/shm: {facts.shm_mib:.0f} MiB"
    if facts.shm_mib > SHM_MIB:
        return Check("shared memory", True, detail)
    return Check(
        "shared memory", None, detail, "small for NCCL and data loader workers: start the container with --shm-size=1g"
    )


def _gpus(facts: Facts) -> Check:
    if facts.gpu_error:
        mend = "restart the machine or mend its driver; where only CPU settings matter, take nvidia-smi off PATH"
        return Check("GPUs", False, f"nvidia-smi fails: {facts.gpu_error}", mend)
    count = len(facts.gpus)
    if count == 0:
        return Check("GPUs", None, "none: CPU settings are tested, NCCL and CUDA kernels are not")
    names = ", ".join(facts.gpus)
    if count == 1:
        limit = "one GPU cannot hold two NCCL ranks, so NCCL settings are not tested; gloo with CUDA tensors is"
        return Check("GPUs", None, f"{names}: {limit}")
    return Check("GPUs", True, f"{names}: NCCL settings of up to {count} ranks")


def _environments(facts: Facts) -> list[Check]:
    if not facts.environments:
        return [
            Check("environments", None, "none made yet: the first run installs its builds, later ones need no network")
        ]
    mend = "remove its folder under the cache; the next run makes it anew"
    return [
        Check(f"environment {item.name}", not item.error, item.error or item.detail, mend if item.error else "")
        for item in facts.environments
    ]


def _nccl(facts: Facts) -> Check:
    """Say which environments could run NCCL here: it takes GPUs, and a build that holds CUDA and NCCL."""
    able = [f"{item.name} (CUDA {item.cuda}, NCCL {item.nccl})" for item in facts.environments if item.nccl]
    if len(facts.gpus) > 1 and able:
        return Check("NCCL", True, ", ".join(able))
    why = "there are not two GPUs" if len(facts.gpus) < 2 else "no environment made so far holds it"
    return Check("NCCL", None, f"not tested here: {why}; ranks talk over gloo")


def probe(cache: Path, out: Path) -> Facts:
    """Return what is seen on this machine now."""
    gpus, gpu_error = nvidia("name")
    return Facts(
        system=platform.system(),
        python=sys.version_info[:2],
        cache=_folder(cache),
        out=_folder(out),
        memory_gib=_available_memory() / GIB,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        loopback=_bind(),
        hostname=_own_name(),
        ports=_port_range(),
        files=_open_files(),
        shm_mib=shutil.disk_usage("/dev/shm").total / 2**20 if os.path.isdir("/dev/shm") else None,
        uv=shutil.which("uv") is not None,
        venv=find_spec("venv") is not None and find_spec("ensurepip") is not None,
        gpus=tuple(gpus),
        gpu_error=gpu_error,
        environments=tuple(_look(spec, python) for spec, python in environments_made(cache)),
    )


def _folder(path: Path) -> Folder:
    """Look at a folder, or at the nearest one above it if it is not there yet, without leaving anything."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Folder(str(path), 0.0, error.strerror or type(error).__name__)
    return Folder(str(path), shutil.disk_usage(there).free / GIB)


def _available_memory() -> int:
    """Return the bytes that may be used: of the machine, or of the container if it has less."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        available = pages
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no cgroup, or "max"
        return available
    return min(available, max(limit - used, 0))


def _bind() -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _own_name() -> str:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _port_range() -> int:
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return PORTS
    return high - low + 1


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def _look(spec: str, python: Path) -> Environment:
    name = python.parent.parent.name
    try:
        build = identify(python, None, parse(spec))
    except (NoDataError, SpecError) as error:
        return Environment(name, "", str(error))
    told = build.environment
    detail = f"{build.label}, Python {told['python']}"
    return Environment(name, detail, "", told.get("cuda", ""), told.get("nccl", ""))
