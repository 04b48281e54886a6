"""One filer at a time, kept by a label: creating a label is atomic, needs no more rights than an issue does, and its
description says until when it counts, so that a filer that was killed does not stop the next one."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from urllib.parse import quote

from github import GithubException

from d3bot.github.client import Client, RefusedError
from d3bot.tracker.base import ExhaustedError, TrackerError

LEASE = timedelta(minutes=20)
_WAIT_S = 300.0
_PAUSE_S = 10.0
_NOTE = re.compile(r"([0-9a-f]{16}) until (\S+)")


class Lease:
    """What a filer holds, and until when."""

    def __init__(self, client: Client, until: datetime) -> None:
        self._client = client
        self.until = until

    def check(self) -> None:
        """ExhaustedError once the lease ran out: another filer may be at work, so nothing is created any more."""
        if self._client.now() >= self.until:
            raise ExhaustedError("this filing took longer than it may hold the tracker; the next run goes on")


@contextmanager
def held(client: Client, label: str) -> Iterator[Lease]:
    """Hold the tracker; ExhaustedError if another filer keeps it for five minutes."""
    name = f"{label}-filing"
    nonce = secrets.token_hex(8)
    kept = client.reserved
    lease = Lease(client, _acquire(client, name, nonce))
    try:
        yield lease
    finally:
        client.reserved = 0
        try:
            note = _note(client, name)
            if note is not None and note[0] == nonce:
                _remove(client, name)
        except TrackerError as error:
            client.log(f"the lock {name} stays until {lease.until:%H:%M} UTC: {error}")
        client.reserved = kept


def _acquire(client: Client, name: str, nonce: str) -> datetime:
    waited = 0.0
    while True:
        until = client.now() + LEASE
        text = f"{nonce} until {until:%Y-%m-%dT%H:%M:%SZ}"
        try:
            client.create(f"locking {name}", lambda t=text: _post(client, name, t), lambda: _mine(client, name, nonce))  # type: ignore[misc]
            return until
        except RefusedError as error:
            if error.status != 422:
                raise
        note = _note(client, name)
        if note is not None and note[0] == nonce:
            return until
        if note is not None and note[1] <= client.now():
            client.log(f"the lock {name} was left by a filer that did not end; taking it over")
            _remove(client, name)
        elif waited >= _WAIT_S:
            raise ExhaustedError(f"another d3bot has been filing for {waited:.0f} s; the next run goes on")
        elif note is not None:
            client.sleep(_PAUSE_S)
            waited += _PAUSE_S


def _post(client: Client, name: str, text: str) -> bool:
    client.repo.create_label(name, "ededed", text)
    return True


def _mine(client: Client, name: str, nonce: str) -> bool | None:
    note = _note(client, name)
    return True if note is not None and note[0] == nonce else None


def _note(client: Client, name: str) -> tuple[str, datetime] | None:
    """Return whose lock it is and until when; None if nobody holds it."""
    try:
        description = client.get(f"/labels/{quote(name)}").get("description") or ""
    except RefusedError as error:
        if error.status == 404:
            return None
        raise
    match = _NOTE.fullmatch(str(description))
    try:
        return (match[1], datetime.fromisoformat(match[2])) if match else ("", client.now())
    except ValueError:
        return "", client.now()


def _remove(client: Client, name: str) -> None:
    def delete() -> None:
        try:
            client.repo.requester.requestJsonAndCheck("DELETE", f"{client.repo.url}/labels/{quote(name)}")
        except GithubException as error:
            if error.status != 404:
                raise

    client.write(f"unlocking {name}", delete)
