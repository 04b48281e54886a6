"""The driver's side of a zygote: start it, hand it jobs, and outlive whatever happens to it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d3bot.engine.jobs import PRELOADS, EngineError, Job
from d3bot.spec import Arrays, Build, ErrorReport, Observation, RankObservation

_WORKER = Path(__file__).parent / "worker" / "d3bot_zygote.py"
_START_SECONDS = 180
_SPARE_SECONDS = 15
_TAIL = 8000
_MAX_ARRAY_FILE = 256 * 2**20

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
        ours, theirs = socket.socketpair()
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
            shutil.rmtree(self._home, ignore_errors=True)
            raise EngineError(f"{build.python} cannot be started ({error.strerror})") from error
        finally:
            theirs.close()
        self._socket = ours
        self._stream = ours.makefile("rw")
        hello = self._receive(_START_SECONDS)
        if not hello.get("ready"):
            self.close()
            raise EngineError(f"{build.label}: the library cannot be imported ({hello.get('error')})")

    def run(self, job: Job) -> Observation:
        """Run a job to its end.  EngineError if the zygote was lost; it must then be replaced."""
        self._jobs += 1
        folder = Path(tempfile.mkdtemp(prefix=f"job-{self._jobs}-", dir=self._home))
        try:
            message = {
                "job": self._jobs,
                "folder": str(folder),
                "script": str(job.script.resolve()),
                "call": job.call,
                "framework": job.framework,
                "packages": self._packages,
                "processes": job.processes,
                "parts": job.parts,
                "noise": list(job.noise),
                "deadline": job.limits.seconds,
                "memory": job.limits.memory,
                "output": job.limits.output,
                "file": job.limits.file,
            }
            try:
                self._stream.write(json.dumps(message) + "\n")
                self._stream.flush()
            except OSError as error:
                raise EngineError("the zygote is gone") from error
            reply = self._receive(job.limits.seconds + _SPARE_SECONDS)
            return _observation(job, folder, reply)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the zygote and everything below it, and remove its files."""
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()  # it ends by itself when its socket closes
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _receive(self, seconds: float) -> dict[str, Any]:
        timer = threading.Timer(seconds, self._kill)
        timer.start()
        try:
            line = self._stream.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            with contextlib.suppress(OSError):
                self._log.flush()
            tail = (self._home / "zygote.log").read_text(errors="replace")[-500:] if self._home.exists() else ""
            self.close()
            raise EngineError(f"the zygote ended without an answer {' '.join(tail.split())[-300:]}".strip())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _observation(job: Job, folder: Path, reply: dict[str, Any]) -> Observation:
    ranks = []
    for rank, ended in enumerate(reply["ranks"]):
        name = "reference.npz" if job.call == "reference" else f"rank-{rank}.npz"
        arrays = _load(folder / name) if ended["code"] == 0 else None
        ranks.append(
            RankObservation(
                code=ended["code"],
                why=ended["why"],
                seconds=ended["seconds"],
                arrays=arrays,
                error=_error(folder / f"rank-{rank}.json"),
                output=_tail(folder / f"rank-{rank}.out"),
            )
        )
    noise = tuple(_load(folder / f"noise-{i}.npz") for i in range(len(job.noise))) if ranks[0].code == 0 else ()
    return Observation(tuple(ranks), reply["seconds"], tuple(item for item in noise if item is not None))


def _load(path: Path) -> Arrays | None:
    if not path.is_file() or path.stat().st_size > _MAX_ARRAY_FILE:
        return None
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _error(path: Path) -> ErrorReport | None:
    if not path.is_file():
        return None
    data = json.loads(path.read_text())
    if data.get("ok"):
        return None
    return ErrorReport(data["type"], data["message"], tuple(data["frames"]), data["text"], data["at"])


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read().decode(errors="replace")
