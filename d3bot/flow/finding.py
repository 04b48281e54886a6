"""From a failing trial to one finding: shrunk, rendered, confirmed, written."""

import concurrent.futures
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from d3bot.engine.script import ScriptRun, run_script
from d3bot.findings.group import Group
from d3bot.findings.issue import Issue, render_issue
from d3bot.findings.key import Symptom, is_catch_all, refines
from d3bot.findings.title import title_of
from d3bot.flow.confirm import SCRIPT_SECONDS, Confirmation, confirm, same_failure, script_attempts, script_shows
from d3bot.flow.format import format_files
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.keying import Names, names_of, symptom_of, words
from d3bot.flow.replay import UNMEASURED
from d3bot.frameworks import View, family_of, render
from d3bot.frameworks.tight import Table, tightened
from d3bot.history.files import write_atomic
from d3bot.history.finding_folder import FindingFolder, write_finding
from d3bot.judge import Difference
from d3bot.shrink import shrink
from d3bot.spec import (
    AFTER,
    ROLES,
    Attempt,
    Build,
    Case,
    Finding,
    Role,
    Seed,
    Setting,
    SpecError,
    TensorRow,
    Trial,
    Verdict,
    dump_seed,
    load_seed,
    parse_name,
)

SHRINK_SECONDS = 20.0
SHRINK_TRIES = 400
SMALLEST = "smallest"
"""Below a run's folder: the smallest trial so far of each failure that is being shrunk, to go on from after a kill."""
MAX_TENSORS = 60
LINE = 116
"""Characters of a line of a script's docstring."""
ALL_ROLES: frozenset[Role] = frozenset(ROLES)


@dataclass(frozen=True)
class Context:
    """What a finding needs to know of its run."""

    run_dir: Path
    run: str
    confirmations: int
    base: Build | None
    verdicts: Sequence[Verdict]
    shrink_seconds: float = SHRINK_SECONDS
    """How long one failing trial is made smaller."""


@dataclass(frozen=True)
class Smallest:
    """The smallest trial that fails in the same way as another, and how that failure is called."""

    judged: Judged
    names: Names
    others: tuple[Judged, ...] = ()
    """Smaller trials that fail differently: another bug, or another look of this one."""
    tried: int = 0
    finished: bool = True


def find_smallest(
    harness: Harness,
    trial: Trial,
    keep: Path,
    width: int = 1,
    seconds: float = SHRINK_SECONDS,
    known: Sequence[Trial] = (),
) -> Smallest | None:
    """Shrink a failing trial for so many seconds; None if it does not fail any more.

    What fails differently on the way is kept aside, never taken.  `keep` is a file that holds the smallest trial so far
    while it is looked for, and from which an earlier, killed search goes on.  `known` are trials that were shrunk for
    such a failure before: one that still fails in the same way is taken as it is.
    """
    first = harness.run(trial, fresh=True)
    if not first.verdict.key:
        return None
    for candidate in known:
        judged = harness.run(candidate, fresh=True)
        if same_failure(first, judged) and _names(judged).needs <= words(trial.case, trial.setting):
            return Smallest(judged, _names(judged))
    start = _kept(keep, harness, first) or first
    search = _Search(harness, start, keep, width, time.monotonic() + seconds)
    with concurrent.futures.ThreadPoolExecutor(width) as threads:
        search.threads = threads
        small = shrink(start.trial.case, start.trial.setting, search.ask, search.allowed, width, search.better)
    keep.unlink(missing_ok=True)
    return Smallest(search.best, _names(search.best), tuple(search.others.values()), small.tried, small.finished)


class _Search:
    """Runs the candidates of one shrinking and remembers how each failed."""

    def __init__(self, harness: Harness, start: Judged, keep: Path, width: int, ends: float):
        self.best = start
        self.others: dict[str, Judged] = {}
        self.threads: concurrent.futures.Executor
        self._harness = harness
        self._keep = keep
        self._width = width
        self._ends = ends
        self._tries = 0
        self._failing: dict[str, Judged] = {}

    def allowed(self) -> bool:
        """Whether time and tries last."""
        return time.monotonic() < self._ends and self._tries < SHRINK_TRIES

    def ask(self, candidates: Sequence[tuple[Case, Setting]]) -> list[bool]:
        """Run the candidates at the same time; return which of them fail in the same way as the smallest so far."""
        trials = [self.best.trial.model_copy(update={"case": case, "setting": setting}) for case, setting in candidates]
        self._tries += len(trials)
        answers = []
        for judged in self.threads.map(self._harness.run, trials):
            same = bool(judged.verdict.key) and refines(_symptom(judged), _symptom(self.best))
            if same:
                self._failing[judged.trial.id] = judged
            elif judged.verdict.failing and not is_catch_all(judged.verdict.key):
                self.others[judged.verdict.key] = judged  # the later, the smaller
            answers.append(same)
        return answers

    def better(self, case: Case, setting: Setting) -> None:
        """Take a smaller trial and put it where a later search finds it."""
        trial = self.best.trial.model_copy(update={"case": case, "setting": setting})
        also = {*self.best.verdict.also, self.best.verdict.key}
        judged = self._failing[trial.id]
        also -= {judged.verdict.key}
        self.best = replace(judged, verdict=judged.verdict.model_copy(update={"also": tuple(sorted(also))}))
        self._keep.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._keep, dump_seed(Seed(self._keep.stem, case, f"Smallest so far under {setting}", (setting,))))


