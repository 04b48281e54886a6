"""The main job: plan, run and judge every trial of a run, compare with the previous one, make findings, report."""

import secrets
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from rich.console import Console

from d3bot import __version__
from d3bot.builds import prune
from d3bot.builds.candidates import spec_of
from d3bot.builds.identify import environment_changes
from d3bot.builds.upstream import night_notes
from d3bot.config import PREVIOUS, Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.findings.group import group_failing
from d3bot.flow.bisect import bisect_new
from d3bot.flow.coverage import record_coverage
from d3bot.flow.evidence import gather
from d3bot.flow.finding import Context
from d3bot.flow.harness import Harness
from d3bot.flow.look import Looked, look_into
from d3bot.flow.newest import recheck
from d3bot.flow.pages import write_pages
from d3bot.flow.plan_file import load_costs, load_plan, write_plan
from d3bot.flow.planning import Before, costs_of, find_previous, more_trials, plan_trials
from d3bot.flow.represent import FailedBefore
from d3bot.flow.resolved import resolved
from d3bot.flow.rounds import Rounds
from d3bot.flow.stopwatch import Stopwatch
from d3bot.flow.totals import totals
from d3bot.frameworks import script_env
from d3bot.frameworks.registry import check_globs
from d3bot.history.changes import NEWS, compare, fails_alike, known_again, other_names
from d3bot.history.folder import RunWriter, write_changes
from d3bot.report.terminal import Progress, teller
from d3bot.spec import (
    Build,
    Change,
    Costs,
    Finding,
    Framework,
    Run,
    SpecError,
    Trial,
    Verdict,
)

GENERATE = "generate"
"""Under what name making cases and choosing trials is timed."""

MAX_NO_DATA = 0.02
"""Part of a run's trials that infrastructure trouble may take before the run counts as incomplete."""


@dataclass(frozen=True)
class Night:
    """A finished run."""

    run: Run
    verdicts: tuple[Verdict, ...]
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    folder: Path

    def new_and_confirmed(self, known: Collection[str] = ()) -> list[Finding]:
        """Return the verified findings that the previous run did not have and that are not known upstream."""
        news = {change.after_key for change in self.changes if change.change in NEWS}
        unknown = [
            item for item in self.findings if not item.names & set(known) and not set(item.symptoms) & set(known)
        ]
        return [item for item in unknown if item.verified and item.key in news]


def run_night(
    config: Config,
    out: Path,
    console: Console,
    resume: bool = False,
    look: bool = True,
    changed: Sequence[str] = (),
    beside: Sequence[Verdict] = (),
) -> Night:
    """Do the whole job and leave the run folder of it at `out`; without `look`, no failure is looked into.

    What a change of the files `changed` of the library touches comes first, on more fresh cases.  `beside` are the
    verdicts on another build: what fails there alike is not looked into, what passes there may not be refused here.
    SpecError for wrong input, NoDataError if a build cannot be had.  A KeyboardInterrupt leaves the folder so that
    `resume` continues it.
    """
    check_globs(config.settings)
    began = time.monotonic()
    told = _told(config, out, console)
    prune(config.cache, config.cache_gib, config.cache_days)
    work = _resumed(told) if resume else _started(told, changed)
    ends = began + 60 * config.minutes if config.minutes else None
    with work.writer, tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as scripts, ExitStack() as pools:
        console.print(f"seed of the fresh cases: {work.run.seed}", highlight=False)
        pace = Pace()
        harnesses = {
            build.framework: Harness(
                pools.enter_context(Pool(build, script_env(build.framework), config.workers)),
                Path(scripts) / build.framework,
                pace,
                str(config.shard),
                work.stopwatch,
            )
            for build in told.builds
        }
        _run_trials(told, work, harnesses, ends)
        findings = _look(told, work, harnesses, beside) if look else []
        if look and told.before:
            shown = {name for finding in findings for name in finding.names}
            failing = shown | {verdict.key for verdict in work.ordered if verdict.failing}
            of_framework = {build.framework: build for build in told.builds}
            gather(told.before.folder, of_framework, failing, shown, out, config.confirmations, config.shard)
        return _finish(told, work, findings, time.monotonic() - began)


@dataclass(frozen=True)
class _Told:
    """What a run was told, and what it starts from."""

    config: Config
    out: Path
    console: Console
    builds: tuple[Build, ...]
    base: Build | None
    before: Before | None

    @property
    def findings_before(self) -> list[Finding]:
        """The findings of the run before."""
        return self.before.findings if self.before else []

    @property
    def verdicts_before(self) -> Sequence[Verdict]:
        """The verdicts of the run before."""
        return self.before.loaded.verdicts if self.before else ()

    @cached_property
    def failed_before(self) -> FailedBefore:
        """What failed in the run before, by which a few trials may stand for all of a key."""
        if self.before is None:
            return FailedBefore()
        verdicts = {verdict.trial: verdict for verdict in self.verdicts_before}
        return FailedBefore(verdicts, other_names(self.findings_before))


