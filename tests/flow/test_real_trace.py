"""`replay --trace` on real processes: what a healthy build shows, and what a planted fault does."""

import json
from pathlib import Path

import pytest
from planted import FIRST_REPLICA_ONLY, HALVED_SHARDS, plant
from typer.testing import CliRunner

from d3bot.cli import app
from d3bot.config import Config
from d3bot.flow.replay import Followed, load_trial, trace_trials
from d3bot.spec import Build

SEEDS = Path(__file__).parents[2] / "seeds"


def followed(build: Build, seed: str, setting: str) -> Followed:
    trials = load_trial(SEEDS / build.framework / f"{seed}.toml", setting)
    (item,) = trace_trials(trials, f"python:{build.python}", Config())
    assert item.traced is not None
    return item


@pytest.mark.parametrize(
    ("seed", "setting"),
    [
        ("tied-linear-pair", "ddp(world=2)"),
        ("tied-linear-pair", "fsdp1(world=2)"),
        ("tied-linear-pair", "fsdp2(world=2)"),
        ("tied-linear-pair", "pp(world=2)"),
        ("even-hidden-on-three", "tp(world=2)"),
        ("two-tables", "dtensor(world=2)"),
    ],
)
def test_a_healthy_torch_trial_shows_nothing(torch_build: Build, seed: str, setting: str) -> None:
    item = followed(torch_build, seed, setting)
    assert item.verdict.kind == "pass"
    assert item.same
    assert item.traced is not None
    assert item.traced.first_layer is None
    assert item.traced.first_collective is None
    assert any(row.error is not None for row in item.traced.layers), "else nothing was looked at"
    assert item.traced.collectives


def test_a_planted_torch_fault_is_named(torch_build: Build, tmp_path: Path) -> None:
    faulty = plant(torch_build, HALVED_SHARDS, tmp_path)
    seed = SEEDS / "torch" / "tied-linear-pair.toml"
    (item,) = trace_trials(load_trial(seed, "fsdp2(world=2)"), faulty.spec, Config())
    assert item.same
    assert item.traced is not None
    layer, collective = item.traced.first_layer, item.traced.first_collective
    assert layer is not None
    assert collective is not None
    assert (layer.step, layer.name, layer.ranks) == (1, "0", (0, 1)), "the step after the wrong gradients"
    assert (collective.name, collective.step, collective.sound) == ("reduce_scatter_base", 0, True)
    assert collective.found.startswith("carried step 0 grad ")


def test_a_planted_tensorflow_fault_is_named(tensorflow_build: Build, tmp_path: Path) -> None:
    faulty = plant(tensorflow_build, FIRST_REPLICA_ONLY, tmp_path)
    command = ["replay", str(SEEDS / "tensorflow" / "conv-custom.toml"), "--trace", "--json", "--build", faulty.spec]
    done = CliRunner().invoke(app, [*command, "--setting", "mirrored(replicas=2)"])
    assert done.exit_code == 1
    (verdict,) = json.loads(done.stdout)
    trace = verdict["trace"]
    assert trace["same"]
    assert trace["first_collective"]["group"] == [0, 1]
    assert "their sum with weights 2, 0" in trace["first_collective"]["found"]
    assert any(row["error"] is not None for row in trace["layers"] if row["step"] == 0)
    layer = trace["first_layer"]
    assert layer is None or layer["step"] > 0
