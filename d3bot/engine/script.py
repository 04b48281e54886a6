"""Running a finding's script as a maintainer would: `python repro.py`, in a process of its own."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from d3bot.engine.jobs import EngineError, Limits
from d3bot.engine.sweep import kill_all_of
from d3bot.engine.zygote import worker_environment
from d3bot.spec import Build

_MAX_OUTPUT = 200_000
_FILE = Limits().file


@dataclass(frozen=True)
class ScriptRun:
    """What `python repro.py` did.  `code` is None if it did not end within its time."""

    code: int | None
    output: str


def run_script(build: Build, script: Path, seconds: float) -> ScriptRun:
    """Run the file with the build's interpreter and nothing of ours but the file itself.

    Everything it started is killed with it when it ends or its time is over.  EngineError if it cannot be started.
    """
    home = Path(tempfile.mkdtemp(prefix="d3bot-script-"))
    try:
        shutil.copy(script, home / "repro.py")
        with (home / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [build.python, "repro.py"],
                cwd=home,
                env=worker_environment(build, {}, home),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                with contextlib.suppress(OSError):  # it may have ended already
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_FILE, _FILE))
                    resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with (home / "output.txt").open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _MAX_OUTPUT))
            text = output.read(_MAX_OUTPUT).decode(errors="replace")
        return ScriptRun(code, text.replace(str(home), "."))
    except OSError as error:
        raise EngineError(f"{build.python} repro.py: {error.strerror}") from error
    finally:
        kill_all_of(home)
        shutil.rmtree(home, ignore_errors=True)
