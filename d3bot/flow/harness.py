"""One build under test: scripts rendered, run through the engine, judged, keyed."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from d3bot.engine.jobs import PRELOADS, EngineError, Job, Limits
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.format import format_files
from d3bot.flow.keying import groups_of, symptom_key_of
from d3bot.flow.stopwatch import Stopwatch
from d3bot.frameworks import Script, canonical_setting, family_of, obstacle, render
from d3bot.judge import (
    UNEXPLAINED,
    Clues,
    Difference,
    Judgement,
    Traced,
    beyond_rounding,
    is_rounding,
    judge,
    trace_of,
)
from d3bot.spec import Build, Observation, Trial, Verdict

NOISE: tuple[Literal["move", "order"], ...] = ("order", "order", "order", "move", "move")
"""Re-runs of the reference for the noise floor: sums reordered, and everything moved by one unit in the last place."""

ORDERED: tuple[Literal["move", "order"], ...] = ("move", "move", "move", "move", "move")
"""Re-runs for the noise floor where rows must stay in their order."""

MOVED: tuple[Literal["move", "order"], ...] = ("move", "move", "move")
"""Re-runs for the noise of what lies on the way, whose rows must stay in their order."""

RENDER = "render"
"""Under what name rendering and formatting are timed."""

_REFERENCE_SECONDS = 120.0
_KEPT_REFERENCES = 64


@dataclass(frozen=True)
class Judged:
    """A trial's verdict and what it rests on."""

    trial: Trial
    verdict: Verdict
    judgement: Judgement
    script: Script | None = None
    reference: Observation | None = None
    distributed: Observation | None = None
    """What both sides returned; None where they were not run."""


