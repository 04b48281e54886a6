"""Artifacts: found, fetched, and taken for what they may be; whose pull request it is, and whether its code may run."""

import io
import stat
import struct
import warnings
import zipfile
from datetime import timedelta
from functools import partial

import pytest

from d3bot.github.artifacts import fetch_latest, fetch_of_run, heartbeat, unpack
from d3bot.github.pulls import approved, load_event, pull_of
from d3bot.history.run_files import MAX_FILES, allowed, check_folder
from d3bot.spec import SpecError
from d3bot.tracker import FolderTracker, file_run
from tests.github.nights import failing, night
from tests.github.proxy import Fault, packed

ONE = failing("one")


@pytest.fixture
def data(hub, tmp_path):
    return packed(night(tmp_path / "made", 1, hub.clock.now(), [ONE]))


def made_of(name, content=b"x", mode=0, times=1, size=None):
    data = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # two entries of one name are the point
        archive.writestr("run.json", "{}")
        for _ in range(times):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return data.getvalue()


def test_an_artifact_is_fetched_without_handing_the_token_on(hub, data, tmp_path):
    hub.proxy.artifacts[7] = [{"id": 1, "name": "d3bot-run", "data": data}]
    fetched = fetch_of_run(hub.client(), 7, "d3bot-run", tmp_path / "out")
    assert (fetched.folder, fetched.reason) == (tmp_path / "out", "from run 7")
    check_folder(tmp_path / "out")
    assert file_run(tmp_path / "out", FolderTracker(tmp_path / "t"), hub.clock.now())[0].action == "file"


@pytest.mark.parametrize("facts", [{"expired": True}, None])
def test_f4_an_artifact_that_expired_or_never_was_is_no_baseline_and_no_crash(hub, data, tmp_path, facts):
    if facts:
        hub.proxy.artifacts[7] = [{"id": 1, "name": "d3bot-run", "data": data, **facts}]
    fetched = fetch_of_run(hub.client(), 7, "d3bot-run", tmp_path / "out")
    assert fetched.folder is None
    assert "expired" in fetched.reason or "has no artifact" in fetched.reason
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("facts", [{"appears_after": 2}, {"missing": 2}])
def test_f5_an_artifact_that_is_late_is_waited_for(hub, data, tmp_path, facts):
    hub.proxy.artifacts[7] = [{"id": 1, "name": "d3bot-run", "data": data, **facts}]
    assert fetch_of_run(hub.client(), 7, "d3bot-run", tmp_path / "out").folder
    assert 0 < hub.clock.slept < 60


@pytest.mark.parametrize("facts", [{"appears_after": 99}, {"missing": 99}])
def test_f5_but_not_for_ever(hub, data, tmp_path, facts):
    hub.proxy.artifacts[7] = [{"id": 1, "name": "d3bot-run", "data": data, **facts}]
    assert fetch_of_run(hub.client(), 7, "d3bot-run", tmp_path / "out").folder is None
    assert hub.clock.slept < 120


@pytest.fixture
def ran(hub):
    """Return a function that tells of a run of the nightly workflow, of this repository unless said otherwise."""

    def made(number, days, conclusion="success", event="schedule", home=None):
        moment = f"{hub.clock.now() - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
        facts = {"id": number, "created_at": moment, "conclusion": conclusion, "event": event, "head_branch": "main"}
        hub.proxy.runs.append({**facts, "head_repository": {"full_name": home or hub.repo}})

    return made


def test_f4_the_newest_night_that_still_has_its_artifact_is_the_baseline(hub, data, tmp_path, ran):
    ran(3, 1, "failure")
    ran(2, 2)
    ran(1, 3)
    hub.proxy.artifacts[1] = [{"id": 1, "name": "d3bot-run", "data": data}]
    hub.proxy.artifacts[2] = [{"id": 2, "name": "d3bot-run", "data": data, "expired": True}]
    hub.proxy.artifacts[3] = [{"id": 3, "name": "d3bot-run", "data": data}]
    assert fetch_latest(hub.client(), "nightly.yml", "main", "d3bot-run", tmp_path / "out").reason == "from run 1"
    nothing = fetch_latest(hub.client(), "nightly.yml", "other", "d3bot-run", tmp_path / "none")
    assert nothing.reason == "nightly.yml has no successful run on other"


