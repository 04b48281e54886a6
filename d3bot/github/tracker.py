"""The tracker on GitHub: one issue a key, with the same lifecycle as every tracker."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

from github.GithubObject import NotSet

from d3bot.findings.issue import marker
from d3bot.findings.lifecycle import Record
from d3bot.findings.markdown import title_text
from d3bot.findings.title import MAX_TITLE
from d3bot.github.asked import is_request
from d3bot.github.body import compose, harmless, key_in, record_in
from d3bot.github.client import Client, RefusedError
from d3bot.github.lock import Lease, held
from d3bot.tracker.base import ExhaustedError, TrackerError

SILENCING = frozenset({"invalid", "wontfix", "duplicate", "d3bot: ignore"})
"""Labels by which a person says that they want to hear no more of it."""

_MEMORY = re.compile(r"(\d+) issues, the newest is #(\d+)")
_NEWEST_FIRST = {"state": "all", "sort": "created", "direction": "desc"}
_OLDEST_FIRST = {"state": "all", "sort": "created", "direction": "asc"}
_BACK = timedelta(days=30)
_PASSIVE = frozenset({"mentioned", "subscribed", "unsubscribed"})
"""Events of an issue that happen to people."""


@dataclass(frozen=True)
class Naming:
    """How issues are labelled and who owns them.  A label's empty text means none."""

    label: str = "d3bot"
    login: str = "github-actions[bot]"
    """Who the token is: issues of others count only if they carry the label, which not everybody can give."""
    framework: str = "framework: {}"
    family: str = "setting: {}"
    kind: str = "kind: {}"
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Glob on framework/family -> logins to assign; the first that matches counts."""

    def labels(self, record: Record) -> list[str]:
        """Return the labels of a record's issue."""
        named = [
            pattern.format(value)[:50]
            for pattern, value in (
                (self.framework, record.framework),
                (self.family, record.family),
                (self.kind, record.kind),
            )
            if pattern and value
        ]
        return [self.label, *named]

    def assignees(self, record: Record) -> list[str]:
        """Return who is assigned to a record's issue."""
        name = f"{record.framework}/{record.family}"
        return next((list(logins) for glob, logins in self.owners.items() if fnmatchcase(name, glob)), [])


