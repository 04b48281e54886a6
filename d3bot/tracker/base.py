"""What filing needs of a tracker."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from d3bot.findings.lifecycle import Record


class TrackerError(Exception):
    """The tracker did not do what was asked of it, or not for sure.  The message is one line for the decision."""


class ExhaustedError(TrackerError):
    """The tracker will do nothing more in this run: it is away, or the requests of this run are spent."""


class Tracker(Protocol):
    """Records by key.  A listing that fails raises: it must never read as "there is none".

    `create` and `update` raise TrackerError where one record fails, ExhaustedError where there is no use in going on.
    """

    def locked(self) -> AbstractContextManager[object]:
        """Hold the tracker, so that what is listed stays true until it is written."""

    def records(self) -> Mapping[str, Record]:
        """Return every record, open or closed, by key and by each of its other keys."""

    def create(self, record: Record, body: str) -> None:
        """Write a record that is not there yet, with its text."""

    def update(self, record: Record, note: str = "", body: str = "") -> None:
        """Write a record that is there.

        Its text is left alone, as people may have written into it, unless a new `body` is given: for records that d3bot
        keeps for itself.  `note` says in a comment what changed, where a tracker has comments.
        """

    def touched(self, record: Record) -> datetime | None:
        """Return when a person last did something with the record, as far as the tracker can tell."""
