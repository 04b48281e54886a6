"""The real workflows and composite actions, run by `act` here: matrix, needs, conditions, outputs, artifacts.

Actions from elsewhere are replaced by a few lines of shell that do the same between two folders; of d3bot's own calls
`stand_in.py` plays those that run a build.  All others are d3bot itself, with a token, against the emulator.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from d3bot.config import TrackerConfig
from d3bot.findings.lifecycle import infrastructure_key
from d3bot.github.body import key_in, record_in
from d3bot.tracker.filing import file_run
from tests.findings.samples import BUILD
from tests.github.nights import checked, failing, night
from tests.github.test_github_artifacts import event, pull

ROOT = Path(__file__).parents[2]
ACT = shutil.which("act", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")

pytestmark = pytest.mark.skipif(ACT is None and not os.environ.get("CI"), reason="act is not installed")

STUBS = {
    "actions/checkout": ("repository ref path", 'mkdir -p "./$IN_PATH" && cp -a "$STAND_IN_SOURCE/." "./$IN_PATH"'),
    "actions/setup-python": ("python-version", 'echo "python-path=$STAND_IN_PYTHON" >> "$GITHUB_OUTPUT"'),
    "actions/upload-artifact": (
        "name path",
        '[ -e "$IN_PATH" ] || exit 1; to="$STAND_IN_STORE/artifacts/$GITHUB_RUN_ID/$IN_NAME"; '
        'rm -rf "$to"; mkdir -p "$to"; if [ -d "$IN_PATH" ]; then IN_PATH+=/.; fi; cp -a "$IN_PATH" "$to"',
    ),
    "actions/download-artifact": (
        "name pattern path",
        'mkdir -p "./$IN_PATH"; cd "$STAND_IN_STORE/artifacts/$GITHUB_RUN_ID"; '
        'if [ -n "$IN_NAME" ]; then cp -a "$IN_NAME/." "$GITHUB_WORKSPACE/$IN_PATH"; '
        'else cp -a $IN_PATTERN "$GITHUB_WORKSPACE/$IN_PATH"; fi',
    ),
    "github/codeql-action/upload-sarif": (
        "sarif_file category ref sha",
        'cp "$IN_SARIF_FILE" "$STAND_IN_STORE"; echo "$IN_CATEGORY $IN_REF $IN_SHA" > "$STAND_IN_STORE/scanned"',
    ),
    "actions/upload-pages-artifact": ("path", 'cp -a "$IN_PATH" "$STAND_IN_STORE/built"'),
    "actions/deploy-pages": (
        "artifact_name",
        'mv "$STAND_IN_STORE/built" "$STAND_IN_STORE/pages"; echo "page_url=http://127.0.0.1/" >> "$GITHUB_OUTPUT"',
    ),
}
"""What an action from elsewhere reads of its inputs, and does."""


BUILD_WHEEL = "mkdir -p dist && git rev-parse HEAD > dist/lib.whl"
RUN, LAST_NIGHT = 77, 5
"""The runs of the workflow that `act` plays, and of the nightly one before it."""
ONE = failing("one", build=BUILD)
"""What the stand-in finds."""


@pytest.fixture
def act(hub, tmp_path):
    """Return a function that runs a workflow on an event; it returns the exit code, the calls of d3bot, the output."""
    source, store = tmp_path / "source", tmp_path / "store"
    (store / "artifacts").mkdir(parents=True)
    hub.proxy.uploads = store / "artifacts"
    hub.proxy.now = lambda: datetime.now(UTC)
    shutil.copytree(ROOT / ".github", source / ".github")
    shutil.copy(ROOT / "action.yml", source)
    exe = tmp_path / "d3bot"
    # act knows no server but the public one, whatever its options say.
    exe.write_text(
        f'#!/bin/sh\nGITHUB_API_URL="{hub.proxy.url}" GITHUB_SERVER_URL="{hub.place().server_url}" '
        f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.github.stand_in "$@"\n'
    )
    exe.chmod(0o755)
    (source / ".github/actions/environment.sh").write_text(f'echo "exe={exe}" >> "$GITHUB_OUTPUT"\n')
    subprocess.run([*GIT, "init", "-q", str(source)], check=True)
    subprocess.run([*GIT, "add", "-A"], cwd=source, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", "a"], cwd=source, check=True)
    replaced = []
    for number, pin in enumerate(sorted(pins())):
        name, _, commit = pin.partition("@")
        owner, repository, *below = name.split("/")
        folder = tmp_path / "actions" / str(number)
        folder.joinpath(*below).mkdir(parents=True)
        folder.joinpath(*below, "action.yml").write_text(stub(*STUBS[name]))
        replaced += ["--local-repository", f"{owner}/{repository}@{commit}={folder}"]

    def run(workflow, event, payload, variables=(), **environ):
        (tmp_path / "event.json").write_text(json.dumps(payload))
        given = {"STAND_IN_STORE": store, "STAND_IN_SOURCE": source, "STAND_IN_PYTHON": sys.executable, **environ}
        given |= {"GITHUB_REPOSITORY": hub.repo, "GITHUB_RUN_ID": str(RUN)}
        given["GITHUB_WORKFLOW_REF"] = f"a/b/.github/workflows/{workflow}@refs/heads/main"  # act does not set it
        done = subprocess.run(
            [ACT, event, "-W", f".github/workflows/{workflow}", "-e", str(tmp_path / "event.json")]
            + ["-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--concurrent-jobs", "1", *replaced]
            + [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
            + [part for each in variables for part in ("--var", each)]
            + ["--secret", "GITHUB_TOKEN=bot-token", "--actor", "a", "--defaultbranch", "main"],
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
    run.artifacts = store / "artifacts" / str(RUN)
    run.head = subprocess.run(
        [*GIT, "rev-parse", "HEAD"], cwd=source, check=True, capture_output=True, text=True
    ).stdout.strip()
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
    lines += ["outputs:"]
    lines += [f"  {name}: {{value: '${{{{ steps.s.outputs.{name} }}}}'}}" for name in ("python-path", "page_url")]
    lines += ["runs:", "  using: composite", "  steps:", "    - id: s", "      shell: bash", "      env:"]
    lines += [f"        IN_{name.upper().replace('-', '_')}: ${{{{ inputs.{name} }}}}" for name in names]
    lines += [f"      run: {json.dumps(script)}"]
    return "\n".join(lines) + "\n"


def called(calls, command):
    return [each for each in calls if each["call"][0] == command]


def keys_of(hub):
    return {key_in(issue["body"]): issue for issue in hub.issues()}


@pytest.fixture
def last_night(hub, act):
    """A night before this one, as GitHub keeps it; returns a function that makes it of findings."""

    def made(*findings):
        began = datetime.now(UTC) - timedelta(days=10)
        hub.clock.moment = began
        folder = night(hub.proxy.uploads / str(LAST_NIGHT), 0, began, findings)
        run = {"id": LAST_NIGHT, "created_at": f"{began:%Y-%m-%dT%H:%M:%SZ}", "conclusion": "success"}
        run |= {"event": "schedule", "head_branch": "main", "head_repository": {"full_name": hub.repo}}
        hub.proxy.runs = [run]
        return folder.rename(folder.parent / "d3bot-run")

    return made


def test_a_night_is_planned_run_in_two_shards_merged_and_filed(hub, act, last_night):
    last_night()
    code, calls, said = act("nightly.yml", "workflow_dispatch", {"inputs": {"builds": "torch==2.13.0"}})
    assert code == 0, said
    shards = called(calls, "run")
    assert sorted(each["told"]["D3BOT_SHARD"] for each in shards) == ["1/2", "2/2"]
    assert len({each["told"]["D3BOT_SEED"] for each in shards}) == 1
    assert {each["told"]["D3BOT_BUILDS"] for each in shards} == {"torch==2.13.0"}
    assert {each["told"]["D3BOT_PREVIOUS"] for each in shards} == {"previous"}
    merged = json.loads((act.artifacts / "d3bot-run/run.json").read_text())
    assert (merged["complete"], merged["trials"], merged["previous"]) == (True, 2, "r0")
    assert (act.artifacts / "d3bot-run/history.html").exists()
    assert [each["call"][0] for each in calls if each["token"]] == ["fetch", "fetch", "file"], "no token near a build"
    (issue,) = hub.issues()
    assert (key_in(issue["body"]), issue["state"], issue["user"]["login"]) == (ONE.key, "open", "github-actions[bot]")
    assert {label["name"] for label in issue["labels"]} >= {"d3bot", "framework: torch", "setting: fsdp2"}
    assert hub.comments(issue["number"]) == []


def test_f6_a_shard_that_breaks_is_missed_and_the_night_is_filed_all_the_same(hub, act):
    code, _, said = act("nightly.yml", "workflow_dispatch", {}, STAND_IN_BROKEN="2/2")
    assert code != 0, said
    assert "shard 2/2 is missing" in said
    merged = json.loads((act.artifacts / "d3bot-run/run.json").read_text())
    assert (merged["complete"], merged["trials"]) == (False, 1)
    (issue,) = hub.issues()
    assert (key_in(issue["body"]), issue["title"]) == (infrastructure_key(), "The nightly run gives no result")


def test_j3_a_night_without_a_plan_becomes_the_infrastructure_issue(hub, act):
    code, calls, _ = act("nightly.yml", "workflow_dispatch", {}, STAND_IN_FAILS="plan")
    assert code != 0
    assert called(calls, "run") == []
    assert "plan failure, shards skipped, merge skipped" in keys_of(hub)[infrastructure_key()]["body"]


def test_a_pull_request_of_a_fork_is_checked_without_a_token_and_told_by_the_half_that_has_one(hub, act):
    head, fork = act.head, {"full_name": "forker/lib", "fork": True}
    payload = {"pull_request": {"number": 1, "head": {"sha": head, "repo": fork}, "base": {"sha": head}}}
    code, calls, said = act("pr-check.yml", "pull_request", payload, [f"D3BOT_BUILD_COMMAND={BUILD_WHEEL}"])
    assert code != 0, "the head is worse"
    (check,) = called(calls, "check")
    assert check["call"][check["call"].index("--baseline") + 1] == head
    assert not any(each["token"] for each in calls)
    assert hub.proxy.requests == [], said

    hub.person("POST", "/issues", {"title": "a change"})
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    hub.proxy.pulls = {1: pull(1, sha)}
    ended = event(sha=sha) | {"repository": {"default_branch": "main"}}
    ended["workflow_run"] |= {"id": RUN, "conclusion": "failure"}
    code, calls, said = act("pr-report.yml", "workflow_run", ended)
    assert code == 0, said
    (comment,) = hub.comments(1)
    assert "1 failure" in comment["body"]
    assert head in comment["body"], "the merge base"
    made = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/{sha}/check-runs")["check_runs"]
    assert [(each["name"], each["conclusion"]) for each in made] == [("d3bot", "failure")]
    assert [issue["title"] for issue in hub.issues()] == ["a change"], "c8: nothing is filed"


@pytest.mark.parametrize("pushed", [False, True])
def test_g4_a_maintainers_label_lets_that_commit_run_and_none_that_was_pushed_after(hub, act, pushed):
    asked = pull(1, act.head) | {"base": {"sha": act.head}}
    payload = {"action": "labeled", "label": {"name": "d3bot: run"}, "sender": {"login": "writer"}}
    hub.proxy.pulls = {1: pull(1, "e" * 40 if pushed else act.head, labels=["d3bot: run"])}
    _, calls, said = act(
        "pr-check.yml",
        "pull_request_target",
        payload | {"pull_request": asked},
        [f"D3BOT_BUILD_COMMAND={BUILD_WHEEL}"],
    )
    assert [(each["call"][0], each["token"]) for each in calls] == [("approved", True), ("check", False)][
        : 2 - pushed
    ], said


def test_findings_of_a_pull_request_go_to_code_scanning_where_that_is_asked_for(hub, act):
    hub.person("POST", "/issues", {"title": "a change"})
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    hub.proxy.pulls = {1: pull(1, sha)}
    checked(act.artifacts / "d3bot-check", ONE)
    ended = event(sha=sha) | {"repository": {"default_branch": "main"}}
    ended["workflow_run"] |= {"id": RUN, "conclusion": "failure"}
    code, calls, said = act("pr-report.yml", "workflow_run", ended, ["D3BOT_SARIF=true"])
    assert code == 0, said
    assert [each["call"][0] for each in calls] == ["fetch", "post"], "nothing of d3bot runs beside the alerts' right"
    (run,) = json.loads((act.store / "d3bot.sarif").read_text())["runs"]
    assert [each["partialFingerprints"] for each in run["results"]] == [{"d3bot/v1": ONE.key}]
    assert (act.store / "scanned").read_text() == f"d3bot refs/pull/1/head {sha}\n"


@pytest.mark.parametrize(("asked", "published"), [("D3BOT_PAGES=true", True), ("D3BOT_PAGES=", False)])
def test_the_last_nights_are_published_as_pages_where_that_is_asked_for(hub, act, last_night, asked, published):
    last_night(ONE)
    ended = {"workflow_run": {"id": LAST_NIGHT, "event": "schedule"}, "repository": {"default_branch": "main"}}
    code, _, said = act("pages.yml", "workflow_run", ended, [asked])
    assert code == 0, said
    pages = act.store / "pages"
    assert pages.exists() == published
    if published:
        assert ONE.key in (pages / "index.html").read_text()
        assert ONE.key in (pages / "report.html").read_text()


def test_without_a_build_command_a_pull_request_is_left_alone(act):
    payload = {"pull_request": {"number": 7, "head": {"sha": "0" * 40}, "base": {"sha": "0" * 40}}}
    code, calls, said = act("pr-check.yml", "pull_request", payload)
    assert (code, calls) == (0, []), said


@pytest.fixture
def commanded(hub, act, last_night):
    """Return a function that comments on the issue of a finding, and lets the workflow act on it."""
    folder = last_night(ONE)
    file_run(folder, hub.tracker("r0"), hub.clock.now(), policy=TrackerConfig().policy(), file_all=True)
    hub.clock.moment = datetime.now(UTC)

    def said(text, token="writer-token"):
        comment = hub.person("POST", "/issues/1/comments", {"body": text}, token)
        payload = {"action": "created", "comment": comment, "issue": {"number": 1}}
        code, calls, log = act("commands.yml", "issue_comment", payload, ["D3BOT_BUILDS=tf-nightly;torch@nightly"])
        assert code == 0, log
        return calls

    return said


def test_c4_a_retest_that_was_asked_for_runs_without_a_token_and_closes_the_issue(hub, commanded):
    calls = commanded("/d3bot retest")
    (ran,) = called(calls, "retest")
    assert (ran["token"], ran["call"][2]) == (False, ONE.key)
    assert [each["call"][0] for each in calls if each["token"]] == ["command", "fetch", "fetch", "file"]
    (issue,) = hub.issues()
    assert (issue["state"], issue["state_reason"]) == ("closed", "completed")
    _, answer, closing = (each["body"] for each in hub.comments(1))
    assert "a retest is asked for" in answer
    assert "3 of 3 fresh processes on torch 2.14.0.dev20261231" in closing


def test_a_bisection_that_was_asked_for_is_told_to_the_issue(hub, commanded):
    (ran,) = called(commanded("/d3bot bisect 2.13.0..2.14.0"), "bisect")
    assert not ran["token"]
    assert ran["call"][-4:] == ["--good", "2.13.0", "--bad", "2.14.0"]
    (issue,) = hub.issues()
    assert record_in(issue["body"]).bisected.startswith("Last good torch 2.14.0.dev20261120, first bad")
    _, answer, told = (each["body"] for each in hub.comments(1))
    assert "a bisection is asked for" in answer
    assert "Bisected: Last good torch" in told


def test_g3_who_may_only_read_is_answered_and_nothing_runs(hub, commanded):
    calls = commanded("/d3bot retest", "reader-token")
    assert [each["call"][0] for each in calls] == ["command"]
    assert "only people who may write" in hub.comments(1)[-1]["body"]