class Harness:
    """Runs and judges trials of one build.  Thread-safe.  Scripts are written below `folder`."""

    def __init__(self, pool: Pool, folder: Path, pace: Pace, shard: str = "1/1", stopwatch: Stopwatch | None = None):
        self.build: Build = pool.build
        self._pool = pool
        self._folder = folder
        self._pace = pace
        self._shard = shard
        self._stopwatch = stopwatch or Stopwatch()
        self._references: dict[str, _Once] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, trials: Sequence[Trial]) -> None:
        """Render and format the scripts of many trials at once; what cannot be rendered shows when it is run."""
        paths = []
        for trial in trials:
            if self._why_not(trial) is None:
                path = self._path(trial)
                path.write_text(self._render(trial).text)
                paths.append(path)
        with self._stopwatch.measure(RENDER):
            format_files(paths)

    def run(self, trial: Trial, fresh: bool = False, patient: bool = False, written: Path | None = None) -> Judged:
        """Run one trial and judge it; with `fresh` the reference is run anew as well, not taken from the cache.

        The noise floor is a property of the case: it is not measured anew.  With `patient` the deadline is several
        times longer: what hangs is told from what is merely slow.  `written` is a script of the trial that is run in
        place of the one that observes everything, always afresh.

        Never raises for what a trial does: infrastructure trouble is the verdict `no-data`.
        """
        began = time.monotonic()
        why_not = self._why_not(trial)
        if why_not is not None:
            return self._judged(trial, Judgement("not-applicable", why_not), None, began)
        script = self._render(trial)
        path = self._path(trial)
        if not path.exists():
            path.write_text(script.text)
            format_files([path])
        try:
            reference = self._reference(script, path, fresh, written)
            seconds = self._pace.patient if patient else self._pace.deadline
            limits = Limits(seconds=seconds(self.build.framework, trial.setting.family))
            job = Job(written or path, "distributed", self.build.framework, script.processes, limits=limits)
            distributed = self._pool.run(job) if reference.ok else Observation(())
        except EngineError as error:
            return self._judged(trial, Judgement("no-data", f"the engine was lost: {error}"), None, began)
        if distributed.ok and distributed.ranks:
            self._pace.add(self.build.framework, trial.setting.family, distributed.seconds)
        judgement = self._judge(trial, script, reference, distributed)
        judged = self._judged(trial, self._arbitrated(trial, judgement), script, began)
        return replace(judged, reference=reference, distributed=distributed)

    def _why_not(self, trial: Trial) -> str | None:
        """Return why this trial does not apply on this build, or None."""
        needs = family_of(trial.case.framework, trial.setting).needs
        if needs and needs not in self.build.packages:
            return f"this build holds no {needs}"
        return obstacle(trial.case, trial.setting)

    def explained(self, judged: Judged) -> Judged:
        """Return the trial with a diagnosis for which the reference was run on each rank's rows alone, if it needs one.

        Nothing but the diagnosis changes: kind, bound and key stay as they are.
        """
        judgement, script = judged.judgement, judged.script
        if judgement.kind != "diverged" or judgement.pattern not in UNEXPLAINED or script is None:
            return judged
        if judged.reference is None or judged.distributed is None or not judged.verdict.failing:
            return judged
        clues = self._clues(script, self._path(judged.trial), judged.trial)
        found = self._judge(judged.trial, script, judged.reference, judged.distributed, clues)
        verdict = judged.verdict.model_copy(update={"reason": found.reason, "diagnosis": found.diagnosis})
        return replace(judged, verdict=verdict, judgement=found)

    def traced(self, judged: Judged) -> tuple[Traced, Judged] | None:
        """Run a trial once more with its layers and collectives recorded; None if it cannot be, or records nothing.

        Returned with what the trace shows is how the traced run itself is judged: it must say what the other said.
        """
        trial, script = judged.trial, judged.script
        if script is None or judged.reference is None or not judged.reference.ok:
            return None
        began = time.monotonic()
        kind, path = self.build.framework, self._path(trial)
        limits = Limits(seconds=2 * _REFERENCE_SECONDS)
        halves = (
            Job(
                path, "reference", kind, parts=script.parts, steps=script.steps, noise=MOVED, limits=limits, trace=True
            ),
            Job(path, "distributed", kind, script.processes, limits=Limits(seconds=_REFERENCE_SECONDS), trace=True),
        )
        try:
            one, many = (self._pool.run(job) for job in halves)
        except EngineError:
            return None
        found = self._judge(trial, script, judged.reference, many)
        again = self._judged(trial, found, script, began)
        ranks = [rank.trace for rank in many.ranks if rank.trace is not None]
        if not one.ok or one.ranks[0].trace is None or len(ranks) < len(many.ranks):
            return None
        places = [item for item in judged.judgement.differences if item.wrong]
        earliest = [item.name for item in places if item.parsed.step == places[0].parsed.step]
        held = {name: [rank.arrays for rank in many.ranks if rank.arrays and name in rank.arrays] for name in earliest}
        return trace_of(one.ranks[0].trace, one.moved, ranks, held), again

    def _judge(
        self, trial: Trial, script: Script, reference: Observation, distributed: Observation, clues: Clues | None = None
    ) -> Judgement:
        family = family_of(self.build.framework, trial.setting)
        return judge(
            reference,
            distributed,
            exact=lambda name: family.exact(trial.case, trial.setting, name),
            world=script.world,
            parts=script.parts,
            packages=PRELOADS[self.build.framework].packages,
            clues=clues or Clues(groups=groups_of(trial.case)),
            rounding=family.rounding(trial.case, trial.setting),
        )

    def _clues(self, script: Script, path: Path, trial: Trial) -> Clues:
        """Return what each rank's rows give alone; as much of it as can be had."""
        pieces = _pieces(script)
        job = Job(
            path,
            "reference",
            self.build.framework,
            parts=script.parts,
            steps=script.steps,
            shares=range(pieces),
            without=range(pieces) if pieces > 2 else (),  # of two, what is left is the other's own
            pieces=pieces,
            start=True,
            limits=Limits(seconds=_REFERENCE_SECONDS),
        )
        try:
            seen = self._pool.run(job)
        except EngineError:
            return Clues(groups=groups_of(trial.case))
        return Clues(seen.shares, seen.start, groups_of(trial.case), seen.without)

    def _path(self, trial: Trial) -> Path:
        return self._folder / f"{trial.id}.py"

    def _render(self, trial: Trial) -> Script:
        setting = canonical_setting(trial.case.framework, trial.setting)
        docstring = f"Case {trial.case.id} under {setting}: one process and the distributed run must agree."
        with self._stopwatch.measure(RENDER):
            return render(trial.case, setting, docstring)

    def _reference(self, script: Script, path: Path, fresh: bool, written: Path | None = None) -> Observation:
        """Return the reference with its noise re-runs, run once for all settings that share its text.

        That of a `written` script is run anew, and judged by the noise of the one that observes everything.
        """
        job = Job(
            path,
            "reference",
            self.build.framework,
            parts=script.parts,
            steps=script.steps,
            limits=Limits(seconds=_REFERENCE_SECONDS),
        )
        with self._lock:
            once = self._references.setdefault(script.reference_key, _Once())
            while len(self._references) > _KEPT_REFERENCES:
                self._references.pop(next(iter(self._references)))
        with once.lock:
            known = once.value
            if known is None:
                measuring = replace(
                    job, noise=ORDERED if script.ordered else NOISE, shares=(0,), pieces=max(script.parts, 2)
                )
                known = once.value = self._pool.run(measuring)
                if written is None:
                    return known
        if not (fresh or written) or not known.ok:
            return known
        return replace(self._pool.run(replace(job, script=written or path)), noise=known.noise, shares=known.shares)

    def _arbitrated(self, trial: Trial, judgement: Judgement) -> Judgement:
        """Let float64 decide whether a float32 divergence beyond its noise bound is rounding (see judge.arbiter)."""
        wrong = [item for item in judgement.differences if item.wrong]
        if judgement.kind != "diverged" or trial.case.dtype != "float32" or not all(item.bound for item in wrong):
            return judgement
        linear = trial.case.optimizer.name == "sgd"
        if any(beyond_rounding(item, linear) for item in wrong):
            return judgement
        double = self.run(trial.model_copy(update={"case": trial.case.model_copy(update={"dtype": "float64"})}))
        by_name: dict[str, Difference] = {item.name: item for item in double.judgement.differences}
        if not all(is_rounding(item, by_name.get(item.name)) for item in wrong):
            return judgement
        return Judgement(
            "pass",
            f"float64 shows rounding only: {judgement.reason}",
            error=judgement.error,
            bound=judgement.bound,
            first=judgement.first,
            differences=judgement.differences,
        )

    def _judged(self, trial: Trial, judgement: Judgement, script: Script | None, began: float) -> Judged:
        setting = canonical_setting(trial.case.framework, trial.setting)
        family = family_of(self.build.framework, setting)
        verdict = Verdict(
            trial=trial.id,
            framework=trial.case.framework,
            build=self.build.id,
            case=trial.case.id,
            seed=trial.seed,
            origin=trial.origin,
            setting=str(setting),
            world=family.world(setting),
            dtype=trial.case.dtype,
            kind=judgement.kind,
            reason=judgement.reason,
            key=symptom_key_of(trial.case, setting, judgement),
            first=judgement.first,
            error=judgement.error,
            bound=judgement.bound,
            diagnosis=judgement.diagnosis,
            detail=judgement.detail[-6000:],
            vacuous=judgement.vacuous,
            seconds=round(time.monotonic() - began, 3),
            shard=self._shard,
        )
        return Judged(trial, verdict, judgement, script)


def _pieces(script: Script) -> int:
    """Return how many shares a batch has: those that the reference splits it into, else one a rank."""
    return script.parts if script.parts > 1 else script.world


@dataclass
class _Once:
    """A value computed by the first thread that needs it, while the others wait."""

    value: Observation | None = None

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
