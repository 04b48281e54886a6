"""Repeat before you believe: a failure counts only after it was seen again in fresh processes."""

from dataclasses import dataclass, replace
from pathlib import Path

from d3bot.engine.script import ScriptRun, run_script
from d3bot.flow.harness import Harness, Judged
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


def again(harness: Harness, judged: Judged) -> Judged:
    """Run a failing trial once more with a fresh reference; a failure that does not repeat becomes `flaky`."""
    second = harness.run(judged.trial, fresh=True)
    if same_failure(judged.verdict, second.verdict):
        return judged
    return replace(judged, verdict=flaky(judged.verdict, f"then {second.verdict.kind}"))


def same_failure(first: Verdict, second: Verdict) -> bool:
    """Return whether two runs of one trial failed in the same way.

    Ranks that race may reach one error by different calls (`isend` here, `irecv` there), so the words count as well.
    """
    if first.key == second.key:
        return True
    return first.kind == second.kind == "crashed" and first.reason == second.reason


def flaky(verdict: Verdict, then: str) -> Verdict:
    """Return the verdict of a failure that did not repeat: kept and counted, never filed."""
    return verdict.model_copy(
        update={"kind": "flaky", "key": "", "reason": f"did not repeat: {verdict.kind} ({verdict.reason}), {then}"}
    )


def confirm(harness: Harness, judged: Judged, script: ScriptRun, times: int) -> Confirmation:
    """See a failure again `times` times: in the engine, each in fresh processes, and once as `python repro.py`.

    `script` is the run of the very file that will be filed.
    """
    attempts = []
    for _ in range(times - 1):
        second = harness.run(judged.trial, fresh=True)
        same = same_failure(judged.verdict, second.verdict)
        outcome = f"{second.verdict.kind}: {second.verdict.reason}"
        attempts.append(Attempt(how="engine", build=harness.build.label, failed=same, outcome=outcome[:300]))
    failed, outcome = script_shows(script, judged.verdict)
    attempts.append(Attempt(how="script", build=harness.build.label, failed=failed, outcome=outcome))
    return Confirmation(tuple(attempts), script.output)


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
