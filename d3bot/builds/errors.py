"""Errors of the infrastructure around a build, as against bad input, which is a `SpecError`."""


class NoDataError(RuntimeError):
    """A build could not be had: install failed, disk full, import failed.

    It says nothing about the library, so no verdict may follow from it.  The message is one line: what failed, where,
    and what to do.  The command line ends with exit code 3.
    """
