"""The stand-in library as wheels, or put into an environment without pip."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in import TORCH, Environment
from toy_index import ToyIndex, serve


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Make an environment that holds the given files in its site-packages; return its interpreter."""

    def make(files: dict[str, str]) -> Path:
        home = tmp_path / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        (packages,) = home.glob("lib/python*/site-packages")
        for name, text in files.items():
            packages.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            packages.joinpath(name).write_text(text)
        return home / "bin" / "python"

    return make


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of the stand-in torch 9.9.9+cpu and of an empty numpy."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, version, files in (("torch", "9.9.9+cpu", TORCH), ("numpy", "2.4.6", {"numpy/__init__.py": ""})):
        info = f"{name}-{version}.dist-info"
        contents = {path: text for path, text in files.items() if path.startswith(f"{name}/")}
        contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in contents.items():
                wheel.writestr(path, text)
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ToyIndex]:
    """An empty package index on loopback."""
    folder = tmp_path / "index"
    folder.mkdir()
    with serve(folder) as served:
        yield served
