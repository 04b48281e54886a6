"""`/d3bot ...` comments: authorised, carried out, each answered once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from d3bot.findings.lifecycle import Record
from d3bot.findings.markdown import code, plain
from d3bot.github.asked import Command, parse
from d3bot.github.client import Client, RefusedError
from d3bot.github.pulls import may_write
from d3bot.github.tracker import GitHubTracker
from d3bot.templates import environment, render_page
from d3bot.tracker.base import TrackerError

MAX_COMMANDS = 10
"""Of one comment; more are no request but a script."""

HELP: dict[str, str] = {
    "dup #N": "this is the same bug as issue N: further sightings go there",
    "undup": "it is not, after all",
    "invalid [why]": "this is no bug: closed, and never filed again",
    "fix: <commit, #pull request or version>": "announces what mends it; it is closed when its script passes",
    "unfix": "that was not the fix",
    "wrong-bisect": "the builds named as first bad and last good are wrong",
    "bisect [from..to]": "looks for the first bad build, between two versions if given",
    "retest": "runs the script on the newest build, by the rules of every night",
    "mute 14d": "nothing is said about it for so many days",
    "help": "this list",
}

_FIX = re.compile(r"[0-9a-f]{7,40}|(?:[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)?#\d{1,9}")
_MUTE = re.compile(r"(\d{1,3})d")


@dataclass(frozen=True)
class Effect:
    """What a command does: a changed record, an answer, and what is asked of a job that may run builds."""

    answer: str
    record: Record | None = None
    request: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Handled:
    """What became of a comment: the answer that was posted, if any, and the request for another job."""

    what: str
    request: Mapping[str, str] = field(default_factory=dict)


def apply(record: Record, command: Command, who: str, now: datetime) -> Effect:
    """Return what a command does to the record of an issue.  Pure; every command has an answer."""
    argument = command.argument
    match command.name:
        case "undup":
            if not record.duplicate_of:
                return Effect("this is not marked as a duplicate; nothing to undo")
            return Effect(
                f"no longer a duplicate of #{record.duplicate_of}; open again", _opened(record, duplicate_of=0)
            )
        case "invalid":
            if record.ignore and record.state == "closed":
                return Effect("this is silenced already")
            why = f"invalid, says {who}" + (f": {argument}" if argument else "")
            return Effect("closed as invalid; it is never filed again", _gone(record, now, ignore=True, silenced=why))
        case "fix":
            if not argument or not (_FIX.fullmatch(argument) or _is_version(argument)):
                return Effect("say what fixes it: `/d3bot fix: <commit, #pull request or version>`")
            return Effect(
                f"noted {code(argument)} as the fix; this is closed once its script passes", _with(record, fix=argument)
            )
        case "unfix":
            if not record.fix:
                return Effect("no fix was announced; nothing to undo")
            return Effect(f"{code(record.fix)} is no longer taken for the fix", _with(record, fix=""))
        case "wrong-bisect":
            if record.wrong_bisect:
                return Effect("noted before")
            return Effect(
                "noted: the builds named as first bad and last good are wrong", _with(record, wrong_bisect=True)
            )
        case "mute":
            match_ = _MUTE.fullmatch(argument)
            if not match_ or not 1 <= int(match_[1]) <= 365:
                return Effect("say for how long, from 1 to 365 days: `/d3bot mute 14d`")
            until = now + timedelta(days=int(match_[1]))
            return Effect(f"muted until {until:%Y-%m-%d}", _with(record, muted_until=until))
        case "retest":
            return Effect(
                "a retest is asked for; its result changes this issue by the same rules as a night's",
                None,
                _asks("retest", record),
            )
        case "bisect":
            first, dots, last = argument.partition("..")
            if argument and not (dots and _is_version(first) and _is_version(last)):
                return Effect(
                    "give two versions that exist, older first: `/d3bot bisect 2.13.0.dev20261101..2.13.0.dev20261130`"
                )
            if dots and Version(first) >= Version(last):
                return Effect("the first version must be older than the last")
            return Effect("a bisection is asked for", None, _asks("bisect", record, first, last))
        case "help":
            return Effect("see below")
        case _:
            return Effect(f"there is no command {code(command.name or '(nothing)')}; see `/d3bot help`")


def handle(
    client: Client, tracker: GitHubTracker, event: Mapping[str, Any], login: str, templates: Path | None = None
) -> Handled:
    """Carry out the commands of an `issue_comment` event and answer them in one comment.

    Who commented must be able to write to the repository; who cannot is told so once for each issue.  A comment that
    was answered is not answered again, whatever runs twice.  TrackerError if GitHub does not play along.
    """
    comment, issue = event.get("comment") or {}, event.get("issue") or {}
    who = str((comment.get("user") or {}).get("login", ""))
    number, comment_id = issue.get("number"), comment.get("id")
    if event.get("action") != "created" or not isinstance(number, int) or not isinstance(comment_id, int):
        return Handled("no new comment on an issue: nothing to do")
    if who == login or (comment.get("user") or {}).get("type") == "Bot":
        return Handled("written by a bot: nothing to do")
    commands = parse(str(comment.get("body") or ""))
    if not commands:
        return Handled("no command in it: nothing to do")
    tag = f"reply comment={comment_id}"
    if tracker.has_comment(number, tag, login):
        return Handled("answered before: nothing to do")
    if not may_write(client, who):
        refusal = f"refused user={who}"
        if not tracker.has_comment(number, refusal, login):
            text = _page(
                templates, [("/d3bot", "only people who may write to this repository give d3bot commands")], False
            )
            tracker.comment(number, text, refusal)
        return Handled(f"{who} may not write to this repository: refused")
    rows, request = _carry_out(client, tracker, number, commands, who, bool(issue.get("pull_request")))
    tracker.comment(number, _page(templates, rows, any(each.name == "help" for each in commands)), tag)
    return Handled(f"{len(rows)} answered", request)


def _carry_out(
    client: Client, tracker: GitHubTracker, number: int, commands: Sequence[Command], who: str, is_pull: bool
) -> tuple[list[tuple[str, str]], Mapping[str, str]]:
    rows: list[tuple[str, str]] = []
    request: Mapping[str, str] = {}
    if all(command.name == "help" for command in commands):
        return [("/d3bot help", "see below")], request
    with tracker.locked():
        records = tracker.records()
        record = next((each for each in records.values() if each.number == number), None)
        record = record or tracker.record_of(number)
        for command in commands[:MAX_COMMANDS]:
            shown = f"/d3bot {command.name} {command.argument}".strip()
            if record is None:
                where = "a pull request" if is_pull else "an issue that d3bot did not file"
                rows.append((shown, f"this is {where}: nothing to do here"))
                continue
            effect = _dup(client, tracker, records, record, command, who) if command.name == "dup" else None
            effect = effect or apply(record, command, who, client.now())
            if effect.record is not None:
                try:
                    tracker.update(effect.record)
                except TrackerError as error:
                    effect = Effect(f"not done: {plain(str(error))}")
                else:
                    record = effect.record
            request = effect.request or request
            rows.append((shown, effect.answer))
        if len(commands) > MAX_COMMANDS:
            rows.append(("…", f"at most {MAX_COMMANDS} commands a comment; the others were not looked at"))
    return rows, request


def _dup(
    client: Client,
    tracker: GitHubTracker,
    records: Mapping[str, Record],
    record: Record,
    command: Command,
    who: str,
) -> Effect:
    match = re.fullmatch(r"#(\d{1,9})", command.argument)
    if not match:
        return Effect("say of which issue: `/d3bot dup #123`")
    target = int(match[1])
    if target == record.number:
        return Effect("an issue is no duplicate of itself")
    try:
        found = client.get(f"/issues/{target}")
    except RefusedError as error:
        if error.status in (404, 410):
            return Effect(f"there is no issue {target} here")
        raise
    if "pull_request" in found:
        return Effect(f"{target} is a pull request; `/d3bot fix: #{target}` announces a fix")
    other = next((each for each in records.values() if each.number == target), None)
    if other is not None and other.duplicate_of == record.number:
        return Effect(f"#{target} is marked as a duplicate of this one already")
    if other is not None:
        tracker.update(other.model_copy(update={"aliases": tuple(dict.fromkeys((*other.aliases, record.key)))}))
    return Effect(
        f"closed as a duplicate of #{target}; further sightings go there",
        _gone(record, client.now(), duplicate_of=target, silenced=f"a duplicate, says {who}"),
    )


def _with(record: Record, **facts: Any) -> Record:
    return record.model_copy(update=facts)


def _gone(record: Record, now: datetime, **facts: Any) -> Record:
    return _with(record, state="closed", closed_at=now, closed_by="person", **facts)


def _opened(record: Record, **facts: Any) -> Record:
    return _with(record, state="open", closed_at=None, closed_by="", silenced="", ignore=False, **facts)


def _asks(action: str, record: Record, first: str = "", last: str = "") -> dict[str, str]:
    return {"action": action, "issue": str(record.number), "key": record.key, "from": first, "to": last}


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _page(templates: Path | None, rows: Sequence[tuple[str, str]], with_help: bool) -> str:
    page = environment("comment", own=templates)
    page.filters.update(plain=plain, code=code)
    return render_page(page, "reply.md.j2", {"rows": rows, "help": HELP if with_help else {}})
