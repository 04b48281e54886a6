"""Where the seconds of a run go that are not training."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up seconds by name, of all threads together.  Thread-safe."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the seconds that the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            with self._lock:
                self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @property
    def seconds(self) -> dict[str, float]:
        """What there is so far, to hundredths."""
        with self._lock:
            return {name: round(seconds, 2) for name, seconds in sorted(self._seconds.items())}
