"""Filing a finished run folder, read as hostile data, into a tracker."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from d3bot.findings.issue import Issue, marker, render_issue
from d3bot.findings.key import is_catch_all, is_key
from d3bot.findings.lifecycle import Decision, Record, decide, new_record, seen_again, summary_key
from d3bot.findings.markdown import code, line, plain, title_text
from d3bot.findings.title import MAX_TITLE
from d3bot.history.files import dump_json, write_atomic
from d3bot.history.finding_folder import FindingFolder, list_findings, read_finding
from d3bot.history.folder import load_run
from d3bot.spec import SCHEMA, Framework, Run, SpecError
from d3bot.tracker.base import Tracker

DECISIONS = "decisions.json"


def plain_issue(folder: FindingFolder) -> Issue:
    """Render the issue of a finding anew: its own issue.md was written by the half that runs untrusted code."""
    return render_issue(folder.finding, folder.script, folder.output_bad, folder.output_good)


def file_run(
    run_dir: Path,
    tracker: Tracker,
    now: datetime,
    file_all: bool = False,
    known: Mapping[str, str] | None = None,
    render: Callable[[FindingFolder], Issue] = plain_issue,
) -> list[Decision]:
    """File the findings of a run and return what was decided about each; decisions.json in the run folder says it too.

    `known` maps keys to upstream issues.  The first run on a library (no record, no previous run) gives one record that
    lists its findings, unless `file_all`.  SpecError, with nothing filed, if the run or the tracker cannot be read.
    """
    run = load_run(run_dir).run
    folders = [_read(path, run) for path in list_findings(run_dir)]
    decisions: list[Decision] = []
    with tracker.locked():
        records = dict(tracker.records())
        for framework in sorted({build.framework for build in run.builds}):
            of_framework = [folder for folder in folders if folder.finding.build.framework == framework]
            decisions += _file(run, framework, of_framework, tracker, records, now, file_all, known or {}, render)
    write_atomic(run_dir / DECISIONS, _dump(run, now, decisions))
    return decisions


def _file(
    run: Run,
    framework: Framework,
    folders: Sequence[FindingFolder],
    tracker: Tracker,
    records: Mapping[str, Record],
    now: datetime,
    file_all: bool,
    known: Mapping[str, str],
    render: Callable[[FindingFolder], Issue],
) -> list[Decision]:
    if not run.complete:
        why = "the run is incomplete or has trials without data: finish it with --resume, or run again"
        return [Decision(key=folder.finding.key, action="delay", reason=why) for folder in folders]
    summary = summary_key(framework)
    first_run = not run.previous and not any(key.startswith(f"{framework}-") for key in records)
    if first_run and not file_all:
        return _file_summary(run, summary, folders, tracker, now, known)
    listing = records.get(summary)
    listed = listing.covers if listing and listing.state == "open" and not file_all else ()
    decisions = []
    for folder in folders:
        finding = folder.finding
        record = records.get(finding.key)
        where = summary if finding.key in listed else ""
        decision = decide(record, finding, now, run.run, _started(run), known.get(finding.key, ""), where)
        if decision.action == "file":
            issue = render(folder)
            tracker.create(new_record(finding, now, run.run).model_copy(update={"title": issue.title}), issue.body)
        elif decision.action in ("update", "reopen") and record:
            tracker.update(seen_again(record, finding, now, run.run))
        decisions.append(decision)
    return decisions


def _file_summary(
    run: Run,
    key: str,
    folders: Sequence[FindingFolder],
    tracker: Tracker,
    now: datetime,
    known: Mapping[str, str],
) -> list[Decision]:
    """Write one record that lists the findings of a first run, in place of a flood that nobody could have prevented."""
    decisions = [
        decide(None, folder.finding, now, run.run, upstream=known.get(folder.finding.key, ""), listed_in=key)
        for folder in folders
    ]
    covers = tuple(
        folder.finding.key
        for folder in folders
        if folder.finding.verified and not is_catch_all(folder.finding.key) and folder.finding.key not in known
    )
    if not covers:
        return decisions
    title = title_text(f"First run on {run.builds[0].label}: {len(covers)} findings", MAX_TITLE)
    record = Record(
        key=key,
        title=title,
        first_seen=now,
        last_seen=now,
        seen_runs=(run.run,),
        history=(f"{now:%Y-%m-%d %H:%M} filed for run {run.run}",),
        covers=covers,
    )
    tracker.create(record, _summary_body(run, key, folders, decisions))
    reason = f"first run on a library: one record lists {len(covers)} findings; `d3bot file --all` files each"
    return [Decision(key=key, action="file", reason=reason), *decisions]


def _summary_body(run: Run, key: str, folders: Sequence[FindingFolder], decisions: Sequence[Decision]) -> str:
    builds = ", ".join(plain(build.label) for build in run.builds)
    rows = [
        f"| {code(folder.finding.key)} | {plain(folder.finding.title, MAX_TITLE)} | {plain(decision.reason, 200)} |"
        for folder, decision in zip(folders, decisions, strict=True)
    ]
    return "\n".join(
        [
            marker(key),
            f"The first run on {builds} has nothing to be compared with, so its findings are listed here at once.",
            f"Each is complete in `findings/` of run {code(run.run)}; `d3bot file --all` files each by itself.",
            "While this record is open, what it lists is not filed again.",
            "",
            "| key | finding | |",
            "|---|---|---|",
            *rows,
        ]
    )


def _read(path: Path, run: Run) -> FindingFolder:
    folder = read_finding(path)
    key, framework = folder.finding.key, folder.finding.build.framework
    if not is_key(key) or not key.startswith(f"{framework}-") or key == summary_key(framework):
        raise SpecError(f"{path}: the folder's name is not a key that d3bot makes; run again")
    if framework not in {build.framework for build in run.builds}:
        raise SpecError(f"{path}: is of {framework}, of which the run has no build; run again")
    return folder


def _started(run: Run) -> datetime:
    try:
        started = datetime.fromisoformat(run.started)
    except ValueError as error:
        raise SpecError(f"run {line(run.run)}: started {line(run.started)!r} is no ISO date; run again") from error
    return started if started.tzinfo else started.replace(tzinfo=UTC)


def _dump(run: Run, now: datetime, decisions: Sequence[Decision]) -> str:
    rows = [decision.model_dump() | {"reason": line(decision.reason)} for decision in decisions]
    data = {"schema": SCHEMA, "run": run.run, "decided": now.isoformat(timespec="seconds"), "decisions": rows}
    return dump_json(data, indent=1) + "\n"
