"""Running a stream of trials for a benchmark: on several threads, until somebody has seen enough."""

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence

from d3bot.flow.harness import Harness, Judged
from d3bot.spec import Trial


def run_each(harness: Harness, trials: Sequence[Trial], workers: int, wanted: Callable[[], bool]) -> Iterator[Judged]:
    """Yield each trial's judgement as it ends; stops when `wanted` says no, and lets those in flight end."""
    waiting = iter(trials)
    harness.prepare(trials)
    with concurrent.futures.ThreadPoolExecutor(workers) as threads:
        running: set[concurrent.futures.Future[Judged]] = set()
        try:
            while True:
                while len(running) < workers and wanted():
                    trial = next(waiting, None)
                    if trial is None:
                        break
                    running.add(threads.submit(harness.run, trial))
                if not running:
                    return
                done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