def _symptom(judged: Judged) -> Symptom:
    return symptom_of(judged.trial.case, judged.judgement)


def _names(judged: Judged) -> Names:
    return names_of(judged.trial.case, judged.trial.setting, judged.judgement)


def _kept(keep: Path, harness: Harness, first: Judged) -> Judged | None:
    """Return the trial that an earlier search came to, if it fails in the same way still."""
    try:
        seed = load_seed(keep) if keep.exists() else None
    except SpecError:
        return None
    if seed is None or not seed.settings:
        return None
    judged = harness.run(first.trial.model_copy(update={"case": seed.case, "setting": seed.settings[0]}), fresh=True)
    return judged if same_failure(first, judged) else None


def make_finding(harness: Harness, small: Smallest, group: Group, context: Context) -> Finding:
    """Confirm the smallest trial of a group in fresh processes and as a script, and write the finding's folder.

    Where a build is known to compare with, the script runs there as often: it must pass each time, or fail each time.
    """
    judged = harness.explained(small.judged)
    script = context.run_dir / f".{small.names.key}.py"
    try:
        shown = write_narrowest(harness, judged, script)
        confirmation = confirm(harness, judged, script, shown, context.confirmations)
        attempts, output_good, regression = list(confirmation.attempts), None, "unknown"
        if context.base is not None and confirmation.all_seen:
            tried, output = script_attempts(context.base, script, judged.verdict, context.confirmations)
            attempts += tried
            outcomes = {attempt.failed for attempt in tried}
            if outcomes == {True}:
                regression = "pre-existing"
            elif {attempt.outcome for attempt in tried} == {"exit 0"}:
                regression, output_good = "regression", output
        finding = _finding(harness.build, small, group, context, confirmation, tuple(attempts), regression)
        if regression == "regression":
            finding = finding.model_copy(update={"good": context.base})
        text = script.read_text()
        issue = _issue(finding, text, confirmation.output, output_good)
        body = f"# {issue.title}\n\n{issue.body}"
        write_finding(context.run_dir, finding, text, confirmation.output, output_good, body)
        return finding
    finally:
        script.unlink(missing_ok=True)


def write_narrowest(harness: Harness, judged: Judged, path: Path) -> ScriptRun:
    """Write the failing trial's script so that it observes as little as still shows the failure, and in few lines.

    What is written is what is filed: each narrower script must fail in the same way in the engine, and then as `python
    repro.py`, before it is taken.  Returns the run of the script that was kept; if none shows the failure, that of the
    one that observes everything.
    """
    *narrower, whole = narrowed(harness.build, judged)
    for text in narrower:
        _write(path, text)
        if same_failure(judged, harness.run(judged.trial, written=path)):
            run = run_script(harness.build, path, SCRIPT_SECONDS)
            if script_shows(run, judged.verdict)[0]:
                return run
    _write(path, whole)
    return run_script(harness.build, path, SCRIPT_SECONDS)


def narrowed(build: Build, judged: Judged) -> Iterator[str]:
    """Yield the scripts to try, the shortest first; the last observes everything and is written as it is run."""
    for view in views(judged):
        items = [item for item in judged.judgement.differences if item.parsed.role in view.roles]
        odd = {item.wrong for item in items} & {"missing", "unexpected", "shape"}
        table: Table = "paired" if not odd else "shapes" if odd == {"shape"} else "any"
        text = finding_script(build, judged, view)
        with tempfile.TemporaryDirectory(prefix="d3bot-script-") as folder:
            path = Path(folder) / "repro.py"
            _write(path, text)
            short = tightened(path.read_text(), table)
        if view.roles != ALL_ROLES:
            yield short
    yield text


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    format_files([path])


def views(judged: Judged) -> list[View]:
    """Return what a script may observe, the least first: what differs first, or what makes the run go far enough.

    Where the distributed run does not end well there is nothing to compare: what it looks at is what it must come to
    before it ends, a step of the optimizer or one sort of arrays.
    """
    first = judged.verdict.first
    if first is not None:
        roles = frozenset(role for role in ROLES if role == first.role)
        alone = [_view(judged, roles, first.tensor)] if first.role == "metric" else []
        return [*alone, _view(judged, roles), _view(judged, ALL_ROLES)]
    nothing = frozenset[Role]()
    some = [View(nothing), View(nothing, updates=True)]
    if judged.verdict.kind != "hung":  # to wait for it takes its time
        one = frozenset[Role]({"metric"})
        some += [_view(judged, one, metric) for metric in _metrics(judged)]
        some += [_view(judged, frozenset({role})) for role in reversed(ROLES)]
    return [*some, _view(judged, ALL_ROLES)]


