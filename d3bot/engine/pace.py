"""How long a trial may take: learned from the trials of its own kind."""

import statistics
import threading
from collections import defaultdict, deque

_FLOOR = {"torch": 30.0, "tensorflow": 60.0}
_CEILING = 180.0
_TIMES = 20.0
_PATIENCE = 4.0
"""How many times longer a trial may take that is said to hang, before it is believed."""


class Pace:
    """Remembers the seconds of trials by kind (a setting family) and derives deadlines and forecasts.  Thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=50))
        self._lock = threading.Lock()

    def add(self, framework: str, family: str, seconds: float) -> None:
        """Note how long a trial took that ended by itself."""
        with self._lock:
            self._seen[framework, family].append(seconds)

    def deadline(self, framework: str, family: str) -> float:
        """Return the seconds after which a trial of this kind counts as hung: 20 x the median, within limits.

        The floor leaves room for a loaded machine and for the first trial of a kind, which nothing is known of.
        """
        with self._lock:
            seen = list(self._seen[framework, family])
        expected = statistics.median(seen) if seen else 0.0
        return min(max(_FLOOR[framework], _TIMES * expected), _CEILING)

    def patient(self, framework: str, family: str) -> float:
        """Return the seconds after which a trial that did not end within its deadline before is believed to hang."""
        return _PATIENCE * self.deadline(framework, family)
