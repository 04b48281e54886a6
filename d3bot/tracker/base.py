"""What filing needs of a tracker."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from d3bot.findings.lifecycle import Record


class Tracker(Protocol):
    """Records by key.  A listing that fails raises: it must never read as "there is none"."""

    def locked(self) -> AbstractContextManager[object]:
        """Hold the tracker, so that what is listed stays true until it is written."""

    def records(self) -> Mapping[str, Record]:
        """Return every record, open or closed, by key."""

    def create(self, record: Record, body: str) -> None:
        """Write a record that is not there yet, with its text."""

    def update(self, record: Record) -> None:
        """Write a record that is there, and leave its text alone: people may have written into it."""
