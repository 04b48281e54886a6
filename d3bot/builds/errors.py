"""Errors of the infrastructure around a build, as against bad input, which is a `SpecError`."""

from typing import Literal

Outcome = Literal["missing", "partial", "yanked", "no-hash", "wrong-hash", "index-down", "wrong-version"]
"""Why an index does not give a build: no such version or night; one without a wheel for this interpreter, or without
one of its set; withdrawn; listed without a hash; another content than its hash; no answer; another version inside."""


class NoDataError(RuntimeError):
    """A build could not be had: install failed, disk full, import failed.

    It says nothing about the library, so no verdict may follow from it.  The message is one line: what failed, where,
    and what to do.  The command line ends with exit code 3.
    """


class UnavailableError(NoDataError):
    """An index does not give the build that was asked for.  No other version is taken in its place."""

    def __init__(self, outcome: Outcome, message: str):
        super().__init__(f"{outcome}: {message}")
        self.outcome = outcome
