"""What a person meets at the command line: each mistake is one line on stderr that says what, where and the mend."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from d3bot.spec import Build

SEED = """comment = "a test"
framework = "torch"
[[inputs]]
name = "x"
shape = [4]
[[layers]]
name = "fc"
op = "linear"
inputs = ["x"]
[layers.options]
units = 3
"""


def d3bot(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "d3bot", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def run_with(text: str) -> tuple[str, ...]:
    """Arguments of a run whose one seed file holds `text`."""
    return ("run", "--build", "python:@PYTHON", "--seeds", "seeds", "--fresh", "0", "--out", "out", "@SEED", text)


BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "unknown family": (("run", "--settings", "warp(world=2)", "--out", "out"), 2, "no setting matches"),
    "unknown option": (("run", "--settings", "ddp(world=2, speed=9)", "--out", "out"), 2, "no option 'speed'"),
    "no such shard": (("run", "--shard", "5/4", "--out", "out"), 2, "5/4"),
    "previous is missing": (("run", "--previous", "nowhere", "--out", "out"), 2, "nowhere"),
    "resume of nothing": (("run", "--resume", "--out", "out"), 2, "out is not there"),
    "unknown build": (("run", "--build", "jax==1.0", "--out", "out"), 2, "jax"),
    "no such interpreter": (("run", "--build", "python:/no/such/python", "--out", "out"), 2, "/no/such/python"),
    "not a library": (("run", "--build", f"python:{sys.executable}", "--out", "out"), 2, "torch"),
    "unknown list": (("list", "bugs"), 2, "settings, layers, seeds, contracts"),
    "not a run folder": (("compare", "a", "b"), 2, "a"),
    "no faults": (("bench", "recall", "--faults", "nowhere"), 2, "nowhere"),
    "unknown layer": (run_with(SEED.replace('"linear"', '"warp"')), 2, "no layer 'warp'"),
    "unknown key": (run_with(SEED + "\ncolour = 3\n"), 2, "colour"),
    "malformed TOML": (run_with("comment = 'a\n["), 2, "not valid TOML"),
    "code in a name": (run_with(SEED.replace('"fc"', "\"__import__('os')\"")), 2, "layers.0.name"),
    "code in an option": (run_with(SEED.replace("units = 3", 'units = "3); import os; (1"')), 2, "options"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_nothing_half_written(name: str, torch_build: Build, tmp_path: Path) -> None:
    arguments, code, text = BAD[name]
    given = list(arguments)
    if "@SEED" in given:
        place = given.index("@SEED")
        (tmp_path / "seeds" / "torch").mkdir(parents=True)
        (tmp_path / "seeds" / "torch" / "bad.toml").write_text(given[place + 1])
        given = [item.replace("@PYTHON", torch_build.python) for item in given[:place]]
    done = d3bot(*given, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("d3bot: ")
    assert text in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_of_the_command_is_one_line(tmp_path: Path) -> None:
    done = d3bot("run", "--speed", "9", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_malformed_configuration_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "d3bot.toml").write_text("builds = [")
    done = d3bot("run", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "d3bot.toml" in done.stderr


def test_a_run_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text('{"schema": 99}')
    done = d3bot("compare", "a", "b", cwd=tmp_path)
    assert done.returncode == 2
    assert "newer" in done.stderr


@pytest.mark.parametrize("what", ["settings", "layers", "seeds", "contracts"])
def test_lists_are_json_for_machines(what: str, tmp_path: Path) -> None:
    done = d3bot("list", what, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) > 3


def test_a_seed_is_replayed_and_printed_as_a_script(torch_build: Build, tmp_path: Path) -> None:
    seed = tmp_path / "one.toml"
    seed.write_text(SEED)
    build = f"python:{torch_build.python}"
    done = d3bot("replay", str(seed), "--setting", "ddp(world=2)", "--build", build, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line["kind"] for line in json.loads(done.stdout)] == ["pass"]
    printed = d3bot("script", str(seed), "--setting", "ddp(world=2)", cwd=tmp_path)
    (tmp_path / "repro.py").write_text(printed.stdout)
    by_hand = subprocess.run([torch_build.python, "repro.py"], cwd=tmp_path, capture_output=True, text=True)
    assert by_hand.returncode == 0, by_hand.stderr
    assert "d3bot" not in printed.stdout.split('"""')[2]
