"""The commands behind the action and the workflows: parse, call, print.  Each also works at a terminal."""

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from d3bot import __version__
from d3bot.builds.spec import first_of
from d3bot.cli_options import ConfigFile, JsonFlag, QuietFlag, Seed, SeedsFolder, SettingGlobs, Workers
from d3bot.config import TrackerConfig, default_workers, load_config
from d3bot.doctor import preflight
from d3bot.findings.lifecycle import Decision
from d3bot.findings.markdown import code, line, plain
from d3bot.flow.check import load_changed, run_check
from d3bot.flow.evidence import find_known, retest
from d3bot.flow.finding import issue_of
from d3bot.flow.known import load_known
from d3bot.flow.merge import merge_runs
from d3bot.flow.night import Night
from d3bot.flow.outcome import EXIT_CODES, outcome, verdict_of
from d3bot.flow.resolved import resolved
from d3bot.github.actions import group, notes, quiet_commands, write_outputs, write_summary
from d3bot.github.artifacts import fetch_latest, fetch_of_run, heartbeat
from d3bot.github.checks import Annotation, Conclusion, post_check
from d3bot.github.client import Client
from d3bot.github.commands import handle
from d3bot.github.place import Place, checked_repo, place_of, tracker_repo
from d3bot.github.pulls import approved, load_event, pull_of
from d3bot.github.sarif import sarif
from d3bot.github.sticky import Posted, post_sticky
from d3bot.github.tracker import GitHubTracker, Naming
from d3bot.history.check import Check, load_check
from d3bot.history.evidence import write_evidence
from d3bot.history.finding_folder import list_findings, read_finding
from d3bot.history.folder import RunWriter
from d3bot.history.run_files import check_folder
from d3bot.report.check import check_markdown, title_of_check
from d3bot.report.facts import headline
from d3bot.report.terminal import print_summary, teller
from d3bot.spec import Run, SpecError
from d3bot.templates import data_folder
from d3bot.tracker.base import Tracker
from d3bot.tracker.filing import RETESTED, file_failure, file_run
from d3bot.tracker.folder import FolderTracker

console = Console(highlight=False)

Out = Annotated[Path, typer.Option("--out", help="Folder to write; it must not be there yet.")]


def add_commands(app: typer.Typer) -> None:
    """Put the commands of this module into the command line."""
    for name, command in (
        ("plan", plan),
        ("merge", merge),
        ("check", check),
        ("file", file_command),
        ("post", post),
        ("command", command_command),
        ("fetch", fetch),
        ("approved", approved_command),
        ("retest", retest_command),
    ):
        app.command(name)(command)