@pytest.mark.parametrize(
    "facts",
    [
        {"event": "pull_request"},
        {"event": "pull_request_target"},
        {"event": "pull_request", "home": "forker/lib"},
        {"home": "forker/lib"},
    ],
    ids=str,
)
def test_g4_a_workflow_of_our_name_on_a_branch_of_our_name_in_a_pull_request_is_no_night(
    hub, data, tmp_path, ran, facts
):
    ran(9, 1, **facts)
    hub.proxy.artifacts[9] = [{"id": 9, "name": "d3bot-run", "data": data}]
    assert fetch_latest(hub.client(), "nightly.yml", "main", "d3bot-run", tmp_path / "out").folder is None


def test_j3_the_report_says_when_the_schedule_last_succeeded_whatever_was_started_by_hand(hub, ran):
    beat = partial(heartbeat, hub.client(), "nightly.yml", "main", hub.clock.now())
    assert beat() == "nightly.yml never succeeded on its schedule on main"
    ran(10, 1, event="workflow_dispatch")
    ran(9, 12)
    assert beat() == "nightly.yml last succeeded on its schedule 12 days ago"


HOSTILE = {
    "link": (made_of("summary.md", b"/etc/passwd", stat.S_IFLNK | 0o777), "link or a device"),
    "fifo": (made_of("summary.md", b"", stat.S_IFIFO | 0o666), "link or a device"),
    "climbs": (made_of("../../etc/cron.d/x"), "leaves the folder"),
    "climbs inside": (made_of("findings/../../x"), "leaves the folder"),
    "absolute": (made_of("/etc/passwd"), "leaves the folder"),
    "backslash": (made_of("findings\\x"), "leaves the folder"),
    "extra file": (made_of("run.sh"), "does not belong"),
    "extra in a finding": (made_of(f"findings/{ONE.key}/evil.py"), "does not belong"),
    "hidden": (made_of(".git/config"), "does not belong"),
    "line end": (made_of("run.json\n"), "does not belong"),
    "other finding name": (made_of("findings/A B/repro.py"), "does not belong"),
    "twice": (made_of("run.json"), "there twice"),
    "ten thousand": (made_of(f"findings/{ONE.key}/repro.py", b"", times=MAX_FILES + 1), "more than 10,000 entries"),
    "no zip": (b"PK not at all", "no zip file"),
    "empty": (b"", "no zip file"),
    "cut": (made_of("summary.md", b"y" * 5000)[:-40], "no zip file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_g5_a_hostile_artifact_is_refused_with_one_line_and_leaves_nothing(tmp_path, name):
    data, words = HOSTILE[name]
    with pytest.raises(SpecError, match=words) as caught:
        unpack(data, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_g5_a_bomb_is_refused_by_what_it_says_and_by_what_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr("d3bot.github.artifacts.MAX_BYTES", 10**6)
    bomb = made_of("report.html", b"0" * 10**7)
    assert len(bomb) < 20_000
    with pytest.raises(SpecError, match="unpacks to more"):
        unpack(bomb, tmp_path / "out")
    # The same with sizes that lie: in the directory and in the entry's own header.
    lying = bytearray(bomb)
    for signature, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        start = lying.rfind(signature)
        struct.pack_into("<I", lying, start + place, 10)
    with pytest.raises(SpecError, match=r"cannot be unpacked|unpacks to more"):
        unpack(bytes(lying), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_g5_a_directory_of_a_million_names_is_not_even_read(tmp_path):
    data = bytearray(made_of("summary.md"))
    struct.pack_into("<HI", data, data.rfind(b"PK\x05\x06") + 10, 65_000, 90 * 10**6)
    with pytest.raises(SpecError, match="more than 10,000 entries"):
        unpack(bytes(data), tmp_path / "out")


@pytest.fixture
def folder(hub, tmp_path):
    return night(tmp_path, 1, hub.clock.now(), [ONE])


def spoil_link(folder):
    (folder / "summary.md").symlink_to("/etc/passwd")


def spoil_folder_link(folder):
    (folder / "fixed").symlink_to("/etc")


def spoil_extra(folder):
    (folder / "evil.sh").write_text("x")


def spoil_deep(folder):
    (folder / "findings" / ONE.key / "a" / "b").mkdir(parents=True)


def spoil_missing(folder):
    (folder / "findings" / ONE.key / "repro.py").unlink()


def spoil_types(folder):
    path = folder / "findings" / ONE.key / "finding.json"
    path.write_text(path.read_text().replace('"verified": true', '"verified": {"a": []}'))


def spoil_run(folder):
    (folder / "run.json").write_text('{"schema": 1, "run": 5}')


def spoil_deeply_nested(folder):
    (folder / "run.json").write_text("[" * 200_000)


def spoil_evidence(folder):
    (folder / "evidence.json").write_text('{"schema": 1, "evidence": {"a": 1}}')


SPOILS = [value for name, value in sorted(globals().items()) if name.startswith("spoil_")]


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda each: each.__name__.removeprefix("spoil_"))
def test_g5_a_hostile_folder_is_refused_with_one_line_and_files_nothing(hub, folder, spoil):
    spoil(folder)

    def filing():
        check_folder(folder)
        file_run(folder, hub.tracker("r1"), hub.clock.now())

    with pytest.raises(SpecError) as caught:
        filing()
    assert "\n" not in str(caught.value)
    assert hub.issues() == []


def test_g5_a_million_findings_are_refused_before_they_are_counted_out(hub, folder):
    for number in range(MAX_FILES // 2 + 2):
        path = folder / "findings" / f"torch-x-{number:08x}"
        path.mkdir()
        (path / "repro.py").touch()
        (path / "issue.md").touch()
    with pytest.raises(SpecError, match="more than 10,000 entries"):
        check_folder(folder)


def test_everything_that_d3bot_writes_belongs_into_a_run_folder(folder):
    check_folder(folder)
    for name in ("run.json", "base/verdicts.jsonl", f"head/findings/{ONE.key}/repro.py", f"fixed/{ONE.key}/case.toml"):
        assert allowed(name)


SHA = "b" * 40


def pull(number, sha=SHA, owner="forker", name="forker/lib", branch="fix", labels=()):
    head = {"sha": sha, "ref": branch, "label": f"{owner}:{branch}", "repo": {"full_name": name}}
    return {"number": number, "head": head, "state": "open", "labels": [{"name": each} for each in labels]}


def event(sha=SHA, owner="forker", name="forker/lib", kind="pull_request"):
    head = {"full_name": name, "owner": {"login": owner}}
    return {
        "workflow_run": {
            "event": kind,
            "head_sha": sha,
            "head_branch": "fix",
            "head_repository": head,
            "pull_requests": [],
        }
    }


@pytest.fixture
def pulls(hub):
    hub.proxy.pulls = {4: pull(4), 5: pull(5, "c" * 40, branch="other")}
    return hub


def test_g2_a_genuine_pull_request_of_a_fork_is_found_by_its_head(pulls):
    assert pull_of(pulls.client(), event()).number == 4
    assert pull_of(pulls.client(), event(), claimed=4).number == 4


@pytest.mark.parametrize(
    ("given", "claimed", "words"),
    [
        (event(), 5, "says that it is of pull request #5"),
        (event(sha="d" * 40), 0, "no single open pull request"),
        (event(name="other/lib"), 0, "no single open pull request"),
        (event(kind="schedule"), 0, "no workflow_run of a pull request"),
        ({}, 0, "no workflow_run of a pull request"),
    ],
)
def test_g2_a_forged_number_or_head_is_refused(pulls, given, claimed, words):
    with pytest.raises(SpecError, match=words):
        pull_of(pulls.client(), given, claimed)


def labelled(sender="writer", action="labeled", label="d3bot: run", sha=SHA):
    return {"action": action, "label": {"name": label}, "sender": {"login": sender}, "pull_request": pull(4, sha)}


@pytest.mark.parametrize(
    ("given", "now", "ok", "words"),
    [
        (labelled(), pull(4, labels=["d3bot: run"]), True, "approved bbbb"),
        (labelled(), pull(4, "e" * 40, labels=["d3bot: run"]), False, "pushed to after"),
        (labelled(), pull(4), False, "taken off again"),
        (labelled("reader"), pull(4, labels=["d3bot: run"]), False, "may not write"),
        (labelled("author"), pull(4, labels=["d3bot: run"]), False, "may not write"),
        (labelled(action="synchronize"), pull(4, labels=["d3bot: run"]), False, "takes the permission away"),
        (labelled(label="bug"), pull(4, labels=["d3bot: run", "bug"]), False, "only putting on the label"),
        ({"action": "labeled"}, pull(4), False, "of no pull request"),
    ],
)
def test_g4_a_forks_code_runs_only_at_the_commit_that_a_maintainer_labelled(pulls, given, now, ok, words):
    pulls.proxy.pulls[4] = now
    found, reason = approved(pulls.client(), given, "d3bot: run")
    assert (found, words in reason) == (ok, True)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_an_event_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "event.json"
    path.write_text(text)
    with pytest.raises(SpecError):
        load_event(path)


def test_a_download_that_the_server_breaks_off_is_tried_again(hub, data, tmp_path):
    hub.proxy.artifacts[7] = [{"id": 1, "name": "d3bot-run", "data": data}]
    hub.proxy.faults.append(Fault("503", "GET", "/zip$"))
    assert fetch_of_run(hub.client(), 7, "d3bot-run", tmp_path / "out").folder