def _told(config: Config, out: Path, console: Console) -> _Told:
    """Resolve every build, and find the run to compare with; say what is odd about a build after that run's."""
    resolved = _resolve_all(config.builds, config, console)
    before = find_previous(config, out, resolved, teller(console))
    builds = tuple(build.model_copy(update={"notes": (*build.notes, *_odd(before, build))}) for build in resolved)
    for build in builds:
        for note in _odd(before, build):
            console.print(f"{build.label}: {note}", markup=False)
    return _Told(config, out, console, builds, _base(config, before, builds, console), before)


@dataclass
class _Work:
    """What a run has to do, and what of it is done."""

    run: Run
    writer: RunWriter
    costs: Costs
    stopwatch: Stopwatch
    trials: list[Trial]
    held: list[Trial]
    """Trials that others stand for as long as those fail as before."""
    verdicts: dict[str, Verdict]
    """By trial."""

    @property
    def ordered(self) -> list[Verdict]:
        """The verdicts in the order of their trials."""
        return [self.verdicts[trial.id] for trial in self.trials if trial.id in self.verdicts]


def _started(told: _Told, changed: Sequence[str]) -> _Work:
    """Plan a run and begin its folder; SpecError if there is nothing to run."""
    config, stopwatch = told.config, Stopwatch()
    seed = config.seed if config.seed is not None else secrets.randbelow(2**31)
    costs = costs_of(told.before)
    with stopwatch.measure(GENERATE):
        planned = plan_trials(config, told.builds, told.before, seed, costs, changed)
    trials, held = told.failed_before.hold_back(planned)
    if not trials and not config.minutes:
        raise SpecError("nothing to run: no case is applicable under the settings asked for; loosen --settings")
    run = _new_run(told, seed)
    writer = RunWriter.create(told.out, run)
    write_plan(told.out, trials, costs)
    return _Work(run, writer, costs, stopwatch, trials, held, {})


def _resumed(told: _Told) -> _Work:
    """Take up a run where it was left; SpecError if its builds were others."""
    out = told.out
    writer, loaded = RunWriter.resume(out)
    run, trials, costs = loaded.run, load_plan(out), load_costs(out)
    if [build.id for build in run.builds] != [build.id for build in told.builds]:
        writer.close()
        raise SpecError(f"{out}: was begun on other builds ({_labels(run.builds)}); choose another --out")
    _, held = told.failed_before.hold_back(plan_trials(told.config, told.builds, told.before, run.seed, costs))
    held = [trial for trial in held if trial.id not in {planned.id for planned in trials}]
    verdicts = {verdict.trial: verdict for verdict in loaded.verdicts if verdict.kind != "no-data"}
    told.console.print(f"resuming {out}: {len(verdicts)} of {len(trials)} trials are there already", highlight=False)
    return _Work(run, writer, costs, Stopwatch(), trials, held, verdicts)


def _run_trials(told: _Told, work: _Work, harnesses: Mapping[Framework, Harness], ends: float | None) -> None:
    """Run what is planned, then what nothing stands for any more, and new cases until the time `ends`."""
    config = told.config
    total = None if ends else len(work.trials) - len(work.verdicts)
    with Progress(told.console, total, 60 * config.minutes if config.minutes else None) as progress:
        rounds = Rounds(harnesses, config.workers, work.writer, progress, told.failed_before, work.verdicts)
        while True:
            rounds.run(work.trials)
            more = told.failed_before.released(work.held, rounds.verdicts)
            work.held = [trial for trial in work.held if trial not in more]
            if ends and time.monotonic() < ends:
                with work.stopwatch.measure(GENERATE):
                    more += more_trials(
                        config, told.builds, told.before, work.trials, rounds.verdicts, work.run.seed, work.costs
                    )
            if not more:
                break
            work.trials = [*work.trials, *more]
            progress.grow(len(more))
            write_plan(told.out, work.trials, work.costs)
        rounds.close()
    work.verdicts = rounds.verdicts


def _look(told: _Told, work: _Work, harnesses: Mapping[Framework, Harness], beside: Sequence[Verdict]) -> list[Finding]:
    """Return the findings of a run, tried on the newest build and bisected; what was learnt on the way joins `work`."""
    log = teller(told.console)
    looked = _make_findings(told, work, harnesses, beside)
    work.trials = [*work.trials, *(judged.trial for judged in looked.added)]
    if looked.added:
        write_plan(told.out, work.trials, work.costs)
    earlier = {name: finding for finding in told.findings_before for name in finding.names}
    findings = recheck(looked.findings, told.builds, told.out, told.config, log)
    findings = bisect_new(findings, _builds_before(told.before), told.out, told.config, log, earlier)
    for verdict in (*(judged.verdict for judged in looked.added), *looked.changed.values()):
        work.writer.append(verdict)
        work.verdicts[verdict.trial] = verdict
    return findings


