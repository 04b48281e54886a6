"""The scripts between the YAML and the command line: which call they make of their environment, and how it ends."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / ".github/actions"

BUILD_HALF = dict.fromkeys(("CONFIG", "HEAD", "BASELINE", "CHANGED", "SHARDS", "KEY", "GOOD", "BAD"), "")
BUILD_HALF |= {"OUT": "run", "PARTS": "parts", "FAIL_ON_NEW": "true"}
TOKEN_HALF = dict.fromkeys(("FAILED", "WORKFLOW", "BRANCH", "RUN_ID", "SARIF", "CONFIG"), "")
TOKEN_HALF |= {"RUN_DIR": "run", "NAME": "d3bot-run", "REQUIRED": "false", "LABEL": "d3bot: run", "SITE": "site"}
TOKEN_HALF |= {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/night.yml@refs/heads/trunk", "GITHUB_REF_NAME": "trunk"}


@pytest.fixture
def step(tmp_path):
    """Return a function that runs a script as a step does; it returns the exit code, d3bot's arguments, the outputs."""
    exe, told, output = tmp_path / "d3bot", tmp_path / "told", tmp_path / "output"
    exe.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$TOLD"\nexit "${ENDS:-0}"\n')
    exe.chmod(0o755)

    def run(script, **environ):
        told.unlink(missing_ok=True)
        output.write_text("")
        given = {"EXE": exe, "TOLD": told, "GITHUB_OUTPUT": output, "RUNNER_TEMP": tmp_path, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["bash", str(SCRIPTS / script)],
            cwd=tmp_path,
            env={name: str(value) for name, value in (given | environ).items()},
            capture_output=True,
            text=True,
        )
        outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done.returncode, told.read_text().splitlines() if told.exists() else done.stdout + done.stderr, outputs

    return run


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ({"COMMAND": "run"}, ["run", "--out", "run"]),
        ({"COMMAND": "run", "CONFIG": "a b.toml"}, ["run", "--out", "run", "--config", "a b.toml"]),
        ({"COMMAND": "plan", "SHARDS": "4"}, ["plan", "--shards", "4"]),
        ({"COMMAND": "plan", "SHARDS": "4", "D3BOT_SEED": "7"}, ["plan", "--shards", "4", "--seed", "7"]),
        (
            {"COMMAND": "check", "D3BOT_BASE": "torch==1", "HEAD": "torch==2", "BASELINE": "abc"},
            ["check", "--base", "torch==1", "--head", "torch==2", "--baseline", "abc", "--out", "run"],
        ),
        (
            {"COMMAND": "check", "D3BOT_BASE": "torch==1", "HEAD": "torch==2", "CHANGED": "a b"},
            ["check", "--base", "torch==1", "--head", "torch==2", "--baseline", "", "--out", "run", "--changed", "a b"],
        ),
        (
            {"COMMAND": "retest", "D3BOT_PREVIOUS": "p", "KEY": "k", "D3BOT_BUILDS": "torch@nightly"},
            ["retest", "p", "k", "--out", "run"],
        ),
        (
            {"COMMAND": "bisect", "D3BOT_PREVIOUS": "p", "KEY": "k", "GOOD": "1", "BAD": "2"},
            ["bisect", "p/fixed/k", "--out", "run", "--good", "1", "--bad", "2"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_becomes_one_call(step, given, call):
    assert step("build-half.sh", **(BUILD_HALF | given)) == (0, call, {"exit-code": "0"})


@pytest.mark.parametrize(
    ("ends", "fail_on_new", "code"),
    [(0, "true", 0), (1, "true", 1), (1, "false", 0), (2, "false", 2), (3, "false", 3)],
)
def test_only_what_is_new_may_be_no_failure(step, ends, fail_on_new, code):
    given = BUILD_HALF | {"COMMAND": "run", "ENDS": ends, "FAIL_ON_NEW": fail_on_new}
    assert step("build-half.sh", **given)[::2] == (code, {"exit-code": str(ends)})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"COMMAND": "rum"}, "command: give run, plan, merge, check, retest or bisect"),
        ({"COMMAND": "run", "FAIL_ON_NEW": "yes"}, "fail-on-new: give true or false"),
        ({"COMMAND": "plan"}, "the input shards is needed for command: plan"),
        ({"COMMAND": "check", "HEAD": "torch==2"}, "the input base is needed for command: check"),
        ({"COMMAND": "retest", "KEY": "k", "D3BOT_PREVIOUS": "p"}, "the input builds is needed for command: retest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_one_line(step, given, said):
    assert step("build-half.sh", **(BUILD_HALF | given)) == (2, f"::error title=d3bot::{said}\n", {})


def test_f6_merge_takes_every_shard_that_left_something(step, tmp_path):
    given = {**BUILD_HALF, "COMMAND": "merge", "SHARDS": "2"}
    code, said, _ = step("build-half.sh", **given)
    assert code == 3
    assert "no shard left anything" in said
    for name in ("d3bot-shard-1-of-2-attempt-1", "d3bot-shard-1-of-2-attempt-2"):
        (tmp_path / "parts" / name).mkdir(parents=True)
    _, told, _ = step("build-half.sh", **(given | {"CONFIG": "a.toml"}))
    folders = ["parts/d3bot-shard-1-of-2-attempt-1/", "parts/d3bot-shard-1-of-2-attempt-2/"]
    assert told == ["merge", *folders, "--shards", "2", "--out", "run", "--config", "a.toml"]


def test_merge_takes_a_single_shard_that_was_unpacked_into_the_folder_itself(step, tmp_path):
    (tmp_path / "parts/findings").mkdir(parents=True)
    (tmp_path / "parts/run.json").write_text("{}")
    _, told, _ = step("build-half.sh", **(BUILD_HALF | {"COMMAND": "merge", "SHARDS": "1"}))
    assert told == ["merge", "parts", "--shards", "1", "--out", "run"]


FULL = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("repository", "ref", "refused"),
    [
        ("", "", False),  # the action itself, without our workflows
        ("o/library", "", False),  # d3bot's own repository
        ("o/library", FULL, False),
        ("o/d3bot", FULL, False),
        ("o/d3bot", "", True),
        ("o/d3bot", "main", True),
        ("o/d3bot", "v1.2.3", True),
        ("o/d3bot", FULL[:-1], True),
        ("o/d3bot", f"{FULL}\n", True),
        ("o/library", "main", True),
    ],
)
def test_d3bot_comes_at_a_full_commit_or_not_at_all(step, repository, ref, refused):
    given = {"FROM_REPOSITORY": repository, "FROM_REF": ref, "GITHUB_REPOSITORY": "o/library", "PYTHON": "no-python"}
    code, said, _ = step("environment.sh", **given)
    assert code == 2
    assert ("D3BOT_REF: give the full SHA" in said) == refused
    assert ("no-python is no Python" in said) != refused


