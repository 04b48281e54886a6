"""Filing into a real server behind faults.

A name that begins with a letter and a number answers a public report of what went wrong with such a bot: `a1` is
JasonEtco/create-an-issue#121, and so on; docs/github.md lists them.
"""

import json
import shutil
import threading
from datetime import timedelta

import pytest

from d3bot.config import TrackerConfig
from d3bot.findings import Symptom, symptom_key
from d3bot.findings.lifecycle import infrastructure_key, overflow_key, script_hash, summary_key
from d3bot.findings.policy import Policy
from d3bot.github.body import LIMIT, key_in, record_in
from d3bot.github.tracker import Naming
from d3bot.spec import Bisection, Evidence, Point, Setting
from d3bot.tracker.filing import file_failure, file_run
from tests.findings.samples import FIRST, verdict
from tests.github.nights import SCRIPT, build, failing, night
from tests.github.proxy import Fault

DAY = timedelta(days=1)
POLICY = TrackerConfig().policy()
ONE = failing("one")


@pytest.fixture
def filing(hub, tmp_path):
    """Return a function that files a night and returns its decisions as {key: action}."""

    def filed(number, *findings, policy=POLICY, naming=None, client=None, file_all=False, **facts):
        folder = night(tmp_path, number, facts.pop("started", hub.clock.now()), findings, **facts)
        tracker = hub.tracker(f"r{number}", naming, **(client or {}))
        decisions = file_run(folder, tracker, hub.clock.now(), file_all, policy=policy)
        filed.reasons = {each.key: each.reason for each in decisions}
        filed.folder = folder
        return {each.key: each.action for each in decisions}

    return filed


def evidence(finding, version="2.14.0.dev20261210", passed=3, runs=3, script=SCRIPT, **facts):
    return Evidence(
        key=finding.key, build=build(version, **facts), script=script_hash(script), runs=runs, passed=passed
    )


def open_keys(hub):
    return sorted(key_in(issue["body"]) for issue in hub.issues() if issue["state"] == "open")


# A. Duplicates and identity


def test_a1_a_key_that_fails_again_after_its_issue_was_closed_reopens_that_issue(hub, filing):
    assert filing(1, ONE) == {ONE.key: "file"}
    hub.person("PATCH", "/issues/1", {"state": "closed"})
    hub.clock.sleep(3 * 86400)
    assert filing(2, ONE) == {ONE.key: "reopen"}
    (issue,) = hub.issues()
    assert issue["state"] == "open"
    assert len(hub.comments(1)) == 1


def test_a2_ten_nights_of_one_failure_are_one_issue_without_a_comment(hub, filing):
    for number in range(1, 11):
        filing(number, ONE)
        hub.clock.sleep(86400)
    (issue,) = hub.issues()
    assert hub.comments(issue["number"]) == []
    assert "Seen in 10 runs" in issue["body"]


