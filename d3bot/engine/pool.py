"""The local executor: a few zygotes of one build, handed out to threads."""

import contextlib
import queue
import threading
from collections.abc import Mapping
from types import TracebackType

from d3bot.engine.jobs import EngineError, Job
from d3bot.engine.zygote import Zygote
from d3bot.spec import Build, Observation


class Pool:
    """Runs jobs of one build on up to `slots` zygotes.  Thread-safe; a lost zygote is replaced."""

    def __init__(self, build: Build, env: Mapping[str, str], slots: int):
        self.build = build
        self._env = env
        self._closed = threading.Event()
        self._free: queue.LifoQueue[Zygote | None] = queue.LifoQueue()
        for _ in range(slots):
            self._free.put(None)  # a place for a zygote that is not started yet

    def run(self, job: Job) -> Observation:
        """Run a job; EngineError only if two zygotes in a row were lost, or the pool is closed."""
        zygote = self._free.get()
        try:
            if self._closed.is_set():
                raise EngineError("the pool is closed")
            try:
                zygote = zygote or Zygote(self.build, self._env)
                return zygote.run(job)
            except EngineError:
                zygote = None
                zygote = Zygote(self.build, self._env)
                return zygote.run(job)
        except BaseException:
            zygote = None  # a zygote that raised has ended itself
            raise
        finally:
            if zygote is not None and self._closed.is_set():
                zygote.close()
                zygote = None
            self._free.put(zygote)

    def close(self) -> None:
        """End every zygote; one that is in use ends with its job."""
        self._closed.set()
        slots = []
        with contextlib.suppress(queue.Empty):
            while True:
                slots.append(self._free.get_nowait())
        for zygote in slots:
            if zygote is not None:
                zygote.close()
            self._free.put(None)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