def _metrics(judged: Judged) -> list[str]:
    """Return the names of the metrics that the reference computed."""
    ranks = judged.reference.ranks if judged.reference else ()
    names = sorted({parse_name(name) for rank in ranks for name in rank.arrays or ()})
    return list(dict.fromkeys(name.tensor for name in names if name.role == "metric"))


def _view(judged: Judged, roles: frozenset[Role], metric: str = "") -> View:
    """Return the view with one bound for all arrays if that still tells right from wrong, else one for each."""
    seen = [item for item in judged.judgement.differences if item.parsed.role in roles]
    bounds = {item.name: _rounded_up(item) for item in seen if item.bound}
    # Where the distributed side gave nothing to compare, a mended build must not fail the script by rounding.
    widest = max(bounds.values(), default=0.0 if seen else UNMEASURED[judged.trial.case.dtype])
    wrong = [item.error for item in seen if item.wrong]
    if not wrong or min(wrong) > 10 * widest:
        return View(roles, {}, widest, metric)
    return View(roles, bounds, metric=metric)


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
    trial = judged.trial
    return render(trial.case, trial.setting, _docstring(build, judged), view).text


def _finding(
    build: Build,
    small: Smallest,
    group: Group,
    context: Context,
    confirmation: Confirmation,
    attempts: tuple[Attempt, ...],
    regression: str,
) -> Finding:
    judged, names = small.judged, small.names
    shown = judged.verdict.model_copy(update={"confirmed": confirmation.text, "same": group.representative.same})
    original = group.representative.case
    failed = next((attempt for attempt in confirmation.attempts if not attempt.failed), None)
    unverified = ""
    if failed is not None:
        unverified = f"seen again {confirmation.text} times; the {failed.how} gave: {failed.outcome}"
    return Finding(
        key=names.key,
        title=title_of(shown, judged.trial.setting, _wrong(judged)),
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
        aliases=tuple(sorted(set(names.aliases) - {names.key})),
        symptoms=symptoms_of(group, judged),
        needs=tuple(sorted(names.needs)),
        regression=regression,
        first_seen=context.run,
    )


def symptoms_of(group: Group, judged: Judged) -> tuple[str, ...]:
    """Return every symptom of a group's trials and of the smallest of them."""
    verdicts = (*group.members, judged.verdict)
    return tuple(sorted({key for verdict in verdicts for key in (verdict.key, *verdict.also) if key}))


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


_WHAT = {
    "diverged": "One process and the distributed run must agree.",
    "nonfinite": "One process stays finite on the same rows; the distributed run does not.",
    "crashed": "One process trains the model; the distributed run raises.",
    "died": "One process trains the model; a rank of the distributed run dies.",
    "hung": "One process trains the model; the distributed run never ends.",
    "refused": "One process trains the model; the distributed run refuses.",
}


def _docstring(build: Build, judged: Judged) -> str:
    """Return what the script shows: title, rule, expected and seen numbers, versions and the one command."""
    verdict = judged.verdict
    seen = " ".join(verdict.reason.split())[:300].rstrip(".")
    first = verdict.first
    place = (first.step, first.role) if first else None
    for item in judged.judgement.differences:
        parsed = item.parsed
        here = (None if parsed.step == AFTER else parsed.step, parsed.role)
        if item.expected is not None and first and here == place and parsed.tensor == first.tensor:
            seen = f"{seen}.  At worst {item.expected:.6g} is expected and {item.seen:.6g} seen"
    built = ", ".join([build.label, *(f"{name} {version}" for name, version in sorted(build.packages.items()))])
    title = title_of(verdict, judged.trial.setting, _wrong(judged)).rstrip(".")
    if first is None and len(title) > LINE:  # the whole error follows
        title = title_of(verdict.model_copy(update={"reason": seen.split(":")[0]}), judged.trial.setting)
    seen = seen.replace(f"; {verdict.diagnosis}", "") if first and verdict.diagnosis else seen  # the title says it
    lines = [f"{title}.", "", _WHAT[verdict.kind] + (f"  {seen}." if seen not in title else "")]
    lines.append(f"Seen on {built}.        Run: python repro.py")
    safe = [line.replace("\\", "/").replace('"""', "'''") for line in lines]
    return "\n".join("\n".join(wrap(line, LINE)) if len(line) > LINE else line for line in safe) + "\n"


def _wrong(judged: Judged) -> list[str]:
    return [item.name for item in judged.judgement.differences if item.wrong]


def _rounded_up(item: Difference) -> float:
    """Return the bound with two significant digits, rounded up so that a healthy build keeps below it."""
    return float(f"{item.bound * 1.05:.1e}")