@pytest.mark.parametrize("kind", ["lag", "empty"])
def test_a3_two_filers_and_a_listing_that_lags_make_one_issue(hub, tmp_path, kind):
    folders = [night(tmp_path, number, hub.clock.now(), [ONE]) for number in (1, 2)]
    hub.proxy.faults += [Fault(kind, "GET", "/issues$", 3)]
    threads = [
        threading.Thread(
            target=file_run, args=(folder, hub.tracker(f"r{i}"), hub.clock.now()), kwargs={"policy": POLICY}
        )
        for i, folder in enumerate(folders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file_run(night(tmp_path, 3, hub.clock.now(), [ONE]), hub.tracker("r3"), hub.clock.now(), policy=POLICY)
    assert open_keys(hub) == [ONE.key]


def test_a3_of_two_open_issues_of_one_key_the_older_stays(hub, filing):
    filing(1, ONE)
    body = hub.issues()[0]["body"]
    hub.person("POST", "/issues", {"title": ONE.title, "body": body, "labels": ["d3bot"]}, "bot-token")
    hub.clock.sleep(86400)
    filing(2, ONE)
    first, second = hub.issues()
    assert (first["state"], second["state"], second["state_reason"]) == ("open", "closed", "not_planned")
    assert ["Duplicate of #1" in each["body"] for each in hub.comments(2)] == [True]
    hub.clock.sleep(86400)
    assert filing(3, ONE) == {ONE.key: "update"}


@pytest.mark.parametrize("kind", ["502-only", "empty"])
def test_a6_a_listing_that_fails_or_is_empty_without_reason_creates_nothing(hub, filing, kind):
    filing(1, ONE)
    hub.clock.sleep(86400)
    hub.proxy.faults.append(Fault("before" if kind == "502-only" else "empty", "GET", "/issues$", 50))
    other = failing("two")
    assert filing(2, ONE, other) == {ONE.key: "failed", other.key: "failed"}
    assert len(hub.issues()) == 1
    hub.proxy.faults.clear()
    hub.clock.sleep(86400)
    assert filing(3, ONE, other) == {ONE.key: "update", other.key: "file"}


def test_a6_an_empty_listing_is_believed_once_the_newest_issue_is_truly_gone(hub, filing):
    filing(1, ONE)
    hub.proxy.faults += [Fault("empty", "GET", "/issues$", 2), Fault("404", "GET", "/issues/1$", 1)]
    hub.clock.sleep(86400)
    two = failing("two")
    assert filing(2, two) == {two.key: "file"}


@pytest.mark.parametrize("kind", ["after", "drop"])
def test_a7_a_server_error_after_the_issue_was_stored_does_not_store_it_twice(hub, filing, kind):
    hub.proxy.faults.append(Fault(kind, "POST", "/issues$"))
    assert filing(1, ONE) == {ONE.key: "file"}
    assert len(hub.issues()) == 1
    assert [method for method, path in hub.proxy.requests if path.endswith("/issues")].count("POST") == 1


def test_a7_and_one_before_it_was_stored_is_made_good(hub, filing):
    hub.proxy.faults.append(Fault("before", "POST", "/issues$"))
    assert filing(1, ONE) == {ONE.key: "file"}
    assert len(hub.issues()) == 1


def test_a8_one_failure_under_other_words_joins_its_issue_as_a_variant(hub, filing):
    setting = Setting.parse("ddp(world=2)")
    keys = [
        f"torch-ddp-crashed-{name}-reduce_scatter_hook-0000000{i}" for i, name in enumerate(("keyerror", "valueerror"))
    ]
    hang = "torch-ddp-hung-reduce_scatter_hook-00000003"
    filing(1, failing("a", "crashed", "ddp", key=keys[0], setting=setting))
    hub.clock.sleep(86400)
    again = [failing("b", "crashed", "ddp", key=keys[1]), failing("c", "hung", "ddp", key=hang)]
    assert filing(2, *again) == {keys[1]: "update", hang: "update"}
    (issue,) = hub.issues()
    assert f"Also seen as `{keys[1]}`, `{hang}`." in issue["body"]
    hub.clock.sleep(86400)
    assert filing(3, again[0]) == {keys[1]: "update"}


def test_a8_functions_that_every_failure_passes_through_join_nothing(hub, filing):
    keys = [f"torch-ddp-crashed-error{i}-forward-0000000{i}" for i in (1, 2)]
    filing(1, failing("a", "crashed", "ddp", key=keys[0]))
    assert filing(2, failing("b", "crashed", "ddp", key=keys[1])) == {keys[1]: "file"}


def test_a9_what_nothing_is_known_about_is_never_filed_and_never_shown_under_another_key(hub, filing):
    hang = failing("x", "hung", key=symptom_key("torch", Setting.parse("ddp(world=2)"), Symptom("hung")))
    assert filing(1, hang, ONE) == {hang.key: "skip", ONE.key: "file"}
    (issue,) = hub.issues()
    assert hang.key not in issue["body"]
    assert record_in(issue["body"]).key == key_in(issue["body"]) == ONE.key


def test_a10_a_night_without_data_is_one_infrastructure_issue(hub, filing):
    for number in (1, 2, 3):
        assert filing(number, ONE, failing("two"), complete=False)[infrastructure_key()] == "delay"
        hub.clock.sleep(86400)
    (issue,) = hub.issues()
    assert key_in(issue["body"]) == infrastructure_key()
    assert hub.comments(issue["number"]) == []


def test_a12_what_came_back_after_d3bot_closed_it_is_closed_by_a_person_only(hub, filing):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    assert filing(2, evidence=[evidence(ONE, "2.14.0.dev20261210")]) == {ONE.key: "close"}
    assert hub.issues()[0]["state"] == "closed"
    hub.clock.sleep(3 * 86400)
    again = ONE.model_copy(update={"build": build("2.14.0.dev20261213")})
    assert filing(3, again) == {ONE.key: "reopen"}
    assert "will not close it a second time" in hub.comments(1)[-1]["body"]
    hub.clock.sleep(20 * 86400)
    assert filing(4, evidence=[evidence(ONE, "2.14.0.dev20261230")]) == {ONE.key: "skip"}
    assert "a person decides" in filing.reasons[ONE.key]
    assert hub.issues()[0]["state"] == "open"


def test_a14_an_issue_with_a_marker_of_other_rules_is_still_its_issue(hub, filing):
    body = f"<!-- d3bot:v0 key={ONE.key} -->\nAn issue of long ago."
    hub.person("POST", "/issues", {"title": "old", "body": body, "labels": ["d3bot"]}, "bot-token")
    assert filing(1, ONE) == {ONE.key: "update"}
    assert hub.issues()[0]["body"].startswith(body)


# B. Floods and spam


def test_b1_a_bad_build_files_one_infrastructure_issue_and_stops(hub, filing):
    verdicts = [verdict("diverged", f"c{i}", key=failing(f"n{i}").key, first=FIRST) for i in range(500)]
    findings = [failing(f"n{i}") for i in range(30)]
    decided = filing(1, *findings, verdicts=verdicts)
    assert decided.pop(infrastructure_key()) == "panic"
    assert set(decided.values()) == {"delay"}
    (issue,) = hub.issues()
    assert "shows 500 failures that no issue has" in issue["body"]
    hub.clock.sleep(86400)
    filing(2, *findings, verdicts=verdicts)
    assert len(hub.issues()) == 1


def test_b1_many_new_findings_are_five_issues_and_one_that_lists_the_rest(hub, filing):
    findings = [failing(f"n{i}", family=family) for i, family in enumerate(["ddp", "tp", "pp", "fsdp2"] * 3)]
    decided = filing(1, *findings)
    assert sorted(decided.values()) == ["delay"] * 7 + ["file"] * 6
    assert decided[overflow_key("torch")] == "file"
    assert len(hub.issues()) == 6
    listing = next(issue for issue in hub.issues() if key_in(issue["body"]) == overflow_key("torch"))
    for each in findings:
        assert (f"`{each.key}`" in listing["body"]) == (decided[each.key] == "delay")


def test_b1_what_was_too_much_gets_issues_of_its_own_on_later_nights(hub, filing):
    findings = [failing(f"n{i}", family=family) for i, family in enumerate(["ddp", "tp", "pp", "fsdp2"] * 3)]
    for number in range(1, 5):
        filing(number, *findings)
        hub.clock.sleep(86400 + 3600)
    assert set(open_keys(hub)) == {overflow_key("torch"), *(each.key for each in findings)}
    listing = next(issue for issue in hub.issues() if key_in(issue["body"]) == overflow_key("torch"))
    assert "Nothing is listed now." in listing["body"]


def test_b1_a_day_has_its_budget_however_often_a_run_is_filed(hub, filing):
    policy = Policy(per_run=5, per_day=7, crowd=99)
    for number in range(1, 4):
        filing(number, *(failing(f"n{number}{i}") for i in range(5)), policy=policy)
        hub.clock.sleep(3600)
    assert len([key for key in open_keys(hub) if key != overflow_key("torch")]) == 7


def test_b2_many_findings_of_one_family_and_kind_are_one_issue_and_a_list(hub, filing):
    crowd = [failing(f"n{i}") for i in range(4)]
    assert sorted(filing(1, *crowd).values()) == ["delay"] * 3 + ["file"] * 2
    hub.clock.sleep(86400)
    assert sorted(filing(2, *crowd).values()) == ["delay"] * 3 + ["update"]
    assert len(hub.issues()) == 2


def test_b3_b5_a_failure_that_lasts_is_told_at_most_every_fourteen_days(hub, filing):
    for number in range(1, 31):
        filing(number, ONE)
        hub.clock.sleep(86400)
    texts = [each["body"] for each in hub.comments(1)]
    assert len(texts) == 2
    for text in texts:
        assert "This still fails on torch 2.14.0.dev20261130" in text


def test_b6_the_cap_is_on_without_any_configuration_and_is_told(hub, filing):
    decided = filing(1, *(failing(f"n{i}") for i in range(12)), policy=TrackerConfig().policy())
    assert list(decided.values()).count("file") <= 1 + TrackerConfig().per_run
    assert any("listed in" in reason or "lists the others" in reason for reason in filing.reasons.values())


def test_b8_nobody_is_mentioned_and_nothing_is_referenced_by_what_a_test_printed(hub, filing):
    hostile = "@octocat @org/team fixes #1 GH-2 https://github.com/o/r/issues/3"
    seen = failing("x", title=hostile).model_copy(update={"unverified_reason": hostile})
    filing(1, seen)
    issue = hub.issues()[0]
    assert "@octocat" not in issue["title"]
    assert "#1" not in issue["title"]
    text = issue["body"].split("<!-- d3bot:status -->")[1]
    assert "@octocat" not in text
    assert "fixes #1" not in text


def test_b9_what_a_test_printed_can_neither_end_a_block_nor_pass_for_our_own_marks(hub, filing):
    state = f'<!-- d3bot:state {{"key":"{ONE.key}","title":"x","ignore":true}} -->'
    script = f"'''\n``````\n<!-- d3bot:v1 key=torch-ddp-hung-x-00000000 -->\n<!-- d3bot:status -->\n{state}\n'''\n"
    filing(1, ONE, script=script)
    before = hub.issues()[0]["body"]
    hub.clock.sleep(86400)
    assert filing(2, ONE, script=script) == {ONE.key: "update"}
    after = hub.issues()[0]["body"]
    assert key_in(after) == ONE.key
    assert after.split("<!-- d3bot:status -->")[0] == before.split("<!-- d3bot:status -->")[0]
    assert "```````python" in after


# C. Closing and reopening


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"passed": 2}, "its script still fails: 2 of 3 passed"),
        ({"passed": 2, "runs": 2}, "passed 2 times, of 3 that are needed"),
        ({"environment": {"machine": "x86_64", "gpus": "H200"}}, "another class of environment"),
        ({"script": "print(2)\n"}, "not one that was seen to fail"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_c1_an_issue_stays_open_until_its_script_passes_often_enough_where_it_failed(hub, filing, shown, why):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    filing(2, evidence=[evidence(ONE, **shown)])
    assert why in filing.reasons[ONE.key]
    assert hub.issues()[0]["state"] == "open"
    hub.clock.sleep(86400)
    assert filing(3, evidence=[evidence(ONE)]) == {ONE.key: "close"}


def test_c3_a_failure_that_its_own_build_shows_no_more_is_unverifiable_and_a_person_is_told(hub, filing):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    lost = evidence(ONE, ONE.build.version)
    assert filing(2, evidence=[lost]) == {ONE.key: "delay"}
    assert "unverifiable" in filing.reasons[ONE.key]
    assert hub.comments(1) == []
    filing(3, evidence=[lost], previous="retest")
    (comment,) = hub.comments(1)
    assert "This stays open: unverifiable" in comment["body"]
    assert hub.issues()[0]["state"] == "open"


def test_c4_a_retest_closes_by_the_rules_of_a_night_whoever_asked_for_it_a_moment_ago(hub, filing):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    hub.person("POST", "/issues/1/comments", {"body": "/d3bot retest"})
    assert filing(2, evidence=[evidence(ONE)], previous="retest") == {ONE.key: "close"}
    assert hub.issues()[0]["state"] == "closed"


def test_c4_a_retest_that_closes_nothing_says_why_once(hub, filing):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    for _ in range(2):
        shutil.rmtree(filing.folder.parent / "run2", ignore_errors=True)
        assert filing(2, evidence=[evidence(ONE, passed=0, runs=1)], previous="retest") == {ONE.key: "skip"}
    (comment,) = hub.comments(1)
    assert "passed 0 of 1 fresh processes on torch 2.14.0.dev20261210" in comment["body"]
    assert "This stays open: its script still fails" in comment["body"]


# D. What is filed at all


@pytest.mark.parametrize("kind", ["diverged", "nonfinite", "crashed", "hung", "died"])
def test_d3_an_issue_shows_what_failed_and_what_failed_once_is_no_issue(hub, filing, kind):
    seen = verdict(kind, reason="the words of the failure", key=failing("x", kind).key, first=FIRST)
    shown = failing("x", kind, verdict=seen, trials=("a trial",))
    once = failing("y", kind, verified=False, unverified_reason="exit 0 in 2 of 3")
    assert filing(1, shown, once) == {shown.key: "file", once.key: "delay"}
    (issue,) = hub.issues()
    assert "the words of the failure" in issue["body"] or FIRST.name in issue["body"]


def test_d10_an_issue_is_filed_when_all_is_known_and_needs_no_second_word(hub, filing):
    good = Point(version="2.14.0.dev20261120", spec="torch@2026-11-20", answer="good")
    bad = Point(version="2.14.0.dev20261121", spec="torch@2026-11-21", answer="bad")
    found = Bisection(subject="torch", direction="broke", status="found", good=good, bad=bad)
    assert filing(1, ONE.model_copy(update={"bisection": found})) == {ONE.key: "file"}
    (issue,) = hub.issues()
    assert "Last good torch 2.14.0.dev20261120, first bad 2.14.0.dev20261121" in issue["body"]
    assert hub.comments(issue["number"]) == []
    assert [method for method, path in hub.proxy.requests if "/issues" in path and method != "GET"] == ["POST"]


# E. Sizes


def test_e2_the_body_holds_the_limit_with_everything_that_is_added(hub, filing):
    big = failing("x").model_copy(
        update={"trials": tuple(f"c{i} {'ä' * 150}" for i in range(500)), "agreeing": ("😀" * 100,) * 50}
    )
    for number in (1, 2, 3):
        assert filing(number, big, script="😀 = 1\n" * 6000) == {big.key: "update" if number > 1 else "file"}
        hub.clock.sleep(86400)
    body = hub.issues()[0]["body"]
    assert len(body) <= len(body.encode()) <= LIMIT
    assert "too long" in body
    assert record_in(body) is not None


# F. Concurrency


def test_f1_two_filers_at_once_lose_no_sighting(hub, tmp_path):
    file_run(night(tmp_path, 1, hub.clock.now(), [ONE]), hub.tracker("r1"), hub.clock.now(), policy=POLICY)
    hub.clock.sleep(86400)
    folders = [night(tmp_path, number, hub.clock.now(), [ONE]) for number in (2, 3)]
    threads = [
        threading.Thread(target=file_run, args=(folder, hub.tracker(folder.name), hub.clock.now()))
        for folder in folders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (issue,) = hub.issues()
    assert set(record_in(issue["body"]).seen_runs) == {"r1", "r2", "r3"}


def test_f2_an_older_run_that_ends_late_changes_nothing(hub, filing):
    started = hub.clock.now()
    filing(1, ONE)
    hub.clock.sleep(86400)
    filing(3, ONE)
    before = hub.issues()[0]["body"]
    assert filing(2, ONE, started=started + timedelta(hours=1)) == {ONE.key: "delay"}
    assert "superseded" in filing.reasons[ONE.key]
    assert hub.issues()[0]["body"] == before


def test_a_lock_that_a_killed_filer_left_is_taken_over(hub, filing):
    hub.person(
        "POST",
        "/labels",
        {"name": "d3bot-filing", "color": "ededed", "description": "0123456789abcdef until 2026-11-30T03:20:00Z"},
    )
    assert filing(1, ONE) == {ONE.key: "file"}
    assert hub.clock.slept > 100


def test_a_lock_that_another_filer_holds_is_respected(hub, filing):
    note = "0123456789abcdef until 2026-12-30T03:20:00Z"
    hub.person("POST", "/labels", {"name": "d3bot-filing", "color": "ededed", "description": note})
    assert filing(1, ONE) == {ONE.key: "failed"}
    assert hub.issues() == []


# H. Limits


def test_h2_a_night_over_two_hundred_open_issues_stays_below_a_hundred_requests(hub, filing):
    findings = [failing(f"n{i}", family=f"f{i % 40}", kind="nonfinite" if i % 2 else "diverged") for i in range(200)]
    for each in findings:
        body = f"<!-- d3bot:v1 key={each.key} -->\ntext"
        hub.person("POST", "/issues", {"title": each.title, "body": body, "labels": ["d3bot"]}, "bot-token")
    hub.clock.sleep(86400)
    before = len(hub.proxy.requests)
    new = [failing(f"new{i}", family="tp", kind="died") for i in range(3)]
    decided = filing(1, *findings, *new)
    assert len(hub.proxy.requests) - before <= 100
    assert list(decided.values()).count("file") == 3
    assert list(decided.values()).count("update") == POLICY.edits
    assert "the next one goes on" in filing.reasons[next(k for k, v in decided.items() if v == "delay")]
    hub.clock.sleep(86400)
    second = filing(2, *findings, *new)
    assert {k for k, v in decided.items() if v == "update"}.isdisjoint(k for k, v in second.items() if v == "update")


def test_h2_a_spent_budget_of_requests_is_told_for_each_finding_and_nothing_is_lost(hub, filing):
    findings = [failing(f"n{i}", family=f"f{i}") for i in range(5)]
    decided = filing(1, *findings, client={"max_requests": 12})
    assert set(decided.values()) == {"file", "failed"}
    assert len(hub.issues()) == list(decided.values()).count("file")
    hub.clock.sleep(86400)
    filing(2, *findings)
    assert set(open_keys(hub)) == {each.key for each in findings}


# J. The bot that dies silently


def test_j4_an_issue_whose_label_was_taken_off_is_found_and_labelled_again(hub, filing):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"labels": ["other"]})
    hub.clock.sleep(86400)
    assert filing(2, ONE) == {ONE.key: "update"}
    assert {label["name"] for label in hub.issues()[0]["labels"]} == {"other", "d3bot"}


