"""Bisect a finding or a seed over the builds that exist, by hand or at the end of a run."""

import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from d3bot import __version__
from d3bot.bisect import Memo, conclusion
from d3bot.builds import NoDataError
from d3bot.builds.candidates import newest_end, read_end, span
from d3bot.builds.index import Index
from d3bot.builds.spec import PINNED
from d3bot.builds.store import kept_environments, remove
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.bisector import Means, Question, Resolve, Script, Try, bisect
from d3bot.flow.confirm import script_attempt
from d3bot.flow.finding import issue_of, write_narrowest
from d3bot.flow.harness import Harness
from d3bot.flow.replay import load_trial
from d3bot.flow.resolved import resolved
from d3bot.frameworks import script_env
from d3bot.history.finding_folder import FINDINGS, FindingFolder, read_finding, write_finding
from d3bot.history.folder import RunWriter
from d3bot.spec import Bisection, Build, Finding, Framework, Run, SpecError, Trial, Verdict
from d3bot.spec.base import short_hash
from d3bot.tracker.filing import BISECTED

Ends = tuple[str | None, str | None]
"""The good and the bad end as a person wrote them."""


def bisect_new(
    findings: Sequence[Finding],
    before: Sequence[Build],
    run_dir: Path,
    config: Config,
    log: Callable[[str], None],
    earlier: Mapping[str, Finding] | None = None,
) -> list[Finding]:
    """Return the findings of a run, each that is a regression since the previous run's build with its bisection.

    A key that the previous run had already (`earlier`, by key) keeps what was found then: it did not come since.
    All together take at most `bisect_minutes`; what was answered is remembered, so that `d3bot bisect` goes on there.
    What cannot be bisected is told to `log` and stays as it is.
    """
    ends = time.monotonic() + 60 * config.bisect_minutes
    done = []
    for finding in findings:
        known = (earlier or {}).get(finding.key)
        if known is not None:
            kept = known.bisection
            done.append(record(read_finding(run_dir / FINDINGS / finding.key), kept) if kept else finding)
            continue
        old = next((build for build in before if build.name == finding.build.name), None)
        wanted = finding.verified and finding.regression != "pre-existing" and old is not None
        if not wanted or old is None or old.version == finding.build.version or time.monotonic() >= ends:
            done.append(finding)
            continue
        try:
            question = question_of(finding.build, finding.verdict, config.index, old.version, finding.build.version)
            folder = read_finding(run_dir / FINDINGS / finding.key)
            result = bisect_finding(folder, question, finding.build, config, log, ends - time.monotonic())
        except (NoDataError, SpecError) as error:
            log(f"{finding.key}: not bisected: {error}")
            done.append(finding)
            continue
        log(f"{finding.key}: {conclusion(result)}")
        done.append(record(folder, result))
    return done


def question_of(
    build: Build, failure: Verdict | None, index: Index, good: str | None = None, bad: str | None = None
) -> Question:
    """Return the question between two ends as a person wrote them.

    An end that is not given is the newest build there is.  Which end is the newer decides the direction: a good end
    before the bad one asks when it broke, after it when it was mended.  SpecError if neither is given or they do not
    belong together.
    """
    given = read_end(good or bad or "")
    good_end = read_end(good) if good else newest_end(build, given, index)
    bad_end = read_end(bad) if bad else newest_end(build, given, index)
    broke = good_end.order < bad_end.order
    ends = (good_end, bad_end) if broke else (bad_end, good_end)
    return Question(failure, span(build, *ends, index), "broke" if broke else "mended")


def bisect_source(
    source: Path,
    good: str | None,
    bad: str | None,
    setting: str | None,
    build_spec: str | None,
    config: Config,
    log: Callable[[str], None],
    out: Path | None = None,
) -> Bisection:
    """Bisect a finding folder, whose folder and issue then tell the result, or the one trial of a seed file.

    SpecError if neither end is given or the seed has more than one setting to try; NoDataError if the index or the
    build that everything starts from cannot be had.
    """
    if good is None and bad is None:
        raise SpecError("bisect needs an end: --bad VERSION where it fails, --good VERSION where it passes, or both")
    if source.is_dir():
        folder = read_finding(source)
        build = resolved(build_spec, config, log) if build_spec else folder.finding.build
        question = question_of(build, folder.finding.verdict, config.index, good, bad)
        result = bisect_finding(folder, question, build, config, log)
        record(folder, result)
        if out is not None:
            write_bisected(folder, result, out)
        return result
    if out is not None:
        raise SpecError(f"--out: {source} is no finding folder, so there is no record to tell its bisection to")
    trials = load_trial(source, setting)
    if len(trials) > 1:
        raise SpecError(f"{source}: has {len(trials)} settings; name one with --setting")
    framework = trials[0].case.framework
    build = resolved(build_spec or PINNED[framework], config, log, framework)
    if build.framework != framework:
        raise SpecError(f"--build {build_spec}: is {build.framework}, but this is a case of {framework}")
    return bisect_trial(trials[0], build, config, (good, bad), log)


