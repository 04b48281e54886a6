"""The driver's side of a zygote: start it, hand it jobs, and outlive whatever happens to it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d3bot.engine.jobs import PRELOADS, EngineError, Job
from d3bot.engine.sweep import kill_all_of
from d3bot.spec import Arrays, Build, ErrorReport, Observation, RankObservation, Trace, read_trace

_WORKER = Path(__file__).parent / "worker" / "d3bot_zygote.py"
_START_SECONDS = 180
_SPARE_SECONDS = 15
_CLOSE_SECONDS = 5
_TAIL = 8000
_MAX_ARRAYS = 256 * 2**20
_MAX_OUTCOME = 2**20
_MAX_TRACE = 16 * 2**20
_MAX_LINE = 2**20

ALLOWED = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables of our own environment that a worker may see: no token, nothing of Actions or GitHub."""


def worker_environment(build: Build, env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the whole environment of a process that runs the build: an allow-list and the script's ENV."""
    kept = {name: os.environ[name] for name in ALLOWED if name in os.environ}
    kept |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    if build.overlay:
        kept["PYTHONPATH"] = build.overlay
    return kept | dict(env)


class Zygote:
    """A running zygote of one build and ENV.  Not thread-safe: one job at a time."""

    def __init__(self, build: Build, env: Mapping[str, str]):
        """Start it and wait until the library is imported; EngineError if it does not come up."""
        self._packages = PRELOADS[build.framework].packages
        self._home = Path(tempfile.mkdtemp(prefix="d3bot-"))
        self._log = (self._home / "zygote.log").open("wb")
        self._jobs = 0
        self._socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [build.python, str(_WORKER), str(theirs.fileno()), ",".join(PRELOADS[build.framework].modules)],
                env=worker_environment(build, env, self._home),
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            self._tidy()
            raise EngineError(f"{build.python} cannot be started ({error.strerror})") from error
        finally:
            theirs.close()
        try:
            hello = self._receive(_START_SECONDS)
        except BaseException:
            self.kill()
            raise
        if not hello.get("ready"):
            self.kill()
            raise EngineError(f"{build.label}: the library cannot be imported ({hello.get('error')})")

    def run(self, job: Job) -> Observation:
        """Run a job to its end.

        EngineError if the zygote was lost.  After that, and after any other exception, it is gone with everything
        below it: what it would have answered belongs to no later job.
        """
        self._jobs += 1
        folder = self._home / f"job-{self._jobs}"
        try:
            folder.mkdir()
            message = {
                "job": self._jobs,
                "folder": str(folder),
                "script": str(job.script.resolve()),
                "call": job.call,
                "framework": job.framework,
                "packages": self._packages,
                "processes": job.processes,
                "parts": job.parts,
                "steps": job.steps,
                "noise": list(job.noise),
                "shares": list(job.shares),
                "without": list(job.without),
                "pieces": job.pieces,
                "start": job.start,
                "trace": job.trace,
                "deadline": job.limits.seconds,
                "memory": job.limits.memory,
                "output": job.limits.output,
                "file": job.limits.file,
            }
            self._socket.settimeout(_SPARE_SECONDS)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            reply = self._receive(job.limits.seconds + _SPARE_SECONDS)
            return _observation(job, folder, reply)
        except OSError as error:
            self.kill()
            raise EngineError(f"the zygote is gone ({error})") from error
        except BaseException:
            self.kill()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the zygote and everything below it, and remove its files."""
        self._socket.close()  # it ends by itself when its socket closes
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the zygote at once, with everything below it, and remove its files."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        kill_all_of(self._home)
        self._tidy()

    def _tidy(self) -> None:
        self._socket.close()
        self._log.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Return the zygote's next answer; EngineError if none comes in time."""
        ends = time.monotonic() + seconds
        line = bytearray()
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(ends - time.monotonic(), 0.001))
            try:
                piece = self._socket.recv(65536)
            except OSError:  # a time-out is one too
                piece = b""
            if not piece or len(line) > _MAX_LINE:
                tail = " ".join(_tail(self._home / "zygote.log").split())[-300:]
                raise EngineError(f"the zygote ended without an answer {tail}".strip())
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer


def _observation(job: Job, folder: Path, reply: dict[str, Any]) -> Observation:
    ranks = []
    for rank, ended in enumerate(reply["ranks"]):
        name = "reference.npz" if job.call == "reference" else f"rank-{rank}.npz"
        complete = ended["code"] == 0 and (folder / f"rank-{rank}.json").is_file()  # the outcome is written last
        arrays = _load(folder / name) if complete else None
        ranks.append(
            RankObservation(
                code=ended["code"],
                why=ended["why"],
                seconds=ended["seconds"],
                arrays=arrays,
                error=_error(folder / f"rank-{rank}.json"),
                output=_tail(folder / f"rank-{rank}.out"),
                trace=_trace(folder, "reference" if job.call == "reference" else str(rank)) if job.trace else None,
            )
        )
    noise = tuple(_load(folder / f"noise-{i}.npz") for i in range(len(job.noise))) if ranks[0].code == 0 else ()
    shares = tuple(_load(folder / f"share-{i}.npz") for i in job.shares) if ranks[0].code == 0 else ()
    without = tuple(_load(folder / f"without-{i}.npz") for i in job.without) if ranks[0].code == 0 else ()
    start = _load(folder / "start.npz") if job.start and ranks[0].code == 0 else None
    moved = [_trace(folder, f"noise-{i}") for i in range(len(job.noise))] if job.trace else []
    return Observation(
        tuple(ranks),
        reply["seconds"],
        tuple(item for item in noise if item is not None),
        shares,
        start or {},
        tuple(item for item in moved if item is not None),
        without,
    )


def _trace(folder: Path, name: str) -> Trace | None:
    """Return what a process recorded on its way; None if it recorded nothing that can be read."""
    arrays, path = _load(folder / f"trace-{name}.npz"), folder / f"trace-{name}.json"
    if arrays is None or not path.is_file() or path.stat().st_size > _MAX_TRACE:
        return None
    try:
        return read_trace(json.loads(path.read_text()), arrays)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _load(path: Path) -> Arrays | None:
    """Return the arrays of a file that a script wrote; None if it is missing, too large or not what it should be."""
    if not path.is_file():  # opening a pipe would wait for its other end
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > _MAX_ARRAYS:
                return None
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception:  # what a garbled file raises is up to the file
        return None


def _error(path: Path) -> ErrorReport | None:
    """Return the exception that a rank left; None if it left none, or none that can be read."""
    if not path.is_file() or path.stat().st_size > _MAX_OUTCOME:
        return None
    try:
        data = json.loads(path.read_text())
        if data["ok"]:
            return None
        frames = tuple(str(frame) for frame in data["frames"])
        return ErrorReport(str(data["type"]), str(data["message"]), frames, str(data["text"]), float(data["at"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read(_TAIL).decode(errors="replace")