def test_j4_the_label_is_made_where_it_is_missing(hub, filing):
    filing(1, ONE)
    labels = {row["name"]: row["description"] for row in hub.emulator.ask("GET", f"/repos/{hub.repo}/labels")}
    assert labels["d3bot"] == "Filed by d3bot: 1 issues, the newest is #1"
    assert {"framework: torch", "setting: fsdp2", "kind: diverged"} <= labels.keys()


def test_j2_a_rank_that_died_is_filed_with_its_signal(hub, filing):
    died = failing("x", "died").model_copy(
        update={
            "verdict": verdict("died", reason="rank 1 died: SIGSEGV", key=failing("x", "died").key, detail="last words")
        }
    )
    assert filing(1, died) == {died.key: "file"}
    assert "SIGSEGV" in hub.issues()[0]["body"]
    assert "last words" in hub.issues()[0]["body"]


def test_j3_a_failing_night_keeps_one_issue_that_a_complete_run_closes_once(hub, filing):
    def failed(reason):
        return {d.key: d.action for d in file_failure(hub.tracker("x"), hub.clock.now(), reason, POLICY)}

    assert failed("the shards were cancelled") == {infrastructure_key(): "delay"}
    failed("the shards were cancelled again")
    (issue,) = hub.issues()
    assert "cancelled again" in issue["body"]
    hub.clock.sleep(86400)
    assert filing(1) == {infrastructure_key(): "close"}
    assert hub.issues()[0]["state"] == "closed"
    failed("once more")
    assert hub.issues()[0]["state"] == "open"
    assert filing(2) == {infrastructure_key(): "update"}
    assert filing(3) == {}
    assert hub.issues()[0]["state"] == "open"


