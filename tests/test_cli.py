"""What a person meets at the command line: each mistake is one line on stderr that says what, where and the mend."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.main import get_command

from d3bot.cli import app
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


def d3bot(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "d3bot", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | variables,
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


COMMANDS = {
    **{name: command for name, command in get_command(app).commands.items() if name != "bench"},
    **{f"bench {name}": command for name, command in get_command(app).commands["bench"].commands.items()},
}
NO_JSON = {
    "script": "what it prints is the program",
    "plan": "what it prints is JSON, always",
    "docs": "for the checkout; a path a line",
}
LOUD = (
    "run",
    "check",
    "merge",
    "replay",
    "shrink",
    "bisect",
    "retest",
    *(n for n in COMMANDS if n.startswith("bench")),
)
"""Commands that tell what they are doing while they work."""


def options(name: str) -> set[str]:
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_speaks_json_and_who_tells_progress_can_be_quiet(name: str) -> None:
    assert ("--json" in options(name)) == (name not in NO_JSON)
    assert ("--quiet" in options(name)) == (name in LOUD)
    assert COMMANDS[name].help


def test_no_color_is_honoured(tmp_path: Path) -> None:
    coloured = d3bot("list", "layers", cwd=tmp_path, FORCE_COLOR="1")
    plain = d3bot("list", "layers", cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="1")
    piped = d3bot("list", "layers", cwd=tmp_path)
    assert "\x1b[" in coloured.stdout
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", plain.stdout), "a colour"
    assert "\x1b" not in piped.stdout


@pytest.mark.parametrize("what", ["settings", "layers", "seeds", "contracts"])
def test_lists_fit_into_eighty_columns(what: str, tmp_path: Path) -> None:
    done = d3bot("list", what, cwd=tmp_path, COLUMNS="80", FORCE_COLOR="1")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["d3bot", "bi"], {"bisect"}),
        (["d3bot", "bench", "re"], {"recall"}),
        (["d3bot", "list", "se"], {"settings", "seeds"}),
        (["d3bot", "run", "--settings", "fsdp2("], {"fsdp2(world=2)"}),
        (["d3bot", "replay", "seed.toml", "--setting", "one_d"], {"one_device"}),
    ],
)
def test_the_shell_completes_commands_lists_and_settings(typed: list[str], offered: set[str], tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'd3bot'; from d3bot.cli import main; main()"
    asked = {"_D3BOT_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=os.environ | asked
    )
    assert offered <= set(done.stdout.split("\n")), done.stdout + done.stderr
    assert all(line.startswith(typed[-1]) for line in done.stdout.split("\n") if line)


def test_the_doctor_says_what_the_configuration_comes_to_and_what_must_be_mended(tmp_path: Path) -> None:
    (tmp_path / "d3bot.toml").write_text("fresh = 7\ncache = 'cache'\n")
    done = d3bot("doctor", "--json", cwd=tmp_path, D3BOT_STALE_DAYS="3")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == (3 if any(check["ok"] is False for check in checks.values()) else 0)
    assert {"system", "python", "memory", "ports", "GPUs", "NCCL", "environments"} <= checks.keys()
    assert "d3bot.toml" in checks["configuration"]["detail"]
    assert '"fresh": 7' in checks["configuration"]["detail"]
    assert '"stale_days": 3' in checks["configuration"]["detail"]
    (tmp_path / "cache").write_text("a file where the folder should be")
    broken = d3bot("doctor", cwd=tmp_path)
    assert broken.returncode == 3
    assert re.search(
        r"^FAIL disk for environments: cache: cannot be written .*\(mend its permissions", broken.stdout, re.M
    )


def test_ctrl_c_keeps_everything_and_says_how_to_go_on(torch_build: Build, tmp_path: Path) -> None:
    chosen = ["--build", f"python:{torch_build.python}", "--seeds", "none", "--settings", "ddp(world=2)"]
    began = [sys.executable, "-m", "d3bot", "run", *chosen, "--fresh", "16", "--seed", "3", "--out", "out"]
    # Whoever starts the tests in the background leaves SIGINT ignored, which a person's terminal does not.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        began, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    ) as process:
        verdicts = tmp_path / "out" / "verdicts.jsonl"
        ends = time.monotonic() + 120
        while time.monotonic() < ends and not (verdicts.exists() and verdicts.read_bytes().count(b"\n") > 2):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 3
    assert told.strip() == "d3bot: stopped; what is done is in out. Go on with: d3bot run --resume --out out"
    done_before = verdicts.read_bytes()
    assert done_before.count(b"\n") > 2

    resume = told.split("Go on with: d3bot ")[1].split()
    quiet = d3bot(*resume, "--quiet", cwd=tmp_path)
    assert quiet.returncode == 0, quiet.stderr
    assert quiet.stdout.splitlines() == [
        "nothing new",
        "report: out/report.html",
    ]
    assert verdicts.read_bytes().startswith(done_before)

    step = d3bot(*resume, "--json", cwd=tmp_path, GITHUB_RUN_ID="1", GITHUB_OUTPUT="", GITHUB_STEP_SUMMARY="")
    assert json.loads(step.stdout)["verdict"] == "nothing-new"
    lines = step.stderr.splitlines()
    assert lines[0] == "::group::d3bot run"
    assert "resuming out: 16 of 16 trials are there already" in lines
    assert "::endgroup::" in lines
    assert "\x1b" not in step.stderr