class GitHubTracker:
    """Records in the bodies of issues.

    Found by listing, never by search: once by label and once by creator, so that neither a label that somebody took off
    nor a new identity of the bot loses an issue.  A listing that shows less than the last run left refuses to create.
    """

    def __init__(self, client: Client, naming: Naming, run_name: str, templates: Path | None = None) -> None:
        self._client = client
        self._naming = naming
        self._run = run_name
        self._templates = templates
        self._issues: dict[int, dict[str, Any]] = {}
        self._lost: dict[str, int] = {}
        """Titles of issues that d3bot created and that somebody took the marker from."""
        self._lease: Lease | None = None
        self._memory: tuple[int, int] | None = None
        self._remembered = ""
        self._writes = True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the tracker against other filers; afterwards remember how much there is.  ExhaustedError if held."""
        with held(self._client, self._naming.label) as lease:
            self._lease = lease
            try:
                yield
                self._remember()
            finally:
                self._lease = None

    def records(self) -> Mapping[str, Record]:
        """Return the record of every issue of d3bot by key; TrackerError if a listing fails or cannot be true."""
        self._memory = self._recall()
        mine = self._list({"creator": self._naming.login})
        labelled = self._list({"labels": self._naming.label})
        for number, issue in labelled.items():
            if number not in mine and _creator(issue) == self._naming.login:
                raise TrackerError(
                    f"the list of issues by {self._naming.login} lacks #{number}; nothing is created on such a list"
                )
        self._issues = mine | labelled
        self._believe()
        by_key: dict[str, list[Record]] = {}
        self._lost = {}
        for number, issue in sorted(self._issues.items()):
            key = key_in(issue.get("body") or "")
            if key:
                by_key.setdefault(key, []).append(_record(key, issue, self._naming.login))
            elif number in mine:
                self._lost[str(issue.get("title"))] = number
        found = {key: self._one(candidates) for key, candidates in by_key.items()}
        aliases = {alias: record for record in found.values() for alias in record.aliases}
        return aliases | found

    def peek(self) -> Mapping[str, Record]:
        """Return what `records` does, and write nothing meanwhile."""
        self._writes = False
        return self.records()

    def create(self, record: Record, body: str) -> None:
        """Create the issue of a record, once.  TrackerError if that cannot be done, or not for sure."""
        if self._lease is not None:
            self._lease.check()
        if record.title in self._lost:
            raise TrackerError(
                f"#{self._lost[record.title]} has this title and lost its marker; close it or restore it"
            )
        title = title_text(record.title, MAX_TITLE)
        text = compose(harmless(body), record, self._templates)
        try:
            number = self._post(record, title, text, self._naming.assignees(record))
        except RefusedError as error:
            if error.status != 422 or not self._naming.assignees(record):
                raise
            # Refused as a whole: somebody in the table of owners cannot be assigned here.
            number = self._post(record, title, text, [])
        try:
            self._settle(record.key, number)
        except TrackerError as error:
            self._client.log(f"#{number} is filed; whether another one is beside it, the next run sees: {error}")

    def update(self, record: Record, note: str = "", body: str = "") -> None:
        """Edit the issue of a record, which notifies nobody, and comment where the state changed."""
        issue = self._issues.get(record.number)
        if issue is None:
            raise TrackerError(f"{record.key} has no issue that was listed; file again")
        text = compose(harmless(body) if body else issue.get("body") or marker(record.key), record, self._templates)
        edit: dict[str, Any] = {"body": text}
        if body:
            edit["title"] = title_text(record.title, MAX_TITLE)
        if record.state != issue["state"]:
            edit["state"] = record.state
            silent = record.ignore or record.duplicate_of
            edit["state_reason"] = "reopened" if record.state == "open" else "not_planned" if silent else "completed"
        labels = [label["name"] for label in issue.get("labels", [])]
        if self._naming.label not in labels:
            edit["labels"] = [*labels, self._naming.label]
        self._issues[record.number] = self._client.write(
            f"editing #{record.number}", lambda: self._patch(record.number, edit)
        )
        if note:
            self.comment(record.number, note, f"note {self._run} {record.key} {record.state}")

    def touched(self, record: Record) -> datetime | None:
        """Return when somebody else last commented, labelled, closed or reopened, within the last 30 days.

        Who asks d3bot for something, a retest for example, wants its answer: that keeps no hands off.
        """
        since = f"{self._client.now() - _BACK:%Y-%m-%dT%H:%M:%SZ}"
        moments = []
        for path, given in (
            (f"/issues/{record.number}/comments", {"since": since}),
            (f"/issues/{record.number}/events", {}),
        ):
            for page in self._client.pages(path, given):
                for row in page:
                    actor = row.get("user") or row.get("actor") or {}
                    theirs = actor.get("login") != self._naming.login and actor.get("type") != "Bot"
                    passive = row.get("event") in _PASSIVE or is_request(row.get("body") or "")
                    if theirs and not passive and row.get("created_at"):
                        moments.append(datetime.fromisoformat(row["created_at"]))
        return max(moments, default=None)

    def comment(self, number: int, text: str, tag: str) -> None:
        """Comment on an issue, once for each tag."""
        mark = f"<!-- d3bot:{tag} -->"
        path = f"/issues/{number}/comments"

        def post() -> bool:
            self._client.repo.requester.requestJsonAndCheck(
                "POST", f"{self._client.repo.url}{path}", input={"body": f"{mark}\n{text.strip()}"}
            )
            return True

        def find() -> bool | None:
            rows = (row for page in self._client.pages(path, {}) for row in page)
            return True if any(mark in (row.get("body") or "") for row in rows) else None

        self._client.create(f"commenting on #{number}", post, find)

    def has_comment(self, number: int, tag: str, login: str) -> bool:
        """Return whether d3bot commented on an issue with this tag."""
        mark = f"<!-- d3bot:{tag} -->"
        return any(
            mark in (row.get("body") or "") and (row.get("user") or {}).get("login") == login
            for page in self._client.pages(f"/issues/{number}/comments", {})
            for row in page
        )

    def record_of(self, number: int) -> Record | None:
        """Return the record in an issue that was listed, also one that gave way to another; None if it holds none."""
        issue = self._issues.get(number)
        key = key_in((issue or {}).get("body") or "")
        return _record(key, issue, self._naming.login) if issue and key else None

    def _post(self, record: Record, title: str, body: str, assignees: Sequence[str]) -> int:
        labels = self._naming.labels(record)

        def post() -> int:
            issue = self._client.repo.create_issue(
                title=title, body=body, labels=labels, assignees=list(assignees) if assignees else NotSet
            )
            self._issues[issue.number] = dict(issue.raw_data)
            return issue.number

        def find() -> int | None:
            page = next(iter(self._client.pages("/issues", {**_NEWEST_FIRST, "creator": self._naming.login})))
            for issue in page:
                if key_in(issue.get("body") or "") == record.key and issue["number"] not in self._issues:
                    self._issues[issue["number"]] = issue
                    return int(issue["number"])
            return None

        return self._client.create(f"filing {record.key}", post, find)

    def _settle(self, key: str, number: int) -> None:
        """Give way to an older issue of the same key that shows only now: listings may lag behind."""
        page = next(iter(self._client.pages("/issues", {**_NEWEST_FIRST, "creator": self._naming.login})))
        for issue in page:
            same = key_in(issue.get("body") or "") == key
            if same and issue["state"] == "open" and issue["number"] < number and issue["number"] not in self._issues:
                self._issues[issue["number"]] = issue
                record = _record(key, self._issues[number], self._naming.login)
                self._give_way(record.model_copy(update={"number": number}), int(issue["number"]))

    def _give_way(self, record: Record, to: int) -> None:
        gone = {"state": "closed", "closed_at": self._client.now(), "closed_by": "d3bot", "duplicate_of": to}
        self.update(record.model_copy(update=gone), f"Duplicate of #{to}")

    def _one(self, candidates: Sequence[Record]) -> Record:
        """Return the record that stands for a key, and close open ones beside it: two filers met."""
        real = [record for record in candidates if not record.duplicate_of] or list(candidates)
        opened = [record for record in real if record.state == "open"]
        if not opened:
            return real[-1]
        first, *others = opened
        runs = tuple(dict.fromkeys(run for record in opened for run in record.seen_runs))
        for other in others if self._writes else ():
            self._give_way(other, first.number)
        return first.model_copy(update={"seen_runs": runs, "last_seen": max(record.last_seen for record in opened)})

    def _list(self, wanted: Mapping[str, str]) -> dict[int, dict[str, Any]]:
        rows = (row for page in self._client.pages("/issues", {**_OLDEST_FIRST, **wanted}) for row in page)
        return {int(row["number"]): row for row in rows if "pull_request" not in row}

    def _recall(self) -> tuple[int, int] | None:
        """Return how many issues the last filing left and the newest one's number; make the label if it is missing."""
        name = self._naming.label
        try:
            self._remembered = str(self._client.get(f"/labels/{quote(name)}").get("description") or "")
        except RefusedError as error:
            if error.status != 404:
                raise
            self._remembered = ""
            if not self._writes:
                return None
            self._client.create(f"making the label {name}", lambda: self._label(name), lambda: self._has_label(name))
        match = _MEMORY.search(self._remembered)
        return (int(match[1]), int(match[2])) if match else None

    def _label(self, name: str) -> bool:
        self._client.repo.create_label(name, "5319e7", "Filed by d3bot")
        return True

    def _has_label(self, name: str) -> bool | None:
        try:
            return bool(self._client.get(f"/labels/{quote(name)}")) or None
        except RefusedError:
            return None

    def _believe(self) -> None:
        """TrackerError if the listing lacks what the last filing left behind, unless that is truly gone."""
        if self._memory is None:
            return
        count, newest = self._memory
        if len(self._issues) >= count and newest in self._issues:
            return
        if newest in self._issues and len(self._issues) > count // 2:
            return  # somebody deleted or moved a few
        try:
            issue = self._client.get(f"/issues/{newest}")
        except RefusedError as error:
            if error.status in (404, 410):
                return  # deleted or moved: the list may be right
            raise
        if str(issue.get("repository_url", "")).lower().endswith(f"/{self._client.repo_name.lower()}"):
            raise TrackerError(
                f"the list shows {len(self._issues)} issues, but the last filing left {count} and #{newest} is there; "
                "nothing is created on such a list"
            )

    def _remember(self) -> None:
        keyed = [number for number, issue in self._issues.items() if key_in(issue.get("body") or "")]
        if not keyed:
            return
        text = f"Filed by d3bot: {len(keyed)} issues, the newest is #{max(keyed)}"
        if text == self._remembered:
            return
        name = self._naming.label
        url = f"{self._client.repo.url}/labels/{quote(name)}"
        try:
            self._client.write(
                "remembering",
                lambda: self._client.repo.requester.requestJsonAndCheck("PATCH", url, input={"description": text}),
            )
        except ExhaustedError as error:
            self._client.log(f"not remembered how many issues there are: {error}")

    def _patch(self, number: int, edit: Mapping[str, Any]) -> dict[str, Any]:
        url = f"{self._client.repo.url}/issues/{number}"
        _, data = self._client.repo.requester.requestJsonAndCheck("PATCH", url, input=dict(edit))
        return data if isinstance(data, dict) else {}


