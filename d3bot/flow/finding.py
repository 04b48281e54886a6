"""From a group of failing verdicts to one finding: shrunk, rendered, confirmed, written."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from d3bot.engine.script import ScriptRun, run_script
from d3bot.findings.group import Group
from d3bot.findings.issue import Issue, render_issue
from d3bot.findings.title import title_of
from d3bot.flow.confirm import SCRIPT_SECONDS, Confirmation, confirm, script_attempt, script_shows
from d3bot.flow.format import format_files
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.replay import UNMEASURED
from d3bot.frameworks import View, family_of, render
from d3bot.history.finding_folder import FindingFolder, write_finding
from d3bot.judge import Difference
from d3bot.shrink import shrink
from d3bot.spec import ROLES, Attempt, Build, Case, Finding, Role, Setting, TensorRow, Trial, Verdict

SHRINK_SECONDS = 20.0
SHRINK_TRIES = 400
MAX_TENSORS = 60
ALL_ROLES: frozenset[Role] = frozenset(ROLES)


@dataclass(frozen=True)
class Context:
    """What a finding needs to know of its run."""

    run_dir: Path
    run: str
    confirmations: int
    base: Build | None
    verdicts: Sequence[Verdict]


def make_finding(harness: Harness, trial: Trial, group: Group, context: Context, known: Trial | None = None) -> Finding:
    """Shrink the group's representative, confirm it in fresh processes and as a script, and write its folder.

    `known` is a trial that was shrunk for this key before: if it fails in the same way still, nothing is shrunk anew.
    """
    judged = harness.run(known, fresh=True) if known is not None else None
    if judged is None or judged.verdict.key != group.key:
        judged = _smallest(harness, trial, group.key)
    script = context.run_dir / f".{group.key}.py"
    try:
        shown = write_narrowest(harness.build, judged, script)
        confirmation = confirm(harness, judged, shown, context.confirmations)
        attempts, output_good, regression = list(confirmation.attempts), None, "unknown"
        if context.base is not None and confirmation.all_seen:
            attempt, output = script_attempt(context.base, script, judged.verdict)
            attempts.append(attempt)
            regression = "pre-existing" if attempt.failed else "regression"
            output_good = None if attempt.failed else output
        finding = _finding(harness.build, judged, group, context, confirmation, tuple(attempts), regression)
        if regression == "regression":
            finding = finding.model_copy(update={"good": context.base})
        text = script.read_text()
        issue = _issue(finding, text, confirmation.output, output_good)
        body = f"# {issue.title}\n\n{issue.body}"
        write_finding(context.run_dir, finding, text, confirmation.output, output_good, body)
        return finding
    finally:
        script.unlink(missing_ok=True)


def write_narrowest(build: Build, judged: Judged, path: Path) -> ScriptRun:
    """Write the failing trial's script so that it observes as little as still shows the failure.

    What is written is what is filed: each narrower script is run as `python repro.py` before it is taken.  Returns the
    run of the script that was kept; if none shows the failure, that of the one that observes everything.
    """
    for view in views(judged):
        path.write_text(finding_script(build, judged, view))
        format_files([path])
        run = run_script(build, path, SCRIPT_SECONDS)
        if script_shows(run, judged.verdict)[0]:
            break
    return run


def views(judged: Judged) -> list[View]:
    """Return what a script may observe, the least first: what differs first, or what makes the run go far enough."""
    first = judged.verdict.first
    roles: list[frozenset[Role]] = [ALL_ROLES]
    if first is not None:
        roles.insert(0, frozenset(role for role in ROLES if role == first.role))
    else:
        roles[:0] = [frozenset(("loss",)), frozenset(("param",))]
    return [_view(judged, chosen) for chosen in roles]


def _view(judged: Judged, roles: frozenset[Role]) -> View:
    """Return the view with one bound for all arrays if that still tells right from wrong, else one for each."""
    seen = [item for item in judged.judgement.differences if item.parsed.role in roles]
    bounds = {item.name: _rounded_up(item) for item in seen if item.bound}
    # Where the distributed side gave nothing to compare, a mended build must not fail the script by rounding.
    widest = max(bounds.values(), default=0.0 if seen else UNMEASURED[judged.trial.case.dtype])
    wrong = [item.error for item in seen if item.wrong]
    if not wrong or min(wrong) > 10 * widest:
        return View(roles, {}, widest)
    return View(roles, bounds)


def issue_of(folder: FindingFolder, templates: Path | None = None) -> Issue:
    """Return the issue of a finding folder, with the promise that was broken and where it is documented."""
    return _issue(folder.finding, folder.script, folder.output_bad, folder.output_good, templates)


def _issue(
    finding: Finding, script: str, output_bad: str, output_good: str | None, templates: Path | None = None
) -> Issue:
    contract = family_of(finding.case.framework, finding.setting).contract
    return render_issue(finding, script, output_bad, output_good, contract.promise, contract.source, templates)


def finding_script(build: Build, judged: Judged, view: View) -> str:
    """Return the script of a failing trial with its bounds and what it shows in its docstring."""
    verdict, trial = judged.verdict, judged.trial
    return render(trial.case, trial.setting, _docstring(build, verdict, trial.setting), view).text


def _smallest(harness: Harness, trial: Trial, key: str) -> Judged:
    ends = time.monotonic() + SHRINK_SECONDS
    tries = iter(range(SHRINK_TRIES))

    def allowed() -> bool:
        return time.monotonic() < ends and next(tries, None) is not None

    def fails(case: Case, setting: Setting) -> bool:
        return harness.run(trial.model_copy(update={"case": case, "setting": setting})).verdict.key == key

    small = shrink(trial.case, trial.setting, fails, allowed)
    return harness.run(trial.model_copy(update={"case": small.case, "setting": small.setting}), fresh=True)


def _finding(
    build: Build,
    judged: Judged,
    group: Group,
    context: Context,
    confirmation: Confirmation,
    attempts: tuple[Attempt, ...],
    regression: str,
) -> Finding:
    shown = judged.verdict.model_copy(
        update={"confirmed": confirmation.text, "key": group.key, "same": group.representative.same}
    )
    original = group.representative.case
    failed = next((attempt for attempt in confirmation.attempts if not attempt.failed), None)
    unverified = ""
    if failed is not None:
        unverified = f"seen again {confirmation.text} times; the {failed.how} gave: {failed.outcome}"
    return Finding(
        key=group.key,
        title=title_of(shown, judged.trial.setting),
        verdict=shown,
        build=build,
        case=judged.trial.case,
        setting=judged.trial.setting,
        tensors=_tensors(judged.judgement.differences),
        attempts=attempts,
        verified=failed is None,
        unverified_reason=unverified,
        trials=tuple(f"{verdict.case} {verdict.setting}" for verdict in group.members),
        agreeing=tuple(sorted(v.setting for v in context.verdicts if v.case == original and v.kind == "pass")),
        regression=regression,
        first_seen=context.run,
    )


def _tensors(differences: Sequence[Difference]) -> tuple[TensorRow, ...]:
    """Return what was compared, the earliest first; of more than a page holds, what is wrong goes before the rest."""
    kept = sorted(sorted(differences, key=lambda item: not item.wrong)[:MAX_TENSORS], key=lambda item: item.parsed)
    return tuple(
        TensorRow(
            name=item.name[:500],
            error=item.error if math.isfinite(item.error) else None,
            bound=item.bound,
            wrong=item.wrong,
        )
        for item in kept
    )


def _docstring(build: Build, verdict: Verdict, setting: Setting) -> str:
    what = {
        "diverged": "One process and the distributed run train the same model on the same rows and must agree.",
        "nonfinite": "One process stays finite on the same rows; the distributed run does not.",
        "crashed": "One process trains the model; the distributed run raises.",
        "died": "One process trains the model; a rank of the distributed run dies.",
        "hung": "One process trains the model; the distributed run never ends.",
        "refused": "One process trains the model; the distributed run refuses.",
    }[verdict.kind]
    seen = " ".join(verdict.reason.split())[:300].rstrip(".").replace("\\", "/").replace('"""', "'''")
    title = title_of(verdict, setting).rstrip(".")
    return f"{title}.\n\n{what}\n{seen}.\nSeen on {build.label}.        Run: python repro.py\n"


def _rounded_up(item: Difference) -> float:
    """Return the bound with two significant digits, rounded up so that a healthy build keeps below it."""
    return float(f"{item.bound * 1.05:.1e}")
