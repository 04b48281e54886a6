"""Environments are made once, whole, by one process, from what the machine's pip offers; and failures say why."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from d3bot.builds import Index, NoDataError, default_cache
from d3bot.builds import install as module
from d3bot.builds.install import Installed, decisive_line, environments_made, install, reachable, recipe
from d3bot.builds.spec import Exact, parse


def exact(spec: str) -> Exact:
    request = parse(spec)
    assert isinstance(request, Exact)
    return request


class Offline:
    """A machine without a network whose pip knows one folder of wheels."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.said: list[str] = []

    def install(self, spec: str = "torch==9.9.9") -> Installed:
        return install(recipe(exact(spec)), self.cache, self.said.append, Index(pip_config="machine"))


@pytest.fixture
def offline(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Offline:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(module, "reachable", lambda index: False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return Offline(tmp_path / "cache")


def test_made_once_from_what_pip_offers_then_found_without_it(
    offline: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = offline.install()
    assert "does not answer" in offline.said[1]
    assert made.pip_config == "machine"
    assert made.source == "torch-9.9.9+cpu-py3-none-any.whl"
    assert made.wheel_hash.startswith("sha256:")
    seen = subprocess.run([made.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    assert seen.stdout == "9.9.9+cpu\n"

    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    offline.said.clear()
    assert offline.install() == made
    assert offline.said == []
    assert environments_made(offline.cache) == [("torch==9.9.9", made.python)]


def test_a_half_made_environment_is_made_anew(offline: Offline) -> None:
    home = offline.cache / "envs" / recipe(exact("torch==9.9.9")).folder
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    left = home / "left-by-a-killed-run"
    left.touch()
    assert environments_made(offline.cache) == []
    assert offline.install().home == home
    assert not left.exists()


def test_an_environment_whose_python_is_gone_is_made_anew(offline: Offline) -> None:
    made = offline.install()
    made.python.unlink()
    made.python.symlink_to("/nowhere/python")
    assert offline.install() == made
    assert made.python.exists()


CALL = """
import sys
from pathlib import Path
from d3bot.builds import install as module
from d3bot.builds import Index
from d3bot.builds.spec import parse
module.reachable = lambda index: False
plan = module.recipe(parse("torch==9.9.9"))
print(module.install(plan, Path(sys.argv[1]), lambda line: print(line), Index(pip_config="machine")).python)
"""


def test_of_two_runs_at_once_one_installs_and_both_have_it(offline: Offline) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", CALL, str(offline.cache)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert sum("installing into" in output for output in outputs) == 1


def test_a_version_that_pip_cannot_find(offline: Offline) -> None:
    with pytest.raises(NoDataError) as caught:
        offline.install("torch==9.9.8")
    message = str(caught.value)
    assert message.startswith(
        "torch==9.9.8: could not be installed: ERROR: No matching distribution found for torch==9.9.8"
    )
    assert "\n" not in message
    (log,) = offline.cache.glob("envs/*.log")
    assert message.endswith(f"the log is {log}")
    assert environments_made(offline.cache) == []
    assert not [path for path in offline.cache.glob("envs/*") if path.is_dir()]


def test_too_little_disk_is_said_before_anything_is_made(offline: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int = 2**30

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage())
    with pytest.raises(NoDataError, match=r"has 1\.0 GiB free and needs about 2; .* D3BOT_CACHE"):
        offline.install()
    with pytest.raises(NoDataError, match="needs about 3"):
        offline.install("tensorflow-cpu==2.21.0")
    assert not [path for path in offline.cache.glob("envs/*") if path.is_dir()]


def test_a_cache_that_cannot_be_written(offline: Offline) -> None:
    offline.cache.write_text("a file")
    with pytest.raises(NoDataError, match="set D3BOT_CACHE to a folder that can be written"):
        offline.install()


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "Collecting x\nERROR: No matching distribution found for x\n\n",
            "ERROR: No matching distribution found for x",
        ),
        ("OSError: [Errno 28] No space left on device\nERROR: x\n", "OSError: [Errno 28] No space left on device"),
        ("ERROR: Cannot install a\nERROR: ResolutionImpossible: for help visit x\n", "ERROR: Cannot install a"),
        ("Collecting torch\nKilled\n", "Killed"),
        ("", "the installer printed nothing"),
    ],
)
def test_the_decisive_line_of_a_log(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert decisive_line(path) == line


def test_nothing_listens_where_nothing_answers() -> None:
    assert not reachable("http://127.0.0.1:1/whl")


@pytest.mark.parametrize(
    ("spec", "requirements"),
    [
        ("torch==2.13.0", ("torch==2.13.0", "numpy==2.4.6")),
        ("torch==2.13.0+cpu", ("torch==2.13.0+cpu", "numpy==2.4.6")),
        ("tensorflow-cpu==2.21.0", ("tensorflow-cpu==2.21.0", "numpy==2.4.6", "keras==3.15.1")),
        ("torch==2.9.1", ("torch==2.9.1", "numpy")),
    ],
)
def test_companions_are_pinned_where_they_decide_numbers(spec: str, requirements: tuple[str, ...]) -> None:
    assert recipe(exact(spec)).requirements == requirements


def test_torchrec_beside_the_cpu_build_of_fbgemm_is_installed_without_asking_for_the_cuda_one() -> None:
    both = recipe(exact("torch==2.13.0 with torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0"))
    assert both.alone == ("torchrec==1.8.0",)
    assert {"fbgemm-gpu-cpu==1.8.0", "tensordict", "torchmetrics==1.0.3"} <= set(both.requirements)
    assert recipe(exact("torch==2.13.0 with torchrec==1.8.0 fbgemm-gpu==1.8.0")).alone == ()
    assert recipe(exact("torch==2.13.0")).alone == ()


def test_every_recipe_has_a_folder_of_its_own() -> None:
    specs = ["torch==2.13.0", "torch==2.13.0+cpu", "torch==2.9.1", "tensorflow==2.21.0", "tensorflow-cpu==2.21.0"]
    assert len({recipe(exact(spec)).folder for spec in specs}) == len(specs)
    assert recipe(exact("torch==2.13.0")) == recipe(exact("torch==2.13.0"))


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert default_cache({"D3BOT_CACHE": str(tmp_path)}) == tmp_path
    assert default_cache({"D3BOT_CACHE": ""}).name == "d3bot"
