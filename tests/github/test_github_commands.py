"""`/d3bot ...` comments: read, authorised, carried out and answered."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.config import TrackerConfig
from d3bot.findings.lifecycle import Record
from d3bot.github.asked import Command, is_request, parse
from d3bot.github.body import record_in
from d3bot.github.commands import HELP, apply, handle
from d3bot.tracker.filing import file_run
from tests.findings.test_markdown import HOSTILE
from tests.github.emulator import BOT
from tests.github.nights import failing, night

NOW = datetime(2026, 11, 30, tzinfo=UTC)
ONE, TWO = failing("one"), failing("two", family="tp")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("/d3bot help", [Command("help")]),
        ("thanks\r\n/d3bot dup #12  \r\n/d3bot mute 14d", [Command("dup", "#12"), Command("mute", "14d")]),
        ("/d3bot fix: a1b2c3d", [Command("fix", "a1b2c3d")]),
        ("/d3bot", [Command("")]),
        ("please /d3bot help", []),
        ("/d3bothelp", []),
        ("> /d3bot invalid", []),
        ("    /d3bot invalid", []),
        ("```\n/d3bot invalid\n```", []),
        ("````\n```\n/d3bot invalid\n````\n/d3bot help", [Command("help")]),
        ("~~~\n/d3bot invalid", []),
        ("<!--\n/d3bot invalid\n-->\n/d3bot help", [Command("help")]),
        ("<!-- /d3bot invalid -->", []),
    ],
)
def test_commands_are_whole_lines_outside_of_quotes_and_code(text, commands):
    assert parse(text) == commands


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("/d3bot retest", True),
        ("\r\n/d3bot retest\r\n/d3bot unfix\r\n", True),
        ("/d3bot retest\nI changed the kernel.", False),
        ("> /d3bot retest", False),
        ("", False),
    ],
)
def test_who_only_commands_says_nothing_that_is_worth_waiting_for(text, asks):
    assert is_request(text) is asks


@given(HOSTILE)
def test_any_comment_can_be_read(text):
    for command in parse(text):
        assert "\n" not in command.name + command.argument


def record(**facts):
    given_ = {"key": ONE.key, "title": "t", "first_seen": NOW, "last_seen": NOW, "number": 3}
    return Record(**(given_ | facts))


DUPLICATE = record(state="closed", closed_at=NOW, duplicate_of=7)
INVALID = record(state="closed", closed_at=NOW, ignore=True)

# record, command, argument, words of the answer, what changes, action asked for
TABLE = [
    (record(), "undup", "", "nothing to undo", None, ""),
    (DUPLICATE, "undup", "", "no longer a duplicate of #7", {"state": "open", "duplicate_of": 0}, ""),
    (record(), "invalid", "by design", "never filed again", {"state": "closed", "ignore": True}, ""),
    (INVALID, "invalid", "", "silenced already", None, ""),
    (record(), "fix", "a1b2c3d", "closed once its script passes", {"fix": "a1b2c3d", "state": "open"}, ""),
    (record(), "fix", "#12", "noted", {"fix": "#12"}, ""),
    (record(), "fix", "pytorch/pytorch#12", "noted", {"fix": "pytorch/pytorch#12"}, ""),
    (record(), "fix", "2.14.0", "noted", {"fix": "2.14.0"}, ""),
    (record(), "fix", "", "say what fixes it", None, ""),
    (record(), "fix", "the rain; rm -rf", "say what fixes it", None, ""),
    (record(fix="#1"), "unfix", "", "no longer taken", {"fix": ""}, ""),
    (record(), "unfix", "", "nothing to undo", None, ""),
    (record(), "wrong-bisect", "", "are wrong", {"wrong_bisect": True}, ""),
    (record(wrong_bisect=True), "wrong-bisect", "", "noted before", None, ""),
    (record(), "mute", "14d", "muted until 2026-12-14", {"muted_until": NOW + timedelta(days=14)}, ""),
    (record(), "mute", "9999d", "from 1 to 365", None, ""),
    (record(), "mute", "", "from 1 to 365", None, ""),
    (record(), "retest", "", "a retest is asked for", None, "retest"),
    (record(), "bisect", "", "a bisection is asked for", None, "bisect"),
    (record(), "bisect", "2.13.0..2.14.0", "a bisection is asked for", None, "bisect"),
    (record(), "bisect", "2.14.0..2.13.0", "must be older", None, ""),
    (record(), "bisect", "last week", "give two versions", None, ""),
    (record(), "help", "", "see below", None, ""),
    (record(), "dance", "", "there is no command `dance`", None, ""),
    (record(), "", "", "there is no command", None, ""),
]


@pytest.mark.parametrize(("before", "name", "argument", "words", "changed", "asked"), TABLE)
def test_c7_every_command_has_an_answer_in_every_state(before, name, argument, words, changed, asked):
    effect = apply(before, Command(name, argument), "octocat", NOW)
    assert words in effect.answer
    assert effect.request.get("action", "") == asked
    assert (effect.record is None) == (changed is None)
    for field, value in (changed or {}).items():
        assert getattr(effect.record, field) == value


@given(name=st.sampled_from([*(each.split(" ")[0].rstrip(":") for each in HELP), "x"]), argument=HOSTILE)
def test_no_argument_breaks_a_command(name, argument):
    if name != "dup":
        assert apply(record(), Command(name, argument[:300]), "octocat", NOW).answer


@pytest.fixture
def filed(hub, tmp_path):
    folder = night(tmp_path, 1, hub.clock.now(), [ONE, TWO])
    file_run(folder, hub.tracker("r1"), hub.clock.now(), policy=TrackerConfig().policy())
    numbers = {record_in(issue["body"]).key: issue["number"] for issue in hub.issues()}
    return numbers[ONE.key], numbers[TWO.key]


@pytest.fixture
def say(hub):
    """Return a function that comments on an issue and lets d3bot act on the event, as often as asked."""

    def said(number, text, token="owner-token", times=1, **facts):
        comment = hub.person("POST", f"/issues/{number}/comments", {"body": text}, token)
        event = {"action": "created", "issue": {"number": number}, "comment": comment} | facts
        for _ in range(times):
            client = hub.client()
            said.handled = handle(client, hub.tracker("c"), event, BOT)
        return [each["body"] for each in hub.comments(number) if each["user"]["login"] == BOT]

    return said


def test_each_comment_is_answered_once_whatever_runs_twice(filed, say):
    answers = say(filed[0], "/d3bot help\n/d3bot mute 3d", times=3)
    assert len(answers) == 1
    assert "muted until" in answers[0]
    assert "`/d3bot dup #N`" in answers[0]


def test_g3_somebody_who_may_only_read_is_refused_and_told_once(hub, filed, say):
    before = hub.issues()[0]["body"]
    assert len(say(filed[0], "/d3bot invalid", "reader-token")) == 1
    answers = say(filed[0], "/d3bot invalid really", "reader-token")
    assert len(answers) == 1
    assert "only people who may write" in answers[0]
    assert (hub.issues()[0]["state"], hub.issues()[0]["body"]) == ("open", before)


def test_g3_it_counts_who_comments_and_not_who_opened_the_conversation(hub, filed, say):
    event_issue = {"number": filed[0], "user": {"login": "octocat"}, "author_association": "OWNER"}
    say(filed[0], "/d3bot invalid", "reader-token", issue=event_issue)
    assert hub.issues()[0]["state"] == "open"


def test_a_bot_and_an_edited_comment_command_nothing(hub, filed, say):
    assert say(filed[0], "/d3bot help", "bot-token") == ["/d3bot help"]
    assert say(filed[1], "/d3bot help", action="edited") == []


def test_a_duplicate_sends_later_sightings_to_the_other_issue(hub, filed, say, tmp_path):
    one, two = filed
    assert "closed as a duplicate" in say(one, f"/d3bot dup #{two}")[0]
    states = {issue["number"]: issue["state"] for issue in hub.issues()}
    assert (states[one], states[two]) == ("closed", "open")
    hub.clock.sleep(3 * 86400)
    folder = night(tmp_path, 2, hub.clock.now(), [ONE])
    (decision,) = file_run(folder, hub.tracker("r2"), hub.clock.now(), policy=TrackerConfig().policy())
    assert decision.action == "update"
    bodies = {issue["number"]: issue["body"] for issue in hub.issues()}
    assert "r2" in record_in(bodies[two]).seen_runs
    assert len(hub.issues()) == 2
    say(one, "/d3bot undup")
    assert {issue["number"]: issue["state"] for issue in hub.issues()}[one] == "open"


@pytest.mark.parametrize(
    ("argument", "words"),
    [("", "of which issue"), ("#999", "there is no issue 999"), ("#{own}", "no duplicate of itself")],
)
def test_c7_a_duplicate_of_nothing_is_answered_and_does_nothing(hub, filed, say, argument, words):
    assert words in say(filed[0], f"/d3bot dup {argument.format(own=filed[0])}")[0]
    assert {issue["state"] for issue in hub.issues()} == {"open"}


def test_invalid_is_never_filed_again(hub, filed, say, tmp_path):
    say(filed[0], "/d3bot invalid it is documented")
    hub.clock.sleep(30 * 86400)
    folder = night(tmp_path, 2, hub.clock.now(), [ONE])
    (decision,) = file_run(folder, hub.tracker("r2"), hub.clock.now(), policy=TrackerConfig().policy())
    assert decision.action == "skip"
    assert "invalid, says octocat: it is documented" in decision.reason


def test_muted_is_silent_and_then_no_longer(hub, filed, say, tmp_path):
    say(filed[0], "/d3bot mute 14d")
    actions = []
    for number in (2, 3):
        hub.clock.sleep(8 * 86400)
        folder = night(tmp_path, number, hub.clock.now(), [ONE])
        decided = file_run(folder, hub.tracker(f"r{number}"), hub.clock.now(), policy=TrackerConfig().policy())
        actions += [each.action for each in decided]
    assert actions == ["skip", "remind"]


def test_a_request_for_a_job_names_the_finding(filed, say):
    say(filed[0], "/d3bot bisect 2.13.0..2.14.0")
    assert say.handled.request == {
        "action": "bisect", "issue": str(filed[0]), "key": ONE.key, "from": "2.13.0", "to": "2.14.0"
    }  # fmt: skip


def test_an_issue_of_others_and_a_pull_request_are_answered(hub, say):
    number = hub.person("POST", "/issues", {"title": "mine"})["number"]
    assert "an issue that d3bot did not file" in say(number, "/d3bot retest")[0]
    other = hub.person("POST", "/issues", {"title": "a change"})["number"]
    assert "a pull request" in say(other, "/d3bot retest", issue={"number": other, "pull_request": {"url": "x"}})[0]


def test_a_script_of_commands_is_cut_short(filed, say):
    answer = say(filed[0], "/d3bot unfix\n" * 30)[0]
    assert answer.count("nothing to undo") == 10
    assert "at most 10 commands" in answer


@given(HOSTILE)
def test_an_answer_repeats_nothing_that_acts(text):
    answer = apply(record(fix="#1"), Command("fix", text[:300]), text, NOW).answer
    assert "@octocat" not in answer
    assert "<img" not in answer
