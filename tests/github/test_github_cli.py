"""The commands as a workflow calls them: arguments, environment, outputs, summary, exit codes."""

import json
import os
import sys

import pytest

from d3bot.cli import main
from d3bot.flow.plan_file import write_plan
from d3bot.generate.costs import NO_COSTS
from d3bot.history.folder import RunWriter
from d3bot.spec import Trial
from tests.findings.samples import KEY, SETTING, case, run, verdict
from tests.github.nights import checked, failing, night
from tests.github.proxy import Fault, packed
from tests.github.test_github_artifacts import SHA, event, pull

ONE = failing("one")


@pytest.fixture
def cli(hub, tmp_path, monkeypatch, capsys):
    """Return a function that runs d3bot as a step of Actions does and returns its exit code."""

    def called(*arguments, token="bot-token", event=None, **environ):
        output, summary, payload = (tmp_path / name for name in ("output", "summary", "event.json"))
        output.write_text("")
        summary.write_text("")
        payload.write_text(json.dumps(event or {}))
        given = {
            "GITHUB_API_URL": hub.proxy.url,
            "GITHUB_SERVER_URL": hub.proxy.url.removesuffix("/api/v3"),
            "GITHUB_REPOSITORY": hub.repo,
            "GITHUB_TOKEN": token,
            "GITHUB_RUN_ID": "77",
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(("GITHUB_", "D3BOT_"))]:
                patch.delenv(name)
            for name, value in (given | environ).items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["d3bot", *map(str, arguments)])
            patch.setattr("time.sleep", lambda seconds: None)
            with pytest.raises(SystemExit) as ended:
                main()
        called.stdout, called.stderr = capsys.readouterr()
        called.summary, called.outputs = summary.read_text(), _outputs(output.read_text())
        return ended.value.code

    return called


def _outputs(text):
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if "<<" in line:
            name, mark = line.split("<<")
            value = []
            for row in lines:
                if row == mark:
                    break
                value.append(row)
            found[name] = "\n".join(value)
    return found


