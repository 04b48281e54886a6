"""`python repro.py` as a maintainer runs it: an exit code and what was printed, and nothing stays."""

import os
import time
from pathlib import Path

import pytest
from engine_scripts import alive

from d3bot.engine.jobs import EngineError
from d3bot.engine.script import run_script
from d3bot.spec import Build


def python(folder: Path, text: str, build: Build, seconds: float = 20) -> tuple[int | None, str]:
    script = folder / "finding.py"
    script.write_text(text)
    done = run_script(build, script, seconds)
    return done.code, done.output


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("print('equal')", 0, "equal\n"),
        ("import sys; print('wrong'); sys.exit(1)", 1, "wrong\n"),
        ("import sys; sys.exit(2)", 2, ""),
        ("import os; os.abort()", -6, ""),
        ("import sys; print(sys.argv, __file__, __name__)", 0, "['repro.py'] ./repro.py __main__\n"),
    ],
)
def test_exit_code_and_output(torch_build: Build, tmp_path: Path, text: str, code: int, output: str) -> None:
    assert python(tmp_path, text, torch_build) == (code, output)


def test_an_exception_is_exit_code_1_with_its_traceback(torch_build: Build, tmp_path: Path) -> None:
    code, output = python(tmp_path, "raise ValueError('no')", torch_build)
    assert code == 1
    assert output.endswith("ValueError: no\n")


def test_time_is_up_for_it_and_all_that_it_started(torch_build: Build, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    text = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    open({str(note)!r}, "w").write(str(os.getpid()))
print("before", flush=True)
time.sleep(600)
"""
    began = time.monotonic()
    assert python(tmp_path, text, torch_build, seconds=1.5)[0] is None
    assert time.monotonic() - began < 8
    assert not alive(int(note.read_text()))


def test_what_it_leaves_running_is_ended_with_it(torch_build: Build, tmp_path: Path) -> None:
    text = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    code, output = python(tmp_path, text, torch_build)
    assert code == 0
    assert not alive(int(output))


def test_a_flood_keeps_its_end(torch_build: Build, tmp_path: Path) -> None:
    code, output = python(tmp_path, "print('x' * 10**6); print('the end')", torch_build)
    assert code == 0
    assert len(output) == 200_000
    assert output.endswith("the end\n")


def test_it_sees_no_secret_and_no_trace_of_us(
    torch_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "secret")
    before = len(os.listdir("/proc/self/fd"))
    text = "import os; print(sorted(os.environ), os.listdir('.'))"
    _, output = python(tmp_path, text, torch_build)
    assert "TOKEN" not in output
    assert output.endswith("['output.txt', 'repro.py']\n") or output.endswith("['repro.py', 'output.txt']\n")
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_interpreter_that_is_not_there_is_an_engine_error(torch_build: Build, tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        python(tmp_path, "", torch_build.model_copy(update={"python": "/nowhere/python"}))
