"""A build is what its own interpreter says it is, and must be what was asked for."""

import os
import subprocess
from pathlib import Path

import pytest
from stand_in import TORCH, Environment

from d3bot.builds import NoDataError, resolve
from d3bot.builds.identify import content_hash, identify
from d3bot.builds.spec import parse
from d3bot.spec import Build, SpecError


def test_what_a_build_says_of_itself(environment: Environment) -> None:
    python = environment(TORCH)
    build = resolve(f"python:{python}")
    assert (build.framework, build.name, build.version, build.commit) == ("torch", "torch", "9.9.9+cpu", "cafe")
    assert build.packages == {"numpy": "2.4.6"}
    assert build.python == str(python), "a link to the base interpreter must not be followed"
    assert build.source == f"python:{python}"
    assert set(build.environment) == {"python", "os", "machine", "cpu"}
    assert build.label == "torch 9.9.9+cpu (cafe)"


def test_the_callers_environment_does_not_leak_in(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment(TORCH)
    stray = tmp_path / "stray" / "torch"
    stray.mkdir(parents=True)
    stray.joinpath("__init__.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.setenv("PYTHONPATH", str(stray.parent))
    monkeypatch.chdir(stray.parent)
    assert resolve(f"python:{python}").version == "9.9.9+cpu"


def test_another_library_than_the_one_meant(environment: Environment) -> None:
    python = environment(TORCH)
    with pytest.raises(SpecError, match=r"is another library: .* holds torch, not tensorflow"):
        resolve(f"python:{python}", framework="tensorflow")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds neither torch nor tensorflow"),
        ({**TORCH, "tensorflow/__init__.py": ""}, "holds torch and tensorflow; give"),
    ],
)
def test_not_one_library(environment: Environment, files: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        resolve(f"python:{environment(files)}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ImportError('libcudart.so.13:\\ncannot open')", "ImportError: libcudart.so.13: cannot open"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(7)", "ended with exit 7"),
        ("import os; os.kill(os.getpid(), 11)", "ended with signal 11"),
    ],
)
def test_a_library_that_does_not_import_is_no_data(environment: Environment, text: str, words: str) -> None:
    python = environment({**TORCH, "torch/__init__.py": text})
    with pytest.raises(NoDataError, match=words) as caught:
        resolve(f"python:{python}")
    assert "\n" not in str(caught.value)


def test_another_version_than_asked_for_is_no_data(environment: Environment) -> None:
    python = environment(TORCH)
    assert identify(python, None, parse("torch==9.9.9")).version == "9.9.9+cpu"
    with pytest.raises(NoDataError, match=r"imports 9\.9\.9\+cpu instead"):
        identify(python, None, parse("torch==9.9.8"))


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    python = tmp_path / "python"
    with pytest.raises(SpecError, match="is not a program"):
        resolve(f"python:{python}")
    python.mkdir()
    with pytest.raises(SpecError, match="is not a program"):
        resolve(f"python:{python}")


def fork(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(name).write_text(text)
    return folder


def test_an_overlay_is_what_gets_imported(environment: Environment, tmp_path: Path) -> None:
    python = environment(TORCH)
    changed = {**TORCH, "torch/version.py": "git_version = 'beef'\ncuda = None\n"}
    overlay = fork(tmp_path / "fork", {name: text for name, text in changed.items() if name.startswith("torch/")})
    build = resolve(f"overlay:{overlay}+python:{python}")
    assert build.commit == "beef"
    assert build.overlay == str(overlay)
    assert build.label.endswith("+ overlay")
    assert build.id != resolve(f"python:{python}").id


def test_a_fork_edited_in_place_is_another_build(environment: Environment, tmp_path: Path) -> None:
    python = environment(TORCH)
    overlay = fork(tmp_path / "fork", {name: text for name, text in TORCH.items() if name.startswith("torch/")})
    before = resolve(f"overlay:{overlay}+python:{python}")
    assert resolve(f"overlay:{overlay}+python:{python}").id == before.id
    fork(overlay, {"torch/nn/clip.py": "LIMIT = 2\n"})
    assert resolve(f"overlay:{overlay}+python:{python}").id != before.id


def test_byte_code_is_no_content(tmp_path: Path) -> None:
    overlay = fork(tmp_path, {"torch/__init__.py": ""})
    before = content_hash(overlay)
    fork(overlay, {"torch/__pycache__/__init__.cpython-311.pyc": "x"})
    assert content_hash(overlay) == before
    (overlay / "torch" / "lib").symlink_to("/nowhere")
    assert content_hash(overlay) != before


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"numpy/__init__.py": ""}, "holds none of the packages torch, keras, tensorflow"),
        ({"torch/README": "no package"}, r"torch is imported from .*site-packages.*, not from"),
        ({**TORCH, "keras/__init__.py": ""}, "holds keras, which torch does not import"),
        ({"keras/__init__.py": ""}, "is another library"),
    ],
)
def test_an_overlay_that_would_test_the_stock_library(
    environment: Environment, tmp_path: Path, files: dict[str, str], words: str
) -> None:
    python = environment(TORCH)
    overlay = fork(tmp_path / "fork", files)
    with pytest.raises(SpecError, match=words):
        resolve(f"overlay:{overlay}+python:{python}")


def test_the_answer_is_kept_until_the_environment_changes(environment: Environment, tmp_path: Path) -> None:
    python, kept = environment(TORCH), tmp_path / "identity.json"
    request = parse("torch==9.9.9")
    first = identify(python, None, request, cache=kept)
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    version = packages / "torch" / "version.py"
    version.write_text("git_version = 'beef5'\ncuda = None\n")  # another size, else the byte code would be taken
    assert identify(python, None, request, cache=kept) == first, "the probe ran again although nothing was installed"
    os.utime(packages)  # as an installation does
    assert identify(python, None, request, cache=kept).commit == "beef5"
    kept.write_text("half a fi")
    assert identify(python, None, request, cache=kept).commit == "beef5"


@pytest.mark.parametrize("name", ["torch_build", "tensorflow_build"])
def test_the_real_libraries(name: str, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(name)
    assert build.commit
    assert build.packages["numpy"]
    assert ("keras" in build.packages) is (build.framework == "tensorflow")
    again = subprocess.run(
        [build.python, "-c", f"import {build.framework} as m; print(m.__version__)"], capture_output=True, text=True
    )
    assert again.stdout.strip() == build.version
