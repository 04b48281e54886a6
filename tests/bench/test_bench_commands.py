"""The five benchmarks as commands, each on a few trials of a real library and one planted fault.

The two that take a minute or two run where D3BOT_TEST_BENCH is set.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from d3bot.spec import Build
from tests.flow.planted import HALVED_SHARDS, write_patch

ROOT = Path(__file__).parents[2]

long = pytest.mark.skipif(
    not os.environ.get("D3BOT_TEST_BENCH"), reason="takes a minute; set D3BOT_TEST_BENCH to run it"
)


@pytest.fixture
def bench(torch_build: Build, tmp_path: Path) -> Any:
    """Return a function that runs a benchmark and returns what it says as JSON."""
    fault = tmp_path / "faults" / "halved-shards"
    write_patch(torch_build, HALVED_SHARDS, fault)
    (fault / "meta.json").write_text('{"id": "halved-shards", "title": "half of every gradient is reduced"}')
    (tmp_path / "seeds/torch").mkdir(parents=True)
    shutil.copy(ROOT / "seeds/torch/tied-linear-pair.toml", tmp_path / "seeds/torch")

    def run(name: str, *options: str, code: int = 0) -> Any:
        command = [sys.executable, "-m", "d3bot", "bench", name, "--build", f"python:{torch_build.python}"]
        done = subprocess.run(
            [*command, *options, "--json", "--quiet"], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr
        assert done.stderr == ""
        return json.loads(done.stdout)

    return run


def test_recall_finds_a_planted_fault_in_both_columns(bench: Any) -> None:
    (row,) = bench("recall", "--faults", "faults", "--cap", "60")["faults"]
    assert row["id"] == "halved-shards"
    assert row["found"]
    assert "grad-scaled" in row["key"]


@long
def test_findings_makes_one_of_a_fault(bench: Any) -> None:
    (row,) = bench("findings", "--faults", "faults", "--settings", "fsdp2(world=2)", "--cap", "10")
    assert len(row["findings"]) == 1


def test_noise_tells_how_near_passes_come(bench: Any) -> None:
    (row,) = bench("noise", "--trials", "32", "--settings", "ddp(world=3)", "--seed", "1")["builds"]
    assert row["trials"] == 5, "a case for eight trials, and one more"
    assert row["kinds"].keys() <= {"pass", "not-applicable"}
    assert 0 < row["error_over_bound"]["p100"] < 1


def test_speed_times_the_engine_beside_the_scripts(bench: Any) -> None:
    data = bench("speed", "--trials", "24", "--scripts", "1", "--settings", "ddp(world=2)", "--seed", "1")
    (row,) = data["builds"]
    assert row["ratio"] > 1


@long
def test_d3_tells_both_rules_on_both_kinds_of_trials(bench: Any) -> None:
    healthy, faulty = bench("d3", "--faults", "faults", "--fresh", "1")
    assert (healthy["fault"], faulty["fault"]) == (False, True)
