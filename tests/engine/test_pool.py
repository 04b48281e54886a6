"""A zygote may die, and so may the driver: no job is lost without a word, and no process or file stays."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_scripts import BARE, write_script

from d3bot.engine import zygote as zygotes
from d3bot.engine.jobs import PRELOADS, EngineError, Job, Limits, Preload
from d3bot.engine.pool import Pool
from d3bot.engine.zygote import Zygote
from d3bot.spec import Build

FINE = "return {'predict': np.ones(1)}"


def started_in(home: Path) -> list[int]:
    """Every living process whose HOME is the folder or lies in it."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"HOME={home}".encode() in environment:
                found.append(int(name))
    return found


def until(happens: Callable[[], bool], seconds: float = 15) -> bool:
    ends = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def job(folder: Path, body: str, name: str = "trial.py") -> Job:
    return Job(write_script(folder, body, name, BARE), "distributed", "torch", limits=Limits(seconds=30))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zygotes that import numpy alone: what they do when they die does not depend on the library."""
    monkeypatch.setitem(PRELOADS, "torch", Preload(modules=("numpy",), packages=("torch",)))


@pytest.mark.usefixtures("light")
def test_a_zygote_killed_in_mid_job_is_an_engine_error_and_leaves_nothing(torch_build: Build, tmp_path: Path) -> None:
    zygote = Zygote(torch_build, {"OMP_NUM_THREADS": "1"})
    home, note = zygote._home, tmp_path / "ready"
    body = f"""
        if os.fork() == 0:
            os.setsid()
            open("{note}", "w").close()
        time.sleep(600)
    """
    killer = threading.Thread(
        target=lambda: until(note.exists) and os.kill(zygote._process.pid, signal.SIGKILL)  # type: ignore[func-returns-value]
    )
    killer.start()
    with pytest.raises(EngineError, match="without an answer"):
        zygote.run(job(tmp_path, body))
    killer.join()
    assert started_in(home) == []
    assert not home.exists()
    with pytest.raises(EngineError):
        zygote.run(job(tmp_path, FINE))


@pytest.mark.usefixtures("light")
def test_a_pool_replaces_lost_zygotes_and_gives_up_after_two(torch_build: Build, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    note = tmp_path / "once"
    with Pool(torch_build, {"OMP_NUM_THREADS": "1"}, 1) as pool:
        # The thread that starts a zygote ends before the pool does.
        thread = threading.Thread(target=pool.run, args=(job(tmp_path, FINE),))
        thread.start()
        thread.join()
        first = job(tmp_path, "return {'param pid': np.ones(1) * os.getppid()}", "pid.py")
        pids = [pool.run(first).ranks[0].arrays for _ in range(2)]
        assert pids[0] is not None
        assert pids[0] == pids[1], "one zygote serves them all, whichever thread started it"
        once = f"""
            if not os.path.exists("{note}"):
                open("{note}", "w").close()
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60)
            return {{'predict': np.ones(1)}}
        """
        assert pool.run(job(tmp_path, once, "once.py")).ok
        with pytest.raises(EngineError):
            pool.run(job(tmp_path, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)", "always.py"))
    with pytest.raises(EngineError, match="closed"):
        pool.run(job(tmp_path, FINE))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.usefixtures("light")
def test_an_interrupt_in_mid_job_ends_the_zygote(
    torch_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its late answer would be read as that of the next job."""
    zygote = Zygote(torch_build, {})
    home = zygote._home

    def interrupted(self: Zygote, seconds: float) -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Zygote, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        zygote.run(job(tmp_path, FINE))
    assert started_in(home) == []
    assert not home.exists()


@pytest.mark.parametrize("interpreter", ["/nowhere/python", sys.executable])
def test_a_build_that_cannot_be_imported_is_an_engine_error(
    torch_build: Build, interpreter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(zygotes.tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineError, match=r"cannot be (started|imported)"):
        Zygote(torch_build.model_copy(update={"python": interpreter}), {})
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


DRIVER = """
import sys, threading
from pathlib import Path
from d3bot.engine.jobs import Job
from d3bot.engine.pool import Pool
from d3bot.spec import Build
build, script = Build.model_validate_json(sys.argv[1]), Path(sys.argv[2])
Pool(build, {}, 1).run(Job(script, "distributed", "torch", 2))
"""


@pytest.mark.parametrize("moment", ["importing", "running"])
def test_a_killed_driver_leaves_no_process(torch_build: Build, tmp_path: Path, moment: str) -> None:
    note, temporary = tmp_path / "ready", tmp_path / "tmp"
    temporary.mkdir()
    body = f"""
        if rank == 0 and os.fork() == 0:
            os.setsid()
            open("{note}", "w").close()
        time.sleep(600)
    """
    script = write_script(tmp_path, body, head=BARE)
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), torch_build.model_dump_json(), str(script)],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        ready = note.exists if moment == "running" else lambda: started_in(temporary) != []
        assert until(ready, 60)
        assert started_in(temporary) != []
    finally:
        driver.kill()
        driver.wait()
    assert until(lambda: started_in(temporary) == []), "ranks, their children and the zygote end by themselves"
    if moment == "running":
        assert until(lambda: list(temporary.iterdir()) == [])