def test_a_run_is_filed_and_says_what_it_did(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    assert cli("file", folder, "--tracker", "github") == 0, cli.stderr
    assert cli.outputs == {"filed": "1", "closed": "0", "decisions": "1"}
    assert f"| file | `{ONE.key}` | no record has this key |" in cli.summary
    assert cli.stdout.startswith("::stop-commands::")
    assert len(hub.issues()) == 1


def test_a_dry_run_decides_everything_and_writes_nothing(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    assert cli("file", folder, "--tracker", "github", "--dry-run") == 0, cli.stderr
    assert f"file {ONE.key}: no record has this key" in cli.stdout
    assert "would file" in cli.stderr
    assert {method for method, _ in hub.proxy.requests} == {"GET"}


def test_c8_a_run_of_a_pull_request_never_files_issues(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    for name, payload in (("pull_request", {}), ("pull_request_target", {}), ("workflow_run", event())):
        assert cli("file", folder, "--tracker", "github", event=payload, GITHUB_EVENT_NAME=name) == 2
        assert "never files issues" in cli.stderr
    assert hub.issues() == []


def test_another_repository_needs_the_allow_list(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    given = {"GITHUB_REPOSITORY": "octocat/fork", "D3BOT_TRACKER_REPO": hub.repo}
    assert cli("file", folder, "--tracker", "github", **given) == 2
    assert "add it to [tracker] allow" in cli.stderr
    assert cli("file", folder, "--tracker", "github", **given, D3BOT_TRACKER_ALLOW=hub.repo) == 0, cli.stderr


def test_g5_a_hostile_folder_is_one_line_and_nothing_is_asked(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    (folder / "run.sh").write_text("x")
    assert cli("file", folder, "--tracker", "github") == 2
    assert len(cli.stderr.splitlines()) == 1
    assert hub.proxy.requests == []


def test_b6_a_budget_that_kept_findings_back_fails_the_step(hub, cli, tmp_path):
    findings = [failing(f"n{i}", family=family) for i, family in enumerate(("ddp", "tp", "pp", "fsdp2"))]
    folder = night(tmp_path, 1, hub.clock.now(), findings)
    assert cli("file", folder, "--tracker", "github", D3BOT_TRACKER_PER_RUN="2") == 1
    assert cli.outputs["filed"] == "3"


def test_b1_a_bad_build_fails_the_step(hub, cli, tmp_path):
    verdicts = [verdict("diverged", f"c{i}", key=failing(f"n{i}").key) for i in range(40)]
    assert cli("file", night(tmp_path, 1, hub.clock.now(), [ONE], verdicts), "--tracker", "github") == 3


def test_j3_a_night_that_left_nothing_is_told(hub, cli):
    assert cli("file", "--tracker", "github", "--failed", "the shards were cancelled") == 3
    assert "the shards were cancelled" in hub.issues()[0]["body"]


def test_without_an_answer_from_github_the_step_fails_and_files_nothing(hub, cli, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    hub.proxy.faults.append(Fault("401", "POST", "/labels$", 9))
    assert cli("file", folder, "--tracker", "github") == 3
    assert "401" in cli.summary


def test_a_template_of_ones_own_that_is_wrong_files_nothing(hub, cli, tmp_path):
    (tmp_path / "mine" / "issue").mkdir(parents=True)
    (tmp_path / "mine" / "issue" / "issue.md.j2").write_text("{{ oops }}")
    folder = night(tmp_path, 1, hub.clock.now(), [ONE])
    assert cli("file", folder, "--tracker", "github", D3BOT_TEMPLATES="mine") == 2
    assert "'oops' is undefined" in cli.stderr
    assert hub.issues() == []


def test_the_matrix_is_json_and_the_shards_share_a_seed(cli):
    assert cli("plan", "--shards", "3") == 0
    matrix = json.loads(cli.outputs["matrix"])
    assert matrix == json.loads(cli.stdout)
    assert [each["shard"] for each in matrix["include"]] == ["1/3", "2/3", "3/3"]
    assert {str(each["seed"]) for each in matrix["include"]} == {cli.outputs["seed"]}
    assert cli("plan", "--shards", "257") == 2


def test_f6_a_missing_shard_fails_the_merge_and_names_itself(cli, tmp_path):
    parts = []
    for index in (1, 3):
        folder = tmp_path / f"part{index}"
        begun = run(f"r-{index}", config={"shard": {"index": index, "count": 3}})
        writer = RunWriter.create(folder, begun)
        write_plan(folder, [Trial(case=case(), setting=SETTING)], NO_COSTS)
        writer.append(verdict("pass", case().id))
        writer.finish(begun)
        parts.append(folder)
    assert cli("merge", *parts, "--shards", 3, "--out", "merged") == 3
    assert "shard 2/3 is missing" in cli.stderr
    assert cli.outputs["verdict"] == "no-data"
    assert "shard 2/3 is missing" in cli.summary


def test_an_artifact_is_fetched_and_its_absence_is_an_answer(hub, cli, tmp_path):
    data = packed(night(tmp_path / "made", 1, hub.clock.now(), [ONE]))
    hub.proxy.artifacts[5] = [{"id": 1, "name": "d3bot-run", "data": data}]
    assert cli("fetch", "--run-id", 5, "--out", "run") == 0, cli.stderr
    assert cli.outputs == {"found": "true", "run-dir": "run"}
    assert (tmp_path / "run" / "run.json").exists()
    hub.proxy.artifacts[6] = [{"id": 2, "name": "d3bot-run", "data": data, "expired": True}]
    assert cli("fetch", "--run-id", 6, "--out", "none") == 0
    assert cli.outputs["found"] == "false"
    assert cli("fetch", "--run-id", 6, "--out", "none", "--required") == 3


@pytest.fixture
def told(tmp_path):
    return checked(tmp_path / "check", ONE)


@pytest.fixture
def pulls(hub):
    hub.person("POST", "/issues", {"title": "a change"})
    sha = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/main")["sha"]
    hub.proxy.pulls = {1: pull(1, sha)}
    return sha


def test_a_check_is_posted_to_the_pull_request_of_the_event(hub, cli, told, pulls):
    assert cli("post", told, "--sarif", "out.sarif", event=event(sha=pulls)) == 0, cli.stderr
    (comment,) = hub.comments(1)
    assert "1 failure" in comment["body"]
    assert "@octocat" not in comment["body"]
    made = hub.emulator.ask("GET", f"/repos/{hub.repo}/commits/{pulls}/check-runs")["check_runs"]
    assert [each["conclusion"] for each in made] == ["failure"]
    assert cli.outputs == {"pull": "1", "verdict": "worse"}
    assert cli("post", told, event=event(sha=pulls)) == 0
    assert len(hub.comments(1)) == 1


def test_g1_what_may_not_be_written_stands_in_the_summary_and_the_step_is_green(hub, cli, told, pulls):
    hub.proxy.faults += [Fault("403", "POST", "/comments$", 5), Fault("403", "POST", "/check-runs$", 5)]
    assert cli("post", told, event=event(sha=pulls)) == 0, cli.stderr
    assert "1 failure" in cli.summary
    assert "The comment could not be written" in cli.summary


def test_g2_a_forged_number_in_the_artifact_is_refused(hub, cli, told, pulls):
    path = told / "check.json"
    path.write_text(path.read_text().replace('"pull": 0', '"pull": 99'))
    assert cli("post", told, event=event(sha=pulls)) == 2
    assert "says that it is of pull request #99" in cli.stderr
    assert hub.comments(1) == []


def test_a_command_is_answered_and_a_request_becomes_outputs(hub, cli, tmp_path):
    cli("file", night(tmp_path, 1, hub.clock.now(), [ONE]), "--tracker", "github")
    comment = hub.person("POST", "/issues/1/comments", {"body": "/d3bot retest"})
    given = {"action": "created", "issue": {"number": 1}, "comment": comment}
    assert cli("command", event=given) == 0, cli.stderr
    assert cli.outputs == {"action": "retest", "issue": "1", "key": ONE.key, "from": "", "to": ""}
    assert cli("command", event=given) == 0
    assert cli.outputs["action"] == ""
    assert len(hub.comments(1)) == 2


def test_g4_approval_is_an_exit_code_and_a_commit(hub, cli, pulls):
    hub.proxy.pulls = {1: pull(1, SHA, labels=["d3bot: run"])}
    given = {
        "action": "labeled",
        "label": {"name": "d3bot: run"},
        "sender": {"login": "writer"},
        "pull_request": pull(1),
    }
    assert cli("approved", event=given) == 0, cli.stderr
    assert cli.outputs == {"approved": "true", "sha": SHA}
    assert cli("approved", event=given | {"action": "synchronize"}) == 1
    assert cli.outputs == {"approved": "false", "sha": ""}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("file", "--tracker", "github"), "either the folder of a run or --failed"),
        (("fetch", "--out", "x"), "either --run-id or --workflow"),
        (("retest", "nowhere", KEY, "--build", "torch==2.13.0", "--out", "x"), "nowhere"),
        (("post", "nowhere"), "nowhere"),
        (("merge", "nowhere", "--out", "x"), "nowhere"),
    ],
)
def test_wrong_use_is_one_line(cli, arguments, words):
    assert cli(*arguments) == 2
    assert len(cli.stderr.splitlines()) == 1
    assert words in cli.stderr


def test_a_missing_token_is_one_line(hub, cli, tmp_path):
    assert cli("file", night(tmp_path, 1, hub.clock.now(), [ONE]), "--tracker", "github", token="") == 2
    assert "GITHUB_TOKEN: not given" in cli.stderr
