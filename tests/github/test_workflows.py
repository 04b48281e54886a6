"""The YAML: pinned, of least permission, without text of others in a script, and in step with the command line."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

from d3bot.cli import app
from d3bot.config import Config
from d3bot.flow.doc_pages import entries

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
ACTIONS = [ACTION, *sorted((ROOT / ".github/actions").glob("*/action.yml"))]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
LOCK = ROOT / ".github/requirements.txt"
SCRIPTS = sorted((ROOT / ".github/actions").glob("*.sh"))

WRITES = {
    ("commands.yml", "command"): {"issues"},
    ("commands.yml", "file"): {"issues"},
    ("nightly.yml", "report"): {"issues"},
    ("pages.yml", "publish"): {"id-token", "pages"},
    ("pr-report.yml", "post"): {"checks", "issues", "pull-requests"},
    ("pr-report.yml", "sarif"): {"security-events"},
}
"""Every job that may write, and what.  None of them runs a build."""

TOKEN_HALF = re.compile(r"\./\.d3bot/\.github/actions/(?:report|command)")

named = pytest.mark.parametrize("path", ACTIONS + WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
actions = pytest.mark.parametrize("path", ACTIONS, ids=lambda path: str(path.relative_to(ROOT)))
workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def read(path):
    """Return a YAML file; its key `on`, which YAML takes for true, by its name."""
    data = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in data.items()}


def steps_of(path):
    data = read(path)
    if "runs" in data:
        return data["runs"]["steps"]
    return [step for job in data["jobs"].values() for step in job.get("steps", [])]


def jobs(*, having):
    return [
        (path.name, name, job)
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
        if any(having(step) for step in job["steps"])
    ]


def options(command):
    """Return the options and arguments of a command: --build, KEY, ..."""
    parameters = get_command(app).commands[command].params
    found = {option for each in parameters for option in each.opts if option.startswith("--")}
    return found | {word for each in parameters for word in (each.metavar or "").split("|") if word}


def table():
    """Return the rows of the table of inputs in docs/actions.md: input, the command line's words, the commands."""
    text = (ROOT / "docs/actions.md").read_text().split("| input |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {name.strip("`"): (re.findall(r"`([^`]+)`", words), used.split(", ")) for name, words, used in rows}


@named
def test_every_use_is_pinned_to_a_full_commit_with_its_version(path):
    for line in path.read_text().splitlines():
        match = re.match(r"\s*(?:- )?uses:\s*(\S+)(.*)", line)
        if match and not match[1].startswith("./"):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", match[1]), line
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", match[2]), line


def test_one_action_is_pinned_to_one_commit_everywhere():
    pins = {}
    for path in ACTIONS + WORKFLOWS:
        for name, commit in re.findall(r"uses: ([\w/-]+)@([0-9a-f]{40} # v\S+)", path.read_text()):
            pins.setdefault(name, set()).add(commit)
    assert pins
    assert all(len(commits) == 1 for commits in pins.values()), pins


@workflows
def test_no_permission_but_what_a_job_names(path):
    data = read(path)
    assert data["permissions"] == {}
    for name, job in data["jobs"].items():
        writes = {right for right, level in job["permissions"].items() if level != "read"}
        assert writes == WRITES.get((path.name, name), set()), name
        assert job["timeout-minutes"] <= 360


def test_no_job_runs_a_build_and_may_write():
    ran = jobs(
        having=lambda step: step.get("uses") == "./.d3bot" and step["with"].get("command") not in ("plan", "merge")
    )
    assert {(file, name) for file, name, _ in ran} == {
        ("nightly.yml", "shard"),
        ("pr-check.yml", "check"),
        ("commands.yml", "build"),
    }
    for file, name, job in ran:
        assert job["permissions"] == {"contents": "read"}, (file, name)
        assert not any(TOKEN_HALF.match(step.get("uses", "")) for step in job["steps"]), (file, name)
        assert "secrets." not in yaml.safe_dump(job), (file, name)
        assert "github.token" not in yaml.safe_dump(job), (file, name)


@named
def test_no_expression_in_a_script(path):
    for step in steps_of(path):
        assert "${{" not in step.get("run", ""), step


@workflows
def test_checkouts_leave_no_token_behind(path):
    for step in steps_of(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@workflows
def test_d3bot_is_taken_from_where_the_actions_check_that_it_is_a_commit(path):
    taken = [step["with"] for step in steps_of(path) if step.get("with", {}).get("path") == ".d3bot"]
    for each in taken:
        assert (each["repository"], each["ref"]) == ("${{ env.FROM_REPOSITORY }}", "${{ env.FROM_REF }}")
    if taken:
        assert read(path)["env"].keys() == {"FROM_REPOSITORY", "FROM_REF"}


def test_the_schedule_is_off_the_hour():
    minute = read(ROOT / ".github/workflows/nightly.yml")["on"]["schedule"][0]["cron"].split()[0]
    assert int(minute) % 15


def test_filing_is_one_at_a_time_and_never_cancelled():
    filing = jobs(having=lambda step: step.get("uses", "").endswith("/report") and step["with"]["command"] == "file")
    assert len(filing) == 2
    for file, name, job in filing:
        assert job["concurrency"] == {"group": "d3bot-filing", "cancel-in-progress": False}, (file, name)


def test_f8_the_artifact_of_a_shard_has_a_name_of_its_attempt():
    names = [
        step["with"]["name"]
        for step in read(ROOT / ".github/workflows/nightly.yml")["jobs"]["shard"]["steps"]
        if "upload-artifact" in step.get("uses", "")
    ]
    assert names == ["d3bot-${{ matrix.name }}-attempt-${{ github.run_attempt }}"]


def test_d8_a_night_is_kept_for_longer_than_anybody_is_away():
    steps = read(ROOT / ".github/workflows/nightly.yml")["jobs"]["merge"]["steps"]
    (run,) = [step["with"] for step in steps if step["with"].get("name") == "d3bot-run"]
    assert run["retention-days"] >= 30


def test_f6_a_missing_shard_is_merged_and_a_night_without_a_run_is_filed():
    night = read(ROOT / ".github/workflows/nightly.yml")["jobs"]
    assert night["shard"]["strategy"]["fail-fast"] is False
    assert night["merge"]["if"].startswith("${{ !cancelled()")
    assert night["report"]["if"] == "always()"
    file = night["report"]["steps"][-1]
    assert file["if"] == "${{ !cancelled() }}", "also after a fetch that failed"
    assert "needs.merge.result, steps.run.outcome" in file["with"]["failed"]


def test_g4_a_fork_reaches_a_self_hosted_runner_only_by_an_approved_commit():
    data = read(ROOT / ".github/workflows/pr-check.yml")
    assert data["on"]["pull_request_target"] == {"types": ["labeled"]}
    check, approve = data["jobs"]["check"], data["jobs"]["approve"]
    assert check["needs"] == "approve"
    assert check["if"] == "needs.approve.outputs.sha != ''"
    assert check["runs-on"].startswith("${{ github.event_name == 'pull_request' && 'ubuntu-latest' || ")
    assert check["steps"][0]["with"]["ref"] == "${{ needs.approve.outputs.sha }}"
    assert approve["outputs"]["sha"].endswith("|| steps.approved.outputs.sha }}")


def test_the_docs_name_what_a_caller_must_grant():
    text = (ROOT / "docs/actions.md").read_text().split("| called |")[1].split("\n\n")[0]
    told = {
        name: dict(re.findall(r"`([a-z-]+): (\w+)`", cell)) for name, cell in re.findall(r"`(\S+\.yml)` \|(.*)", text)
    }
    asked = {}
    for path in WORKFLOWS:
        data = read(path)
        if "workflow_call" in data["on"]:
            rights = asked[path.name] = {}
            for job in data["jobs"].values():
                for right, level in job["permissions"].items():
                    rights[right] = "write" if "write" in (level, rights.get(right)) else level
    assert told == asked


@actions
def test_an_action_describes_every_input_and_output(path):
    data = read(path)
    assert data["branding"]["icon"]
    assert data["description"]
    for name, facts in data["inputs"].items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert set(facts) == {"description", "default"}, name
        assert isinstance(facts["default"], str), name
        assert facts["description"], name
    for name, facts in data["outputs"].items():
        assert set(facts) == {"description", "value"}, name
        assert facts["description"], name


@actions
def test_every_input_is_passed_on_and_every_step_exists(path):
    data, text = read(path), path.read_text()
    used = set(re.findall(r"\$\{\{ inputs\.([a-z-]+)", text))
    assert used == set(data["inputs"])
    ids = {step["id"] for step in data["runs"]["steps"]}
    assert set(re.findall(r"steps\.([a-z0-9]+)\.", text)) <= ids


def test_variables_of_the_action_are_keys_of_the_configuration():
    text = ACTION.read_text()
    keys = {name.lower() for name in re.findall(r"D3BOT_([A-Z]+):", text)}
    assert keys
    assert keys <= set(Config.model_fields)


@named
def test_the_reference_page_reads_what_yaml_reads(path):
    data = read(path)
    if path in ACTIONS:
        for block in ("inputs", "outputs"):
            assert entries(path.read_text(), block) == data.get(block, {})
    elif "workflow_call" in data["on"]:
        told = (data["on"]["workflow_call"] or {}).get("inputs", {})
        seen = entries(path.read_text(), "on", "workflow_call", "inputs")
        assert {name: facts["description"] for name, facts in seen.items()} == {
            name: facts["description"] for name, facts in told.items()
        }


def test_the_table_of_inputs_is_the_actions():
    assert list(table()) == list(read(ACTION)["inputs"])


@pytest.mark.parametrize("name", list(table()))
def test_an_input_is_an_option_of_the_commands_that_use_it(name):
    words, commands = table()[name]
    for command in filter(None, commands):
        assert set(words) & options(command), command


def test_what_the_readme_says_of_inputs_is_so():
    text = (ROOT / "README.md").read_text()
    rows = text.split("| input | on the command line |")[1].split("\n\n")[0].splitlines()[2:]
    for row in rows:
        inputs, words = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")[:2])
        assert set(inputs) <= set(read(ACTION)["inputs"]), row
        assert set(words) <= options("run"), row
        if words:
            assert [{"--build": "builds"}.get(word, word.removeprefix("--")) for word in words] == inputs
    step = yaml.safe_load(text.split("```yaml")[1].split("```")[0])[0]
    assert set(step["with"]) <= set(read(ACTION)["inputs"])


def test_outputs_of_the_calls_in_the_docs_are_outputs_of_the_actions():
    calls = (ROOT / "docs/github.md").read_text().split("| step | call |")[1].split("\n\n")[0]
    have = {path: set(read(path)["outputs"]) for path in ACTIONS}
    report, command = (ROOT / ".github/actions" / name / "action.yml" for name in ("report", "command"))
    where = {"file": report, "fetch": report, "post": report, "approved": report, "command": command}
    rows = re.findall(r"\| `d3bot (\w+).*\|([^|]*)\|$", calls, re.MULTILINE)
    assert {name for name, _ in rows} >= {"plan", "run", "merge", "check", "retest", *where}
    for name, cell in rows:
        told = set(re.findall(r"`([a-z-]+)`", cell.split("(")[0]))
        assert told <= have[where.get(name, ACTION)], name


def test_a_workflow_gives_an_action_only_inputs_that_it_has():
    for path in WORKFLOWS:
        for step in steps_of(path):
            uses = step.get("uses", "")
            if uses.startswith("./.d3bot"):
                folder = ROOT / uses.removeprefix("./.d3bot").strip("/")
                assert set(step.get("with", {})) <= set(read(folder / "action.yml")["inputs"]), (path.name, uses)


def test_the_lock_holds_every_dependency_with_its_hashes():
    text = LOCK.read_text()
    assert "://" not in text
    locked = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, version = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", entry).groups()
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
        locked.setdefault(canonicalize_name(name), []).append(version)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11"}):
            versions = locked[canonicalize_name(requirement.name)]
            assert all(requirement.specifier.contains(version) for version in versions), requirement


def lint(name, *arguments):
    """Run a linter of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    tool = shutil.which(name, path=path)
    if tool is None:
        assert not os.environ.get("CI"), f"{name} is not installed, and CI must not pass without it"
        pytest.skip(f"{name} is not installed")
    done = subprocess.run([tool, *arguments], cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_accepts_the_workflows():
    lint("actionlint", *map(str, WORKFLOWS))


def test_shellcheck_accepts_the_scripts():
    lint("shellcheck", *map(str, SCRIPTS))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-actions", ACTIONS),
        ("vendor.dependabot", [ROOT / ".github/dependabot.yml"]),
    ],
    ids=["workflows", "actions", "dependabot"],
)
def test_the_schema_accepts(schema, files):
    lint("check-jsonschema", "--builtin-schema", schema, *map(str, files))


def test_zizmor_finds_nothing_that_is_not_justified_in_place():
    lint("zizmor", "--offline", "--no-progress", "--quiet", "--config", ".github/zizmor.yml", "action.yml", ".github")