def _creator(issue: Mapping[str, Any]) -> str:
    return str((issue.get("user") or {}).get("login", ""))


def _record(key: str, issue: Mapping[str, Any], login: str) -> Record:
    """Return what an issue says of a key: the state that d3bot left there, set right by what people did since."""
    number, title = int(issue["number"]), str(issue["title"])
    created = datetime.fromisoformat(issue["created_at"])
    record = record_in(issue.get("body") or "") or Record(key=key, title=title, first_seen=created, last_seen=created)
    update: dict[str, Any] = {"key": key, "title": title, "number": number, "state": issue["state"]}
    silencing = sorted(SILENCING & {label["name"].lower() for label in issue.get("labels", [])})
    if silencing:
        update |= {"ignore": True, "silenced": record.silenced or f"the label {silencing[0]}"}
    if issue["state"] == "closed":
        closed_at = datetime.fromisoformat(issue["closed_at"]) if issue.get("closed_at") else datetime.now(UTC)
        if record.state == "open" or record.closed_by != "d3bot":
            update |= {"closed_at": closed_at, "closed_by": "person"}
            if issue.get("state_reason") in ("not_planned", "duplicate") and not record.duplicate_of:
                update |= {"ignore": True, "silenced": record.silenced or "closed as not planned"}
        elif record.closed_at is None:
            update["closed_at"] = closed_at
    else:
        update |= {"closed_at": None, "closed_by": ""}
        if not silencing and not record.silenced:
            update["ignore"] = False
    return record.model_copy(update=update)