def plan(
    shards: Annotated[int, typer.Option("--shards", min=1, max=256, help="Jobs to spread a run over.")],
    seed: Seed = None,
) -> None:
    """Print the matrix of a run as JSON: every shard with the seed that they share; also as the outputs of the step."""
    shared = seed if seed is not None else secrets.randbelow(2**31)
    include = [
        {"shard": f"{index}/{shards}", "name": f"shard-{index}-of-{shards}", "seed": shared}
        for index in range(1, shards + 1)
    ]
    text = json.dumps({"include": include})
    print(text)
    write_outputs(place_of(os.environ).output, {"matrix": text, "seed": str(shared), "shards": str(shards)})


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of the shards.")],
    out: Out,
    shards: Annotated[int | None, typer.Option(help="How many there must be (default: what they say).")] = None,
    previous: Annotated[Path | None, typer.Option(help="Run folder to compare with.")] = None,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Merge shards into one run; exit 3 if one is missing or incomplete, and keep what there is."""
    merged = merge_runs(runs, out, previous, shards, load_config(config).templates)
    for text in merged.missing:
        print(f"d3bot: {line(text)}", file=sys.stderr)
    known = load_known(data_folder("seeds"))
    tell_night(merged.night, known, Console(stderr=as_json, highlight=False, quiet=quiet), as_json)
    raise typer.Exit(EXIT_CODES[verdict_of(merged.night, known)])


def check(
    base: Annotated[str, typer.Option("--base", metavar="SPEC", help="Build of the merge base.")],
    head: Annotated[str, typer.Option("--head", metavar="SPEC", help="Build of the pull request.")],
    out: Out = Path("check"),
    baseline: Annotated[str, typer.Option(help="What the base is, for the report: the merge base's commit.")] = "",
    changed: Annotated[
        Path | None,
        typer.Option(
            help="File that lists what changed in the library, a path a line: what it touches gets more cases."
        ),
    ] = None,
    seeds: SeedsFolder = None,
    fresh: Annotated[int | None, typer.Option(help="Fresh generated cases.")] = None,
    settings: SettingGlobs = None,
    seed: Seed = None,
    workers: Workers = None,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run the same trials on both builds; exit 1 only if the head is worse, 3 if that cannot be said."""
    given = {"seeds": seeds, "fresh": fresh, "settings": settings or None, "seed": seed}
    given["workers"] = workers or default_workers()
    loaded = load_config(config, cli=given)
    if "seeds" not in loaded.model_fields_set and not Path("seeds").is_dir():
        loaded = loaded.model_copy(update={"seeds": data_folder("seeds")})
    files = load_changed(changed) if changed else []
    preflight(loaded.cache, out)
    place = place_of(os.environ)
    progress = Console(stderr=as_json, highlight=False, quiet=quiet)
    try:
        with group(sys.stderr if as_json else sys.stdout, "d3bot check", place.run_id > 0 and not quiet):
            result = run_check(loaded, base, head, out, progress, baseline, files)
    except KeyboardInterrupt:
        print(
            f"\nd3bot: stopped; what is done is in {out}, and a check begins anew with another --out", file=sys.stderr
        )
        raise typer.Exit(3) from None
    if as_json:
        print(json.dumps(result.model_dump(mode="json", by_alias=True), indent=1))
    else:
        console.print(line(f"{title_of_check(result)}: {result.reason}"), markup=False, soft_wrap=True)
    write_summary(place.summary, check_markdown(result, loaded.templates))
    write_outputs(place.output, {"verdict": result.outcome, "new": str(len(result.worse)), "run-dir": str(out)})
    _print_notes([(row.title or row.key, row.setting) for row in result.worse], place, as_json)
    raise typer.Exit(3 if result.outcome == "no-data" else 1 if result.is_worse else 0)