# What people did


@pytest.mark.parametrize("label", ["invalid", "wontfix", "duplicate", "d3bot: ignore"])
def test_what_a_person_labelled_and_closed_stays_closed(hub, filing, label):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"state": "closed", "labels": ["d3bot", label]})
    hub.clock.sleep(9 * 86400)
    assert filing(2, ONE) == {ONE.key: "skip"}
    assert hub.issues()[0]["state"] == "closed"


def test_what_a_person_closed_as_not_planned_stays_closed(hub, filing):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"state": "closed", "state_reason": "not_planned"})
    hub.clock.sleep(9 * 86400)
    assert filing(2, ONE) == {ONE.key: "skip"}


def test_what_was_closed_a_moment_ago_gets_time_for_its_fix(hub, filing):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"state": "closed"})
    hub.clock.sleep(86400)
    assert filing(2, ONE) == {ONE.key: "delay"}


def test_what_was_closed_long_ago_is_another_story_and_a_new_issue(hub, filing):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"state": "closed"})
    hub.clock.sleep(200 * 86400)
    assert filing(2, ONE) == {ONE.key: "file"}
    assert [issue["state"] for issue in hub.issues()] == ["closed", "open"]
    hub.clock.sleep(86400)
    assert filing(3, ONE) == {ONE.key: "update"}