def _resolve_all(specs: Sequence[str], config: Config, console: Console) -> tuple[Build, ...]:
    builds = tuple(resolved(spec, config, teller(console)) for spec in specs)
    frameworks = [build.framework for build in builds]
    if len(set(frameworks)) != len(frameworks):
        raise SpecError("--build: one build a framework in one run; run twice and use `d3bot compare`, or --base")
    return builds


def _base(config: Config, before: Before | None, builds: Sequence[Build], console: Console) -> Build | None:
    """Return the build to compare with; for `previous` that of the previous run, whose environment is kept."""
    spec = config.base
    if spec == PREVIOUS:
        same = [build for build in _builds_before(before) if build.framework == builds[0].framework]
        if not same:
            console.print("--base previous: there is no previous run with a build of this library", markup=False)
            return None
        spec = spec_of(same[0])
    return _resolve_all((spec,), config, console)[0] if spec else None


def _builds_before(before: Before | None) -> tuple[Build, ...]:
    return before.loaded.run.builds if before else ()


def _odd(before: Before | None, build: Build) -> tuple[str, ...]:
    """Return what is odd about a build after that of the previous run: older code, or another environment class."""
    old = next((item for item in _builds_before(before) if item.name == build.name), None)
    if old is None:
        return ()
    changes = environment_changes(old.environment, build.environment)
    moved = (f"environment: differs from the previous run's ({'; '.join(changes)})"[:500],) if changes else ()
    return (*night_notes(old, build), *moved)


def _labels(builds: Sequence[Build]) -> str:
    return ", ".join(build.label for build in builds)


def _new_run(told: _Told, seed: int) -> Run:
    started = datetime.now(UTC)
    return Run(
        run=f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started=started.isoformat(timespec="seconds"),
        builds=told.builds,
        environment=told.builds[0].environment,
        seed=seed,
        config=told.config.model_dump(mode="json", exclude={"cache"}),
        previous=told.before.loaded.run.run if told.before else "",
        version=__version__,
    )


def _make_findings(
    told: _Told, work: _Work, harnesses: Mapping[Framework, Harness], beside: Sequence[Verdict]
) -> Looked:
    """Return what came of the failures of a run: every build's are looked into for `finding_seconds`."""
    config, base = told.config, told.base
    by_id = {trial.id: trial for trial in work.trials}
    cases = {trial.case.id: trial.case for trial in work.trials}
    other = told.verdicts_before if told.before else beside
    passed = {verdict.trial for verdict in other if verdict.kind == "pass"}
    there = {verdict.trial: verdict for verdict in beside}
    everything = Looked()
    for framework, harness in harnesses.items():
        mine = [verdict for verdict in work.ordered if verdict.framework == framework]
        own = [each for each in mine if each.trial not in there or not fails_alike(there[each.trial], each)]
        groups = [group for group in group_failing(own, cases, passed) if not group.catch_all]
        of_same = base if base is not None and base.framework == framework else None
        looked = look_into(
            harness,
            groups,
            by_id,
            Context(told.out, work.run.run, config.confirmations, of_same, mine, config.shrink_seconds),
            [finding for finding in told.findings_before if finding.case.framework == framework],
            config.workers,
            config.finding_seconds,
            teller(told.console),
        )
        everything.findings += looked.findings
        everything.changed |= looked.changed
        everything.added += looked.added
    everything.findings.sort(key=lambda finding: finding.key)
    return everything


def _finish(told: _Told, work: _Work, findings: Sequence[Finding], seconds: float) -> Night:
    """Write all that a finished run leaves; `seconds` come on top of those before it was resumed."""
    out, verdicts = told.out, work.ordered
    folder = told.before.folder if told.before else None
    blank = sum(verdict.kind == "no-data" for verdict in verdicts)
    covered = record_coverage(out, folder, work.trials, verdicts)
    final = work.run.model_copy(
        update={
            "timings": work.stopwatch.seconds,
            "seconds": round(work.run.seconds + seconds, 1),
            "complete": len(verdicts) == len(work.trials) and blank <= MAX_NO_DATA * len(work.trials),
            "pairs": covered.pairs,
            "triples": covered.triples,
            **totals(verdicts),
        }
    )
    names = other_names([*told.findings_before, *findings])
    changes = known_again(compare(told.verdicts_before, verdicts, names), names)
    write_changes(out, final.previous, changes)
    write_pages(
        out, final, work.trials, verdicts, changes, findings, told.findings_before, folder, told.config.templates
    )
    work.writer.finish(final)
    return Night(final, tuple(verdicts), tuple(changes), tuple(findings), out)