def write_bisected(folder: FindingFolder, result: Bisection, out: Path) -> None:
    """Write a run folder that holds a finding with its bisection and nothing else, for `d3bot file` to tell it."""
    started = datetime.now(UTC)
    finding = folder.finding.model_copy(update={"bisection": result})
    run = Run(
        run=f"{started:%Y%m%dT%H%M%SZ}-bisect-{secrets.token_hex(3)}",
        started=started.isoformat(timespec="seconds"),
        builds=(finding.build,),
        environment=finding.build.environment,
        seed=0,
        previous=BISECTED,
        version=__version__,
    )
    with RunWriter.create(out, run) as writer:
        write_finding(out, finding, folder.script, folder.output_bad, folder.output_good, folder.issue_md)
        writer.finish(run.model_copy(update={"complete": True}))


def record(folder: FindingFolder, result: Bisection) -> Finding:
    """Write a bisection into its finding's folder and issue; return the finding that holds it."""
    finding = folder.finding.model_copy(update={"bisection": result})
    issue = issue_of(replace(folder, finding=finding))
    body = f"# {issue.title}\n\n{issue.body}"
    write_finding(folder.path.parent.parent, finding, folder.script, folder.output_bad, folder.output_good, body)
    return finding


def bisect_finding(
    folder: FindingFolder,
    question: Question,
    build: Build,
    config: Config,
    log: Callable[[str], None],
    seconds: float = float("inf"),
) -> Bisection:
    """Bisect a finding with its own script as the check of both ends, going on where an earlier try stopped."""
    finding = folder.finding
    trial = Trial(case=finding.case, setting=finding.setting)
    means = Means(
        resolve=resolver(config, log, build.framework),
        try_on=tries(trial, config.confirmations),
        memo=Memo(memo_path(config.cache, trial.id, finding.key, config.confirmations, build.environment)),
        script=scripts(folder.path / "repro.py"),
        discard=discarder(config.cache),
        log=log,
        seconds=seconds,
    )
    return bisect(question, means)


def bisect_trial(trial: Trial, build: Build, config: Config, ends: Ends, log: Callable[[str], None]) -> Bisection:
    """Bisect a trial that is no finding, such as a seed: its failure at the bad end gives the key and the script."""
    resolve_ = resolver(config, log, build.framework)
    question = question_of(build, None, config.index, *ends)
    with tempfile.TemporaryDirectory(prefix="d3bot-bisect-") as folder:
        script = Path(folder) / "repro.py"
        failing = None
        if question.bad_end.spec:
            failing = _failing(trial, resolve_(question.bad_end.spec), script)
        key = failing.key if failing else ""
        means = Means(
            resolve=resolve_,
            try_on=tries(trial, config.confirmations),
            memo=Memo(memo_path(config.cache, trial.id, key, config.confirmations, build.environment)),
            script=scripts(script) if failing else None,
            discard=discarder(config.cache),
            log=log,
        )
        return bisect(replace(question, failure=failing), means)


def _failing(trial: Trial, build: Build, script: Path) -> Verdict | None:
    """Return the trial's verdict on a build if it fails or is refused there, and write its script."""
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-bisect-") as folder,
        Pool(build, script_env(build.framework), 1) as pool,
    ):
        harness = Harness(pool, Path(folder), Pace())
        judged = harness.run(trial, fresh=True)
        if not judged.verdict.key:
            return None
        write_narrowest(harness, judged, script)
        return judged.verdict


def tries(trial: Trial, times: int) -> Try:
    """Return what runs a trial on a build `times` times, each time with a fresh reference in fresh processes."""

    def run(build: Build) -> Sequence[Verdict]:
        with (
            tempfile.TemporaryDirectory(prefix="d3bot-bisect-") as folder,
            Pool(build, script_env(build.framework), 1) as pool,
        ):
            harness = Harness(pool, Path(folder), Pace())
            verdicts: list[Verdict] = []
            for _ in range(times):
                verdicts.append(harness.run(trial, fresh=True).verdict)
                if verdicts[-1].kind == "no-data":
                    break
            return verdicts

    return run


def scripts(script: Path) -> Script:
    """Return what runs a finding's script on a build."""
    return lambda build, verdict: script_attempt(build, script, verdict)[0]


def resolver(config: Config, log: Callable[[str], None], framework: Framework) -> Resolve:
    """Return what installs a build from the configured indexes into the cache."""
    return lambda spec: resolved(spec, config, log, framework)


def discarder(cache: Path) -> Callable[[Build], None]:
    """Return what removes the environment of a build, unless it was in the cache before."""
    before = {item.home for item in kept_environments(cache)}

    def discard(build: Build) -> None:
        home = Path(build.python).parent.parent
        if home.parent == cache / "envs" and home not in before:
            remove(home)

    return discard


def memo_path(cache: Path, trial: str, key: str, times: int, environment: dict[str, str]) -> Path:
    """Return the file of a bisection's answers: the same trial, key, tries and environment class go on with it."""
    facts = f"{trial} {key} {times} {sorted(environment.items())}"
    return cache / "bisect" / f"{short_hash(facts)}.json"