def test_a_person_who_was_there_this_week_is_not_closed_upon(hub, filing):
    filing(1, ONE)
    hub.clock.sleep(10 * 86400)
    hub.person("POST", "/issues/1/comments", {"body": "looking into it"})
    assert filing(2, evidence=[evidence(ONE)]) == {ONE.key: "delay"}
    hub.clock.sleep(8 * 86400)
    assert filing(3, evidence=[evidence(ONE)]) == {ONE.key: "close"}
    assert "3 of 3 fresh processes on torch 2.14.0.dev20261210" in hub.comments(1)[-1]["body"]


def test_absence_closes_nothing(hub, filing):
    filing(1, ONE)
    for number in range(2, 30):
        hub.clock.sleep(86400)
        assert filing(number) == {}
    assert hub.issues()[0]["state"] == "open"


def test_words_that_a_person_wrote_into_an_issue_stay(hub, filing):
    filing(1, ONE)
    body = hub.issues()[0]["body"].replace("**Script**", "I know this one.\r\n\r\n**Script**") + "\nAnd below.\n"
    hub.person("PATCH", "/issues/1", {"body": body})
    hub.clock.sleep(86400)
    assert filing(2, ONE) == {ONE.key: "update"}
    after = hub.issues()[0]["body"]
    assert "I know this one." in after
    assert "And below." in after
    assert "Seen in 2 runs" in after


