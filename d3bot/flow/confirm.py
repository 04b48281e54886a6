"""Repeat before you believe: a failure counts only after it was seen again in fresh processes."""

from dataclasses import dataclass, replace
from pathlib import Path

from d3bot.engine.script import ScriptRun, run_script
from d3bot.findings.key import akin
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.keying import symptom_of
from d3bot.spec import Attempt, Build, Verdict

SCRIPT_SECONDS = 120.0
WRONG = "<-- WRONG"
"""The mark that a script prints behind each array beyond its bound."""


@dataclass(frozen=True)
class Confirmation:
    """Every attempt to see a failure again, and what `python repro.py` printed."""

    attempts: tuple[Attempt, ...]
    output: str

    @property
    def seen(self) -> int:
        """How many attempts failed in the same way."""
        return sum(attempt.failed for attempt in self.attempts)

    @property
    def all_seen(self) -> bool:
        """Whether every attempt failed in the same way."""
        return self.seen == len(self.attempts)

    @property
    def text(self) -> str:
        """`3/3`."""
        return f"{self.seen}/{len(self.attempts)}"


def again(harness: Harness, judged: Judged, patient: bool = False) -> Judged:
    """Run a failing trial once more with a fresh reference; a failure that does not repeat becomes `flaky`.

    One that fails each time but differently is steady enough: the other symptom is noted.  What did not end gets a much
    longer deadline; if it ends by itself then, later than it was stopped before, it was slow, and that run counts.
    """
    hung = judged.verdict.kind == "hung"
    second = harness.run(judged.trial, fresh=True, patient=patient or hung)
    if hung and _was_slow(judged, second):
        return again(harness, second, patient=True) if second.verdict.failing else second
    if same_failure(judged, second):
        also = {second.verdict.key} - {judged.verdict.key}
    elif second.verdict.failing and second.verdict.key:
        also = {second.verdict.key}
    else:
        return replace(judged, verdict=flaky(judged.verdict, f"then {second.verdict.kind}"))
    return replace(judged, verdict=judged.verdict.model_copy(update={"also": tuple(sorted(also))}))


def _was_slow(stopped: Judged, ended: Judged) -> bool:
    """Return whether a trial that was stopped at its deadline ended by itself when it was given longer."""
    if stopped.distributed is None or ended.distributed is None or ended.verdict.kind == "hung":
        return False
    return ended.distributed.seconds > stopped.distributed.seconds


def same_failure(first: Judged, second: Judged) -> bool:
    """Return whether two runs failed in the same way, as far as one cause may look different."""
    if not first.verdict.key or not second.verdict.key:
        return False
    if second.verdict.key in (first.verdict.key, *first.verdict.also):
        return True
    return akin(symptom_of(first.trial.case, first.judgement), symptom_of(second.trial.case, second.judgement))


def flaky(verdict: Verdict, then: str) -> Verdict:
    """Return the verdict of a failure that did not repeat: kept and counted, never filed."""
    return verdict.model_copy(
        update={"kind": "flaky", "key": "", "reason": f"did not repeat: {verdict.kind} ({verdict.reason}), {then}"}
    )


def confirm(harness: Harness, judged: Judged, path: Path, script: ScriptRun, times: int) -> Confirmation:
    """See a failure again `times` times: in the engine, each in fresh processes, and once as `python repro.py`.

    `path` is the very file that will be filed, which the engine executes as well, and `script` its run.  The first time
    a hang is waited for much longer: shrinking may have come to a trial that is merely slow.
    """
    attempts = []
    for time in range(times - 1):
        second = harness.run(judged.trial, patient=judged.verdict.kind == "hung" and time == 0, written=path)
        same = same_failure(judged, second)
        outcome = f"{second.verdict.kind}: {second.verdict.reason}"
        attempts.append(Attempt(how="engine", build=harness.build.label, failed=same, outcome=outcome[:300]))
    failed, outcome = script_shows(script, judged.verdict)
    attempts.append(Attempt(how="script", build=harness.build.label, failed=failed, outcome=outcome))
    return Confirmation(tuple(attempts), script.output)


def script_attempts(build: Build, script: Path, verdict: Verdict, times: int) -> tuple[list[Attempt], str]:
    """Run a finding's script `times` times on another build; return the attempts and what the last one printed.

    The first that differs from the one before it ends the asking: the build is neither good nor bad then.
    """
    attempts: list[Attempt] = []
    output = ""
    while len(attempts) < times and len({attempt.failed for attempt in attempts}) < 2:
        attempt, output = script_attempt(build, script, verdict)
        attempts.append(attempt)
    return attempts, output


def script_attempt(build: Build, script: Path, verdict: Verdict) -> tuple[Attempt, str]:
    """Run a finding's script on another build; return whether it fails there in the same way, and its output."""
    run = run_script(build, script, SCRIPT_SECONDS)
    failed, outcome = script_shows(run, verdict)
    return Attempt(how="script", build=build.label, failed=failed, outcome=outcome), run.output


def script_shows(run: ScriptRun, verdict: Verdict) -> tuple[bool, str]:
    """Return whether a run of the script shows the failure of the verdict, and its outcome in words.

    Exit code 1 alone does not do: a script that cannot import the library ends with 1 as well.
    """
    if run.code is None:
        return verdict.kind == "hung", "did not end"
    outcome = f"exit {run.code}"
    if verdict.kind in ("diverged", "nonfinite"):
        return run.code == 1 and WRONG in run.output, outcome
    if verdict.kind == "hung":
        return False, outcome
    if verdict.kind == "died":
        return run.code != 0, outcome
    error = verdict.reason.split(":")[0]
    return run.code == 1 and error in run.output, outcome