def file_command(
    run_folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="Folder of a finished run.")] = None,
    tracker: Annotated[str, typer.Option(help="github, or folder, or the folder itself.")] = "folder",
    file_all: Annotated[bool, typer.Option("--all", help="File each finding by itself, budgets or not.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    failed: Annotated[str, typer.Option(help="No run came of the night: why, for the infrastructure issue.")] = "",
    workflow: Annotated[str, typer.Option(help="Workflow file whose last success is told.")] = "",
    branch: Annotated[str, typer.Option(help="Its branch.")] = "main",
    config: ConfigFile = None,
    as_json: JsonFlag = False,
) -> None:
    """File the findings of a run, read as hostile data, into GitHub issues or a folder of Markdown files.

    Exit 1 if a budget kept findings back, 3 if the build is bad, the run gave no data or the tracker failed.
    """
    loaded = load_config(config)
    place = place_of(os.environ)
    if (run_folder is None) == (not failed):
        raise SpecError("d3bot file: give either the folder of a run or --failed REASON")
    _refuse_pull_request(place, tracker)
    if run_folder is not None and tracker == "github":
        check_folder(run_folder)
    chosen, client = _tracker(tracker, loaded.tracker, place, loaded.templates, run_folder, dry_run)
    policy = loaded.tracker.policy()
    now = datetime.now(UTC)
    if run_folder is None:
        decisions = file_failure(chosen, now, failed, policy, loaded.templates)
    else:
        known = load_known(data_folder("seeds"))
        render = partial(issue_of, templates=loaded.templates)
        decisions = file_run(run_folder, chosen, now, file_all, known, render, policy, loaded.templates)
    if as_json:
        rows = [{"action": each.action, "key": each.key, "reason": each.reason} for each in decisions]
        print(json.dumps(rows, indent=1))
    else:
        with quiet_commands(sys.stdout, place.run_id > 0):
            for each in decisions:
                console.print(line(f"{each.action} {each.key}: {each.reason}"), markup=False, soft_wrap=True)
    beat = heartbeat(client, workflow, branch, now) if client and workflow else ""
    write_summary(place.summary, _decisions_markdown(decisions, beat))
    counts = Counter(each.action for each in decisions)
    write_outputs(
        place.output, {"filed": str(counts["file"]), "closed": str(counts["close"]), "decisions": str(len(decisions))}
    )
    if counts["panic"] or counts["failed"] or failed:
        raise typer.Exit(3)
    raise typer.Exit(1 if any("budget" in each.reason for each in decisions if each.action == "delay") else 0)


def post(
    folder: Annotated[Path, typer.Argument(metavar="CHECK", help="Folder that `d3bot check --out` wrote.")],
    event: Annotated[
        Path | None, typer.Option(help="Payload of the workflow_run event (default: Actions' own).")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the check run.")] = "d3bot",
    sarif_out: Annotated[Path | None, typer.Option("--sarif", help="Also write the findings as SARIF.")] = None,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Report a check, read as hostile data, to its pull request: one sticky comment and a check run.

    What GitHub refuses stands in the step summary instead.  Exit 0 once it is told, whatever the check says.
    """
    loaded = load_config(config)
    place = place_of(os.environ)
    check_folder(folder)
    result = load_check(folder)
    client = Client(place, _own_repo(place), log=_log)
    pull = pull_of(client, load_event(event or place.event_path), result.pull)
    here = Client(replace(place, sha=pull.sha), client.repo_name, log=_log, max_requests=60)
    text = check_markdown(result, loaded.templates, place.run_url)
    write_summary(place.summary, text)
    findings = (
        [read_finding(path).finding for path in list_findings(folder / "head")] if (folder / "head").is_dir() else []
    )
    if sarif_out:
        worse = {row.key for row in result.worse}
        sarif_out.write_text(sarif([finding for finding in findings if finding.key in worse]))
    annotations = [
        Annotation(f"findings/{row.key}/repro.py", row.setting or row.key, row.title) for row in result.worse
    ]
    told = {
        "check run": post_check(here, pull.sha, name, _conclusion(result), title_of_check(result), text, annotations),
        "comment": post_sticky(here, pull.number, text, loaded.tracker.login),
    }
    for what, posted in told.items():
        _log(f"{what}: {posted.what}{': ' + posted.reason if posted.reason else ''}")
    write_summary(place.summary, _refusals(told))
    _outputs(place, {"pull": str(pull.number), "verdict": result.outcome}, as_json)


def command_command(
    event: Annotated[
        Path | None, typer.Argument(metavar="EVENT.json", help="Payload of the issue_comment event.")
    ] = None,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Carry out the `/d3bot ...` commands of a comment and answer them; a request for a job becomes outputs."""
    loaded = load_config(config)
    place = place_of(os.environ)
    payload = load_event(event or place.event_path)
    client = Client(place, _own_repo(place), log=_log)
    tracker = GitHubTracker(client, _naming(loaded.tracker), f"comment-{place.run_id}", loaded.templates)
    handled = handle(client, tracker, payload, loaded.tracker.login, loaded.templates)
    _log(handled.what)
    _outputs(place, {"action": "", "issue": "", "key": "", "from": "", "to": "", **handled.request}, as_json)


def fetch(
    out: Out,
    run_id: Annotated[int | None, typer.Option("--run-id", help="Workflow run whose artifact is wanted.")] = None,
    workflow: Annotated[str, typer.Option(help="Else: workflow file whose newest success is wanted.")] = "",
    branch: Annotated[str, typer.Option(help="Its branch.")] = "main",
    name: Annotated[str, typer.Option(help="Name of the artifact.")] = "d3bot-run",
    required: Annotated[bool, typer.Option("--required", help="Exit 3 if there is none.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Download a run folder from an artifact and unpack it as hostile data; "there is none" is an answer."""
    place = place_of(os.environ)
    if (run_id is None) == (not workflow):
        raise SpecError("d3bot fetch: give either --run-id or --workflow")
    client = Client(place, _own_repo(place), log=_log)
    fetched = (
        fetch_of_run(client, run_id, name, out)
        if run_id is not None
        else fetch_latest(client, workflow, branch, name, out)
    )
    _log(f"{'fetched' if fetched.folder else 'nothing to fetch'}: {fetched.reason}")
    _outputs(place, {"found": "true" if fetched.folder else "false", "run-dir": str(fetched.folder or "")}, as_json)
    if fetched.folder is None and required:
        raise typer.Exit(3)


def approved_command(
    event: Annotated[
        Path | None, typer.Argument(metavar="EVENT.json", help="Payload of the pull request event.")
    ] = None,
    label: Annotated[str, typer.Option(help="The label that lets a commit run.")] = "d3bot: run",
    as_json: JsonFlag = False,
) -> None:
    """Say whether a maintainer's label lets this very commit of a fork run on our runners; exit 1 if not."""
    place = place_of(os.environ)
    payload = load_event(event or place.event_path)
    ok, reason = approved(Client(place, _own_repo(place), log=_log), payload, label)
    _log(reason)
    sha = str(((payload.get("pull_request") or {}).get("head") or {}).get("sha", "")) if ok else ""
    _outputs(place, {"approved": "true" if ok else "false", "sha": sha}, as_json)
    raise typer.Exit(0 if ok else 1)


def retest_command(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder that holds the finding.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the finding.")],
    out: Out,
    build: Annotated[
        list[str] | None,
        typer.Option("--build", "-b", metavar="SPEC", help="Builds; the first of the finding's framework runs it."),
    ] = None,
    times: Annotated[int, typer.Option(help="Fresh processes.", min=1, max=20)] = 3,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run the script of a finding on a build; leave a run folder that `d3bot file` acts on by the usual rules."""
    folder = find_known(run_folder, key)
    loaded = load_config(config, cli={"builds": build or None})
    framework = folder.finding.build.framework
    progress = teller(Console(stderr=True, highlight=False, quiet=quiet))
    found = resolved(first_of(loaded.builds, framework), loaded, progress, framework)
    if found.framework != framework:
        raise SpecError(f"--build {found.spec}: is {found.framework}, the finding is of {framework}")
    started = datetime.now(UTC)
    run = Run(
        run=f"{started:%Y%m%dT%H%M%SZ}-retest-{secrets.token_hex(3)}",
        started=started.isoformat(timespec="seconds"),
        builds=(found,),
        environment=found.environment,
        seed=0,
        previous=RETESTED,
        version=__version__,
    )
    writer = RunWriter.create(out, run)
    with writer:
        item = retest(folder, found, times)
        write_evidence(out, [item])
        writer.finish(run.model_copy(update={"complete": True}))
    if as_json:
        print(json.dumps(item.model_dump(mode="json", by_alias=True), indent=1))
    _log(f"{item.passed} of {item.runs} passed on {found.label}{': ' + item.outcome if item.outcome else ''}")
    raise typer.Exit(0 if item.passed == item.runs else 1)


def tell_night(night: Night, known: Collection[str], console: Console, as_json: bool = False) -> None:
    """Print the result of a run; in a step of Actions also write its outputs, summary and annotations.

    A quiet console prints the headline and where the report is.
    """
    place = place_of(os.environ)
    new = night.new_and_confirmed(known)
    write_outputs(
        place.output, {"verdict": verdict_of(night, known), "new": str(len(new)), "run-dir": str(night.folder)}
    )
    if place.summary:
        write_summary(place.summary, (night.folder / "summary.md").read_text())
    print_summary(console, night.run, night.verdicts, night.changes, night.findings)
    _print_notes([(finding.title, str(finding.setting)) for finding in new], place, as_json)
    if as_json:
        print(json.dumps(outcome(night, known), indent=1))
        return
    if console.quiet:
        print(line(headline(night.run, night.verdicts, night.changes, night.findings).text))
    print(f"report: {night.folder / 'report.html'}")


def in_actions() -> bool:
    """Return whether this is a step of GitHub Actions."""
    return place_of(os.environ).run_id > 0


def _print_notes(texts: Sequence[tuple[str, str]], place: Place, as_json: bool) -> None:
    if place.run_id:
        for row in notes("error", texts):
            print(row, file=sys.stderr if as_json else sys.stdout)


def _tracker(
    wanted: str, config: TrackerConfig, place: Place, templates: Path | None, run_folder: Path | None, dry_run: bool
) -> tuple[Tracker, Client | None]:
    if wanted != "github":
        folder = (config.folder or Path("issues")) if wanted == "folder" else Path(wanted)
        if dry_run:
            raise SpecError("--dry-run: a folder tracker shows what it did; give it another folder instead")
        return FolderTracker(folder), None
    repo = tracker_repo(config.repo, config.allow, place)
    client = Client(place, repo, max_requests=config.requests, log=_log)
    name = run_folder.name if run_folder else "failed"
    tracker = GitHubTracker(client, _naming(config), name, templates)
    return (_Dry(tracker) if dry_run else tracker), client


class _Dry:
    """A tracker that is read and not written: every decision is made and none is carried out."""

    def __init__(self, tracker: GitHubTracker) -> None:
        self._tracker = tracker
        self.records = tracker.peek
        self.touched = tracker.touched

    def locked(self) -> Any:
        return open(os.devnull)

    def create(self, record: Any, body: str) -> None:
        _log(f"would file {record.title}")

    def update(self, record: Any, note: str = "", body: str = "") -> None:
        _log(f"would edit #{record.number} ({record.state}){' and comment' if note else ''}")


def _naming(config: TrackerConfig) -> Naming:
    labels = config.labels
    return Naming(config.label, config.login, labels.framework, labels.family, labels.kind, config.owners)


def _own_repo(place: Place) -> str:
    if not place.repository:
        raise SpecError("GITHUB_REPOSITORY: not given; this command works in a workflow")
    return checked_repo(place.repository, "GITHUB_REPOSITORY")


def _refuse_pull_request(place: Place, tracker: str) -> None:
    """SpecError in a workflow of a pull request: what a proposed change breaks is told there, never as an issue."""
    if tracker != "github":
        return
    event = place.event_name
    if event == "workflow_run" and place.event_path and place.event_path.exists():
        event = str((load_event(place.event_path).get("workflow_run") or {}).get("event", ""))
    if event.startswith("pull_request"):
        raise SpecError("d3bot file: a run of a pull request never files issues; use `d3bot post`")


def _conclusion(result: Check) -> Conclusion:
    return "failure" if result.is_worse else "neutral" if result.outcome == "no-data" else "success"


def _refusals(told: dict[str, Posted]) -> str:
    rows = [
        f"The {what} could not be written ({plain(each.reason)}); the result stands above."
        for what, each in told.items()
        if each.what == "refused"
    ]
    return "\n\n".join(rows) if rows else ""


def _decisions_markdown(decisions: Sequence[Decision], beat: str) -> str:
    rows = "".join(f"| {each.action} | {code(each.key)} | {plain(each.reason)} |\n" for each in decisions)
    table = f"| decision | key | why |\n|---|---|---|\n{rows}" if rows else "Nothing to decide.\n"
    return f"### Filing\n\n{table}" + (f"\n{plain(beat)}\n" if beat else "")


def _outputs(place: Place, values: Mapping[str, str], as_json: bool) -> None:
    """Tell what came of a command to the step of Actions that it is, and to a machine that asks for it."""
    write_outputs(place.output, values)
    if as_json:
        print(json.dumps(values, indent=1))


def _log(text: str) -> None:
    print(f"d3bot: {line(text)}", file=sys.stderr)