def test_an_issue_of_a_stranger_with_our_marker_is_not_ours(hub, filing):
    body = f"<!-- d3bot:v1 key={ONE.key} -->\nhello"
    hub.person("POST", "/issues", {"title": "x", "body": body}, "reader-token")
    assert filing(1, ONE) == {ONE.key: "file"}


def test_an_issue_that_lost_its_marker_is_not_filed_beside(hub, filing):
    filing(1, ONE)
    hub.person("PATCH", "/issues/1", {"body": "I tidied this up."})
    hub.clock.sleep(86400)
    assert filing(2, ONE) == {ONE.key: "failed"}
    assert "#1 has this title and lost its marker" in filing.reasons[ONE.key]


def test_a_state_that_a_person_garbled_is_made_anew(hub, filing):
    filing(1, ONE)
    body = hub.issues()[0]["body"].replace('"schema":1', '"schema":"one"')
    hub.person("PATCH", "/issues/1", {"body": body})
    hub.clock.sleep(86400)
    assert filing(2, ONE) == {ONE.key: "update"}
    assert record_in(hub.issues()[0]["body"]).seen_runs == ("r2",)


def test_owners_are_assigned_and_one_who_cannot_be_does_not_stop_the_issue(hub, filing):
    filing(1, ONE, naming=Naming(owners={"torch/fsdp*": ["writer"]}))
    filing(2, failing("x", family="tp"), naming=Naming(owners={"torch/*": ["nobody-of-this-name"]}))
    assert [[user["login"] for user in issue["assignees"]] for issue in hub.issues()] == [["writer"], []]


def test_a_first_run_is_one_issue_that_lists_its_findings(hub, filing):
    findings = [failing(f"n{i}") for i in range(8)]
    decided = filing(1, *findings, previous="")
    assert decided.pop(summary_key("torch")) == "file"
    assert set(decided.values()) == {"skip"}
    assert len(hub.issues()) == 1
    hub.clock.sleep(86400)
    filing(2, *findings, file_all=True)
    assert len(hub.issues()) == 9


def test_every_decision_is_in_the_run_folder_with_its_reason(hub, filing, tmp_path):
    decided = filing(1, ONE, failing("two", verified=False, unverified_reason="exit 0"))
    rows = json.loads((tmp_path / "run1" / "decisions.json").read_text())["decisions"]
    assert {row["key"]: row["action"] for row in rows} == decided
    assert all(row["reason"] for row in rows)


def test_a_failing_listing_is_told_in_the_run_folder_too(hub, filing, tmp_path):
    hub.proxy.faults.append(Fault("500", "GET", "/issues$", 50))
    assert filing(1, ONE) == {ONE.key: "failed"}
    assert "500" in (tmp_path / "run1" / "decisions.json").read_text()
