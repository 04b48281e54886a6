"""The real workflows and composite actions, run by `act` here: matrix, needs, conditions, outputs, artifacts.

Actions from elsewhere are replaced by a few lines of shell that do the same between two folders, and d3bot's own calls
by `stand_in.py`, which plays builds and GitHub and hands all else to d3bot.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACT = shutil.which("act", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")

pytestmark = pytest.mark.skipif(ACT is None, reason="act is not installed")

STUBS = {
    "actions/checkout": ("repository ref path", 'mkdir -p "./$IN_PATH" && cp -a "$STAND_IN_SOURCE/." "./$IN_PATH"'),
    "actions/setup-python": ("python-version", 'echo "python-path=$STAND_IN_PYTHON" >> "$GITHUB_OUTPUT"'),
    "actions/upload-artifact": (
        "name path",
        '[ -e "$IN_PATH" ] || exit 1; to="$STAND_IN_STORE/artifacts/$IN_NAME"; '
        'rm -rf "$to"; mkdir -p "$to"; cp -a "$IN_PATH/." "$to"',
    ),
    "actions/download-artifact": (
        "name pattern path",
        'mkdir -p "$IN_PATH"; cd "$STAND_IN_STORE/artifacts"; '
        'if [ -n "$IN_NAME" ]; then cp -a "$IN_NAME/." "$GITHUB_WORKSPACE/$IN_PATH"; '
        'else cp -a $IN_PATTERN "$GITHUB_WORKSPACE/$IN_PATH"; fi',
    ),
}
"""What an action from elsewhere reads of its inputs, and does."""


@pytest.fixture
def act(tmp_path):
    """Return a function that runs a workflow on an event; it returns the exit code, the calls of d3bot, the output."""
    source, store = tmp_path / "source", tmp_path / "store"
    store.mkdir()
    (store / "artifacts").mkdir()
    shutil.copytree(ROOT / ".github", source / ".github")
    shutil.copy(ROOT / "action.yml", source)
    exe = tmp_path / "d3bot"
    exe.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.github.stand_in "$@"\n')
    exe.chmod(0o755)
    (source / ".github/actions/environment.sh").write_text(f'echo "exe={exe}" >> "$GITHUB_OUTPUT"\n')
    subprocess.run([*GIT, "init", "-q", str(source)], check=True)
    subprocess.run([*GIT, "add", "-A"], cwd=source, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", "a"], cwd=source, check=True)
    replaced = []
    for number, pin in enumerate(sorted(pins())):
        folder = tmp_path / "actions" / str(number)
        folder.mkdir(parents=True)
        (folder / "action.yml").write_text(stub(*STUBS[pin.partition("@")[0]]))
        replaced += ["--local-repository", f"{pin}={folder}"]

    def run(workflow, event, payload, variables=(), **environ):
        (tmp_path / "event.json").write_text(json.dumps(payload))
        given = {"STAND_IN_STORE": store, "STAND_IN_SOURCE": source, "STAND_IN_PYTHON": sys.executable, **environ}
        given["GITHUB_WORKFLOW_REF"] = f"a/b/.github/workflows/{workflow}@refs/heads/main"  # act does not set it
        done = subprocess.run(
            [ACT, event, "-W", f".github/workflows/{workflow}", "-e", str(tmp_path / "event.json")]
            + ["-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--concurrent-jobs", "1", *replaced]
            + [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
            + [part for each in variables for part in ("--var", each)]
            + ["--secret", "GITHUB_TOKEN=none", "--actor", "a", "--defaultbranch", "main"],
            cwd=source,
            env={**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=300,
        )
        log = store / "calls.jsonl"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return done.returncode, calls, done.stdout + done.stderr

    run.store = store
    run.source = source
    return run


def pins():
    """Return every action from elsewhere that the actions and workflows use, with its commit."""
    files = [ROOT / "action.yml", *(ROOT / ".github").rglob("*.yml")]
    used = {pin for file in files for pin in re.findall(r"uses: ([\w-]+/[\w/-]+@[0-9a-f]{40})", file.read_text())}
    return {pin for pin in used if pin.partition("@")[0] in STUBS}


def stub(inputs, script):
    names = inputs.split()
    lines = ["name: stub", "inputs:"]
    lines += [f"  {name}: {{default: ''}}" for name in names]
    lines += ["outputs:", "  python-path: {value: '${{ steps.s.outputs.python-path }}'}"]
    lines += ["runs:", "  using: composite", "  steps:", "    - id: s", "      shell: bash", "      env:"]
    lines += [f"        IN_{name.upper().replace('-', '_')}: ${{{{ inputs.{name} }}}}" for name in names]
    lines += [f"      run: {json.dumps(script)}"]
    return "\n".join(lines) + "\n"


def called(calls, command):
    return [each for each in calls if each["call"][0] == command]


def test_a_night_is_planned_run_in_two_shards_merged_and_filed(act):
    code, calls, said = act("nightly.yml", "workflow_dispatch", {"inputs": {"builds": "torch==2.13.0"}})
    assert code == 0, said
    shards = called(calls, "run")
    assert sorted(each["told"]["D3BOT_SHARD"] for each in shards) == ["1/2", "2/2"]
    assert len({each["told"]["D3BOT_SEED"] for each in shards}) == 1
    assert {each["told"]["D3BOT_BUILDS"] for each in shards} == {"torch==2.13.0"}
    merged = json.loads((act.store / "artifacts/d3bot-run/run.json").read_text())
    assert (merged["complete"], merged["trials"]) == (True, 2)
    assert (act.store / "artifacts/d3bot-run/history.html").exists()
    (filed,) = called(calls, "file")
    assert filed["call"][-1] == "run"
    assert "--failed" not in filed["call"]
    assert [each["call"][0] for each in calls if each["token"]] == ["fetch", "fetch", "file"], "no token near a build"


def test_f6_a_shard_that_breaks_is_missed_and_the_night_is_filed_all_the_same(act):
    code, calls, said = act("nightly.yml", "workflow_dispatch", {}, STAND_IN_BROKEN="2/2")
    assert code != 0, said
    assert "shard 2/2 is missing" in said
    merged = json.loads((act.store / "artifacts/d3bot-run/run.json").read_text())
    assert (merged["complete"], merged["trials"]) == (False, 1)
    (filed,) = called(calls, "file")
    assert filed["call"][-1] == "run"
    assert "The nightly run gives no result" in "".join(p.read_text() for p in (act.store / "issues").glob("*.md"))


def test_a_night_without_a_plan_becomes_the_infrastructure_issue(act):
    code, calls, _ = act("nightly.yml", "workflow_dispatch", {}, STAND_IN_FAILS="plan")
    assert code != 0
    assert called(calls, "run") == []
    (filed,) = called(calls, "file")
    assert filed["call"][-2:] == ["--failed", "plan failure, shards skipped, merge skipped"]


def test_a_pull_request_is_checked_on_both_builds_without_a_token(act):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=act.source, capture_output=True, text=True).stdout.strip()
    payload = {"pull_request": {"number": 7, "head": {"sha": head}, "base": {"sha": head}}}
    command = "mkdir -p dist && git rev-parse HEAD > dist/lib.whl"
    code, calls, said = act("pr-check.yml", "pull_request", payload, [f"D3BOT_BUILD_COMMAND={command}"])
    assert code == 0, said
    (check,) = called(calls, "check")
    assert check["call"][check["call"].index("--baseline") + 1] == head
    assert not any(each["token"] for each in calls)
    assert (act.store / "artifacts/d3bot-check/summary.md").exists()


def test_without_a_build_command_a_pull_request_is_left_alone(act):
    payload = {"pull_request": {"number": 7, "head": {"sha": "0" * 40}, "base": {"sha": "0" * 40}}}
    code, calls, said = act("pr-check.yml", "pull_request", payload)
    assert (code, calls) == (0, []), said


@pytest.mark.parametrize("action", ["bisect", "retest"])
def test_a_command_that_needs_a_build_gets_a_job_of_its_own_and_its_answer_is_filed(act, action):
    shutil.copytree(act.source / ".github", act.store / "artifacts/d3bot-run/findings/torch-x")
    answer = {"action": action, "issue": "3", "key": "torch-x", "from": "1", "to": "2"}
    payload = {"action": "created", "comment": {"body": f"/d3bot {action}"}, "issue": {"number": 3}}
    environ = {"STAND_IN_ANSWER": json.dumps(answer), "STAND_IN_FAILS": "file"}
    _, calls, said = act("commands.yml", "issue_comment", payload, ["D3BOT_BUILDS=torch@nightly"], **environ)
    (ran,) = called(calls, action)
    assert not ran["token"]
    assert ("--good" in ran["call"]) == (action == "bisect")
    (filed,) = called(calls, "file")
    assert filed["token"], said
