"""A folder of faults is read into Faults, framework by framework."""

import json
from pathlib import Path

import pytest

from d3bot.builds import load_faults
from d3bot.spec import SpecError

DIFF = "--- a/{0}/x.py\n+++ b/{0}/x.py\n@@ -1 +1 @@\n-x\n+y\n"


def plant(folder: Path, package: str = "torch", meta: object = None) -> Path:
    folder.mkdir(parents=True)
    folder.joinpath("fault.patch").write_text(DIFF.format(package))
    data = {"id": folder.name, "title": "a sum\nfor a mean", "level": 2} if meta is None else meta
    folder.joinpath("meta.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("names", [("torch", "tf"), ("torch", "tensorflow"), (".", ".")])
def test_one_level_down_or_directly(tmp_path: Path, names: tuple[str, str]) -> None:
    plant(tmp_path / names[0] / "ddp-sum")
    plant(tmp_path / names[1] / "keras-sum", "keras")
    plant(tmp_path / names[1] / "assign", "tensorflow")
    faults = load_faults(tmp_path)
    assert [(fault.framework, fault.id) for fault in faults] == [
        ("tensorflow", "assign"),
        ("tensorflow", "keras-sum"),
        ("torch", "ddp-sum"),
    ]
    assert faults[2].title == "a sum for a mean"
    assert faults[2].patch == tmp_path / names[0] / "ddp-sum" / "fault.patch"


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"title": "t"}, '"id" must be'),
        ({"id": "../x", "title": "t"}, '"id" must be'),
        ({"id": "x", "title": " "}, '"title" must say'),
        (["x"], '"id" must be'),
    ],
)
def test_a_meta_that_says_too_little(tmp_path: Path, meta: object, words: str) -> None:
    plant(tmp_path / "x", meta=meta)
    with pytest.raises(SpecError, match=words):
        load_faults(tmp_path)


def test_broken_folders(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a folder"):
        load_faults(tmp_path / "nowhere")
    with pytest.raises(SpecError, match="holds no fault"):
        load_faults(tmp_path)
    meta = plant(tmp_path / "torch" / "x") / "meta.json"
    meta.write_text("{")
    with pytest.raises(SpecError, match="not valid JSON"):
        load_faults(tmp_path)
    meta.unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        load_faults(tmp_path)


def test_one_id_for_two_faults_of_a_framework(tmp_path: Path) -> None:
    plant(tmp_path / "a" / "x")
    plant(tmp_path / "b" / "x", "keras")
    assert len(load_faults(tmp_path)) == 2
    plant(tmp_path / "c" / "x")
    with pytest.raises(SpecError, match="has the id 'x' of"):
        load_faults(tmp_path)


def test_a_fault_of_two_frameworks(tmp_path: Path) -> None:
    plant(tmp_path / "x").joinpath("fault.patch").write_text(DIFF.format("torch") + DIFF.format("keras"))
    with pytest.raises(SpecError, match="changes both torch and keras"):
        load_faults(tmp_path)
