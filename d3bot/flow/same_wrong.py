"""While a run goes: what the wrong settings of a case returned, to be compared with each other when it ends."""

import threading

from d3bot.flow.harness import Judged
from d3bot.judge import clusters, floors
from d3bot.spec import Arrays


class SameWrong:
    """Collects the diverged trials of a run.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], dict[str, tuple[str, Arrays]]] = {}
        self._floors: dict[tuple[str, str], dict[str, float]] = {}

    def add(self, judged: Judged) -> None:
        """Note what a trial returned, if it diverged from a reference that others may share."""
        one, many = judged.reference, judged.distributed
        if judged.verdict.kind != "diverged" or judged.script is None or one is None or many is None:
            return
        arrays: Arrays = {}
        for rank in reversed(many.ranks):
            arrays |= rank.arrays or {}  # of several copies, the first rank's
        where = (judged.verdict.case, judged.script.reference_key)
        with self._lock:
            self._seen.setdefault(where, {})[judged.verdict.setting] = (judged.verdict.trial, arrays)
            if where not in self._floors:
                self._floors[where] = floors(one.ranks[0].arrays or {}, one.noise)

    def result(self) -> dict[str, tuple[str, ...]]:
        """Return, for each trial that shares its wrong numbers, the other settings that gave the same."""
        found = {}
        for where, seen in self._seen.items():
            for group in clusters({setting: arrays for setting, (_, arrays) in seen.items()}, self._floors[where]):
                for setting in group:
                    if len(group) > 1:
                        found[seen[setting][0]] = tuple(other for other in group if other != setting)
        return found
