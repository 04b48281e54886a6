"""The last broom: processes that outlived the one that should have ended them."""

import contextlib
import os
import signal
import time
from pathlib import Path

_SECONDS = 5.0
"""A process that the kernel holds in a call dies when the call returns; nobody waits for that."""


def kill_all_of(home: Path) -> None:
    """Kill every process that was started with `home`, or a folder in it, as its HOME.

    A process group does not hold a descendant that made a session of its own, and a zygote that was killed can no
    longer adopt one; but all of them have inherited the environment.  Several rounds, since a process may fork while
    the others are looked at.
    """
    mark = f"HOME={home}".encode()
    ends = time.monotonic() + _SECONDS
    while found := [pid for pid in _processes() if _belongs(pid, mark)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > ends:
            return
        time.sleep(0.005)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _belongs(pid: int, mark: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()  # empty for a process that has ended
    except OSError:
        return False
    return any(item == mark or item.startswith(mark + b"/") for item in environment.split(b"\0"))