@pytest.fixture
def checkout(step, tmp_path):
    """A checkout of a d3bot that prints its arguments, its lock one wheel; returns a function that prepares it."""
    root, wheels, name = tmp_path / "checkout", tmp_path / "wheels", "toy-1-py3-none-any.whl"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / name, "w") as wheel:
        wheel.writestr("toy.py", "")
        wheel.writestr("toy-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
        wheel.writestr("toy-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("toy-1.dist-info/RECORD", "")
    (root / "d3bot").mkdir(parents=True)
    (root / "d3bot/__main__.py").write_text("import sys, toy\nprint('ours', *sys.argv[1:])\n")
    (root / ".github/actions").mkdir(parents=True)
    (root / ".github/actions/environment.sh").write_text((SCRIPTS / "environment.sh").read_text())
    told = hashlib.sha256((wheels / name).read_bytes()).hexdigest()

    def prepared(digest=told):
        (root / ".github/requirements.txt").write_text(f"toy==1 --hash=sha256:{digest}\n")
        mirror = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels, "PIP_CONFIG_FILE": os.devnull}
        return step(root / ".github/actions/environment.sh", PYTHON=sys.executable, **mirror)

    return prepared


def test_the_environment_is_made_of_the_lock_once_and_runs_this_d3bot_alone(checkout, tmp_path):
    code, said, outputs = checkout()
    assert code == 0, said
    strangers = tmp_path / "strangers/d3bot"
    strangers.mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (strangers / name).write_text("print('not ours')")
    environ = os.environ | {"PYTHONPATH": str(strangers.parent)}
    done = subprocess.run([outputs["exe"], "run"], cwd=strangers.parent, env=environ, capture_output=True, text=True)
    assert done.stdout == "ours run\n", done.stderr
    (kept := Path(outputs["exe"]).parents[1] / "kept").touch()
    assert checkout()[0] == 0
    assert kept.exists()


def test_a_package_that_is_not_the_locked_one_is_not_installed(checkout):
    code, said, outputs = checkout(digest="0" * 64)
    assert code != 0
    assert outputs == {}
    assert "hash" in said.lower()


OWN = ["--workflow", "night.yml", "--branch", "trunk"]


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ({"COMMAND": "file"}, ["file", "--tracker", "github", *OWN, "run"]),
        ({"COMMAND": "file", "FAILED": "no shard"}, ["file", "--tracker", "github", *OWN, "--failed", "no shard"]),
        ({"COMMAND": "fetch"}, ["fetch", "--name", "d3bot-run", "--out", "run", *OWN]),
        (
            {"COMMAND": "fetch", "RUN_ID": "7", "REQUIRED": "true"},
            ["fetch", "--name", "d3bot-run", "--out", "run", "--run-id", "7", "--required"],
        ),
        ({"COMMAND": "post", "SARIF": "a.sarif"}, ["post", "run", "--sarif", "a.sarif"]),
        ({"COMMAND": "site"}, ["report", "run", "--out", "site"]),
        ({"COMMAND": "approved"}, ["approved", "--label", "d3bot: run"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_with_a_token_becomes_one_call(step, given, call):
    assert step("token-half.sh", **(TOKEN_HALF | given))[:2] == (0, call)


@pytest.mark.parametrize(
    ("command", "ends", "code"),
    [
        ("file", 1, 0),  # a budget kept findings back
        ("file", 3, 3),
        ("approved", 1, 0),  # not approved: the output says so
        ("approved", 3, 3),
        ("fetch", 2, 2),
        ("post", 2, 2),
    ],
)
def test_an_answer_is_no_failure_and_a_failure_is_one(step, command, ends, code):
    assert step("token-half.sh", **(TOKEN_HALF | {"COMMAND": command, "ENDS": ends}))[0] == code


@pytest.fixture
def fork(tmp_path):
    """A repository where main went on after a pull request branched off; returns what git says."""

    def git(*arguments):
        user = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *user, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(name):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-m", name)
        return git("rev-parse", "HEAD")

    git("init")
    shas = {"merge-base": commit("torch/a.py"), "base": commit("torch/b.py")}
    git("checkout", "--detach", shas["merge-base"])
    shas["head"] = commit("torch/c.cpp")
    return shas


def builds(fork, **given):
    return {"BASE_SHA": fork["base"], "HEAD_SHA": fork["head"], "BUILD_COMMAND": "", "STOCK": "", **given}


def test_both_sides_are_built_and_the_baseline_is_the_merge_base(step, fork, tmp_path):
    command = "mkdir dist && git rev-parse HEAD > dist/lib.whl"
    code, _, outputs = step("fork-builds.sh", **builds(fork, BUILD_COMMAND=command))
    assert code == 0
    assert outputs["merge-base"] == fork["merge-base"]
    assert Path(outputs["changed"]).read_text() == "torch/c.cpp\n"
    assert Path(outputs["base"]).read_text().strip() == fork["merge-base"]
    assert Path(outputs["head"]).read_text().strip() == fork["head"]


def test_wheels_of_earlier_jobs_are_taken(step, fork, tmp_path):
    for side in ("base", "head"):
        (tmp_path / "wheels" / side).mkdir(parents=True)
        (tmp_path / "wheels" / side / f"{side}.whl").touch()
    _, _, outputs = step("fork-builds.sh", **builds(fork))
    assert {name: Path(outputs[name]).name for name in ("base", "head")} == {"base": "base.whl", "head": "head.whl"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no build: give wheels, a build command, or a stock build"),
        ({"BUILD_COMMAND": "true"}, "holds 0 wheels; there must be one"),
        ({"BUILD_COMMAND": "false"}, "the build of base failed"),
        ({"STOCK": "torch==2.13.0"}, "more than Python files of the library changed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_both_builds_there_is_no_data(step, fork, given, said):
    code, told, outputs = step("fork-builds.sh", **builds(fork, **given))
    assert (code, outputs) == (3, {})
    assert said in told
