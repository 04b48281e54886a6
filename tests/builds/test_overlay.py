"""An overlay is the stock package with a patch in it, made of links, and the stock stays as it was."""

import difflib
import subprocess
import time
from pathlib import Path

import pytest
from stand_in import TORCH, Environment

from d3bot.builds import make_overlay, resolve
from d3bot.spec import Build, SpecError

PATCH = "--- a/torch/nn/clip.py\n+++ b/torch/nn/clip.py\n@@ -2,3 +2,3 @@\n # two\n-LIMIT = 1\n+LIMIT = 2\n # four\n"


def run(python: Path | str, code: str, overlay: Path | None = None) -> str:
    environ = {"PYTHONPATH": str(overlay)} if overlay else {}
    done = subprocess.run([python, "-c", code], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    path = tmp_path / "fault.patch"
    path.write_text(PATCH)
    return path


def test_the_patched_file_is_imported_and_the_stock_is_untouched(
    environment: Environment, patch: Path, tmp_path: Path
) -> None:
    python = environment(TORCH)
    limit = "import torch; print(torch.nn.LIMIT)"
    assert run(python, limit) == "1"  # compiles the stock's byte code, which the overlay must not take over
    (stock,) = python.parent.parent.glob("lib/python*/site-packages/torch")
    before = {path: path.read_bytes() for path in stock.rglob("*") if path.is_file()}
    overlay = make_overlay(patch, python, tmp_path / "overlay")
    assert run(python, limit, overlay) == "2"
    assert run(python, limit, overlay) == "2", "with the byte code written by the first import"
    assert {path: path.read_bytes() for path in stock.rglob("*") if path.is_file()} == before
    assert run(python, limit) == "1"
    assert resolve(f"overlay:{overlay}+python:{python}").overlay == str(overlay)


def test_only_folders_on_the_way_are_real(environment: Environment, patch: Path, tmp_path: Path) -> None:
    python = environment({**TORCH, "torch/lib/libtorch.so": "", "torch/nn/modules/linear.py": ""})
    overlay = make_overlay(patch, python, tmp_path / "overlay")
    kinds = {
        str(path.relative_to(overlay)): "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        for path in [*overlay.glob("*"), *overlay.glob("torch/*"), *overlay.glob("torch/nn/*")]
    }
    assert kinds == {
        "torch": "folder",
        "torch/__init__.py": "link",
        "torch/version.py": "link",
        "torch/lib": "link",
        "torch/nn": "folder",
        "torch/nn/__init__.py": "link",
        "torch/nn/modules": "link",
        "torch/nn/clip.py": "file",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PATCH.replace("-LIMIT = 1", "-LIMIT = 7"), "does not apply"),
        (PATCH.replace("clip.py", "other.py"), "does not exist in this build"),
        (PATCH.replace("torch/nn/clip.py", "keras/clip.py"), "has no keras"),
    ],
)
def test_a_patch_of_another_build_leaves_nothing_behind(
    environment: Environment, tmp_path: Path, text: str, words: str
) -> None:
    patch = tmp_path / "fault.patch"
    patch.write_text(text)
    with pytest.raises(SpecError, match=words):
        make_overlay(patch, environment(TORCH), tmp_path / "overlay")
    assert not (tmp_path / "overlay").exists()


def test_a_folder_that_holds_something_is_not_touched(environment: Environment, patch: Path, tmp_path: Path) -> None:
    mine = tmp_path / "overlay" / "torch" / "mine.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("x")
    with pytest.raises(SpecError, match="is not an empty folder"):
        make_overlay(patch, environment(TORCH), tmp_path / "overlay")
    assert mine.read_text() == "x"


def test_an_interpreter_that_does_not_start(patch: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not start"):
        make_overlay(patch, tmp_path / "python", tmp_path / "overlay")
    with pytest.raises(SpecError, match="is not a working Python"):
        make_overlay(patch, Path("/bin/false"), tmp_path / "overlay")


@pytest.mark.parametrize(
    ("fixture", "module"),
    [
        ("torch_build", "torch.nn.utils.clip_grad"),
        ("tensorflow_build", "keras.src.losses.loss"),
        ("tensorflow_build", "tensorflow.python.ops.nn_impl_distribute"),
    ],
)
def test_a_fault_planted_in_the_real_library(
    fixture: str, module: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    build: Build = request.getfixturevalue(fixture)
    (packages,) = Path(build.python).parent.parent.glob("lib/python*/site-packages")
    file = module.replace(".", "/") + ".py"
    old = (packages / file).read_text().splitlines(keepends=True)
    new = [*old, "PLANTED = True\n"]
    patch = tmp_path / "fault.patch"
    patch.write_text("".join(difflib.unified_diff(old, new, f"a/{file}", f"b/{file}")))
    start = time.monotonic()
    overlay = make_overlay(patch, Path(build.python), tmp_path / "overlay")
    assert time.monotonic() - start < 2
    assert run(build.python, f"import {module} as m; print(m.PLANTED)", overlay).endswith("True")
    assert resolve(f"overlay:{overlay}+python:{build.python}").version == build.version
