"""The trials of a run on all workers: run, seen again if they fail, explained, and on disk as soon as they end."""

import concurrent.futures
import threading
from collections.abc import Mapping, Sequence

from d3bot.flow.confirm import again
from d3bot.flow.harness import Harness
from d3bot.flow.represent import FailedBefore
from d3bot.flow.same_wrong import SameWrong
from d3bot.history.folder import RunWriter
from d3bot.report.terminal import Progress
from d3bot.spec import Framework, Trial, Verdict


class Rounds:
    """Runs trials of several builds, one build's before the next one's."""

    def __init__(
        self,
        harnesses: Mapping[Framework, Harness],
        workers: int,
        writer: RunWriter,
        progress: Progress,
        before: FailedBefore,
        verdicts: Mapping[str, Verdict],
    ):
        self.verdicts = dict(verdicts)
        """What there is so far, by trial."""
        self._harnesses = harnesses
        self._workers = workers
        self._writer = writer
        self._progress = progress
        self._before = before
        self._same_wrong = SameWrong()
        self._explained: set[str] = set()
        self._lock = threading.Lock()

    def run(self, trials: Sequence[Trial]) -> None:
        """Run those of the trials that have no verdict yet.

        A KeyboardInterrupt ends it after the trials in flight; what has ended is on disk.
        """
        waiting = [
            (harness, [t for t in trials if t.case.framework == framework and t.id not in self.verdicts])
            for framework, harness in self._harnesses.items()
        ]
        for harness, mine in waiting:
            harness.prepare(mine)
        with concurrent.futures.ThreadPoolExecutor(self._workers) as threads:
            # One queue for all builds: while a trial hangs at the end of one build's, the others go on with the next.
            futures = [threads.submit(self._one, harness, trial) for harness, mine in waiting for trial in mine]
            try:
                for future in concurrent.futures.as_completed(futures):
                    verdict = future.result()
                    self.verdicts[verdict.trial] = verdict
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def close(self) -> None:
        """Note in the verdicts of this run's wrong trials which other settings returned the same wrong numbers."""
        for trial, others in self._same_wrong.result().items():
            self.verdicts[trial] = self.verdicts[trial].model_copy(update={"same": others})
            self._writer.append(self.verdicts[trial])

    def _one(self, harness: Harness, trial: Trial) -> Verdict:
        """Return a trial's verdict.

        A failure is run once more, unless the previous run saw the same trial fail so.  Of the failures under one key
        only the first is looked into with more runs of the reference.
        """
        self._progress.running(trial)
        judged = harness.run(trial)
        if judged.verdict.failing:
            if not self._before.repeats(judged.verdict):
                judged = again(harness, judged)
            self._same_wrong.add(judged)
            with self._lock:
                first = judged.verdict.key not in self._explained
                self._explained.add(judged.verdict.key)
            if first:
                judged = harness.explained(judged)
        self._writer.append(judged.verdict)
        self._progress.finished(judged.verdict)
        return judged.verdict
