"""The command line: parse, call, print.  One function a command."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3bot import __version__
from d3bot.bench.d3 import bench_d3
from d3bot.bench.findings import bench_findings, told
from d3bot.bench.noise import bench_noise
from d3bot.bench.recall import bench_recall
from d3bot.bench.speed import bench_speed, table_rows
from d3bot.bisect import describe
from d3bot.builds import NoDataError
from d3bot.builds.spec import PINNED
from d3bot.cli_github import add_commands, in_actions, tell_night
from d3bot.cli_options import (
    Builds,
    ConfigFile,
    JsonFlag,
    OneSetting,
    QuietFlag,
    Seed,
    SeedsFolder,
    SettingGlobs,
    Workers,
)
from d3bot.config import FILE, Config, default_workers, load_config
from d3bot.doctor import Check, diagnose, preflight
from d3bot.flow.bisect import bisect_source
from d3bot.flow.doc_pages import write_pages
from d3bot.flow.evidence import known_findings
from d3bot.flow.finding import issue_of
from d3bot.flow.known import load_known
from d3bot.flow.listing import LISTS, listing
from d3bot.flow.night import run_night
from d3bot.flow.outcome import EXIT_CODES, verdict_of
from d3bot.flow.pages import render_site
from d3bot.flow.plan_file import PLAN
from d3bot.flow.replay import as_script, load_trial, own_build, promote_finding, replay_trial, trace_trials
from d3bot.flow.resume import told_before
from d3bot.flow.shrinking import shrink_trial
from d3bot.github.actions import group
from d3bot.history.changes import NEWS, other_names
from d3bot.history.compared import compare_folders
from d3bot.history.run_files import check_folder
from d3bot.report.terminal import print_changes, print_rows, teller
from d3bot.report.trace import as_plain, print_trace
from d3bot.spec import SpecError
from d3bot.templates import data_folder
from d3bot.tracker.base import TrackerError
from d3bot.tracker.filing import file_run
from d3bot.tracker.folder import FolderTracker

app = typer.Typer(
    help="Differential testing of distributed training: the same model on the same input must come out equivalent, "
    "distributed or not.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="The project's own scoreboard.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench, name="bench")

out_console = Console(highlight=False)

# Some releases of typer build on click, others carry a click of their own; the base class of its errors tells which.
_WRONG_USE: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Differential testing of distributed training in PyTorch and TensorFlow."""
    if version:
        print(f"d3bot {__version__}")
        raise typer.Exit


@app.command()
def run(
    build: Builds = None,
    base: Annotated[
        str | None,
        typer.Option(help="Build on which a failing finding is tried as well; `previous`: that of the last run."),
    ] = None,
    seeds: SeedsFolder = None,
    fresh: Annotated[int | None, typer.Option(help="Fresh generated cases for each build (default 24).")] = None,
    minutes: Annotated[float | None, typer.Option(help="Generate fresh cases until so many minutes passed.")] = None,
    settings: SettingGlobs = None,
    shard: Annotated[str | None, typer.Option(help="Run part I of N: I/N.")] = None,
    previous: Annotated[str | None, typer.Option(help="Run folder to compare with, or latest.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of this run (default: runs/<time>).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    seed: Seed = None,
    workers: Workers = None,
    confirmations: Annotated[int | None, typer.Option(help="How often a failure must be seen again.")] = None,
    finding_seconds: Annotated[
        float | None, typer.Option(help="Time for the failures of each build (default 30).")
    ] = None,
    shrink_seconds: Annotated[float | None, typer.Option(help="Time for shrinking one of them (default 20).")] = None,
    tracker: Annotated[Path | None, typer.Option(help="Folder tracker to file into when the run is done.")] = None,
    config: ConfigFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plan, run, judge, compare, confirm, shrink and report: the whole job on one or more builds."""
    told: dict[str, Any] = {}
    if resume and out:
        told = told_before(out)
    loaded = _config(
        config,
        told,
        builds=build or None,
        base=base,
        seeds=seeds,
        fresh=fresh,
        minutes=minutes,
        settings=settings or None,
        shard=shard,
        previous=previous,
        seed=seed,
        workers=workers,
        confirmations=confirmations,
        finding_seconds=finding_seconds,
        shrink_seconds=shrink_seconds,
        tracker=tracker,
    )
    folder = out or loaded.out or Path("runs") / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    if resume and not folder.exists():
        raise SpecError(f"--resume: {folder} is not there; give the run folder with --out")
    preflight(loaded.cache, folder)
    known = load_known(loaded.seeds)
    console = Console(stderr=as_json, highlight=False, quiet=quiet)
    try:
        with group(sys.stderr if as_json else sys.stdout, "d3bot run", in_actions() and not quiet):
            night = run_night(loaded, folder, console, resume)
    except KeyboardInterrupt:
        begun = (folder / PLAN).exists()
        done = f"what is done is in {folder}. Go on with: d3bot run --resume --out {folder}"
        print(
            f"\nd3bot: stopped; {done if begun else 'nothing was run yet, give the same command again'}",
            file=sys.stderr,
        )
        raise typer.Exit(3) from None
    if loaded.tracker.folder:
        _file(folder, loaded.tracker.folder, False, known, console)
    tell_night(night, known, console, as_json)
    raise typer.Exit(EXIT_CODES[verdict_of(night, known)])


@app.command()
def replay(
    source: Annotated[Path, typer.Argument(metavar="SEED|FINDING|CASE", help="A seed file or a finding folder.")],
    setting: OneSetting = None,
    build: Annotated[
        str | None,
        typer.Option("--build", "-b", help="Build spec (default: a finding's own, else the pinned release)."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Name the first layer and collective after which ranks and reference part.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    config: ConfigFile = None,
) -> None:
    """Run one case again under its settings and print each verdict; exit 1 if one fails."""
    trials, loaded, log = load_trial(source, setting), load_config(config), _log(quiet)
    used = build or own_build(source)
    followed = trace_trials(trials, used, loaded, log) if trace else []
    verdicts = [item.verdict for item in followed] if trace else replay_trial(trials, used, loaded, log)
    if as_json:
        shown = [verdict.model_dump(mode="json", by_alias=True) for verdict in verdicts]
        for entry, item in zip(shown, followed, strict=False):
            entry["trace"] = as_plain(item.traced) | {"same": item.same} if item.traced else None
        print(json.dumps(shown, indent=1))
    else:
        for i, verdict in enumerate(verdicts):
            out_console.print(f"{verdict.setting}: {verdict.kind}: {verdict.reason}", markup=False, soft_wrap=True)
            if verdict.failing and verdict.detail:
                out_console.print(verdict.detail, markup=False, soft_wrap=True)
            if trace:
                print_trace(out_console, followed[i].traced, followed[i].same)
    raise typer.Exit(1 if any(verdict.failing for verdict in verdicts) else 0)


@app.command()
def bisect(
    source: Annotated[Path, typer.Argument(metavar="FINDING|SEED", help="A finding folder or a seed file.")],
    good: Annotated[
        str | None, typer.Option(help="A version or day that passes, or NAME==VERSION of a companion.")
    ] = None,
    bad: Annotated[str | None, typer.Option(help="One that fails; older than --good asks when it was mended.")] = None,
    setting: OneSetting = None,
    build: Annotated[
        str | None, typer.Option("--build", "-b", help="Build spec (default: that of the finding).")
    ] = None,
    times: Annotated[int | None, typer.Option(help="Tries of each build (default: confirmations).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write a run folder, from which `d3bot file` tells the issue.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    config: ConfigFile = None,
) -> None:
    """Find the first bad build, or the first good one, among those that exist.

    An end that is left out is the newest there is.  Exit code 3 if no answer could be had.
    """
    loaded = _config(config, confirmations=times)
    try:
        result = bisect_source(source, good, bad, setting, build, loaded, _log(quiet), out)
    except KeyboardInterrupt:
        print("\nd3bot: stopped; the answers so far are kept, and the same command goes on there", file=sys.stderr)
        raise typer.Exit(3) from None
    if as_json:
        print(json.dumps(result.model_dump(mode="json", by_alias=True), indent=1))
    else:
        for line in describe(result):
            out_console.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(3 if result.status in ("unknown", "out-of-time") else 0)


@app.command()
def script(
    source: Annotated[Path, typer.Argument(metavar="CASE", help="A seed file or a finding folder.")],
    setting: OneSetting = None,
) -> None:
    """Print the plain Python file that a trial is."""
    print(as_script(load_trial(source, setting)[0]), end="")


@app.command()
def shrink(
    source: Annotated[str, typer.Argument(metavar="RUN:TRIAL", help="A run folder and a trial's id, or CASE SETTING.")],
    out: Annotated[Path, typer.Option(help="Folder for case.toml and repro.py.")] = Path("smallest"),
    build: Annotated[str | None, typer.Option("--build", "-b", help="Build spec (default: that of the run).")] = None,
    seconds: Annotated[float, typer.Option(help="Time to take things away for.")] = 120.0,
    workers: Workers = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    config: ConfigFile = None,
) -> None:
    """Make a failing trial of a run smaller; what is interrupted leaves the smallest so far and goes on from there."""
    run_dir, _, trial = source.rpartition(":")
    if not run_dir or not trial:
        raise SpecError(f"shrink {source}: write RUN:TRIAL, a run folder and a trial of its verdicts.jsonl")
    count, loaded = workers or default_workers(), load_config(config)
    try:
        result = shrink_trial(Path(run_dir), trial, out, build or "", loaded, count, seconds, _log(quiet))
    except KeyboardInterrupt:
        _say(f"stopped; the smallest trial so far is in {out}. Give the same command to go on")
        raise typer.Exit(3) from None
    if as_json:
        print(json.dumps(asdict(result) | {"folder": str(result.folder)}, indent=1))
        return
    done = "nothing smaller fails" if result.finished else "the time is over"
    for text in (
        f"{result.setting}: {result.reason}",
        f"{result.tried} smaller trials tried, {done}; {result.key}",
        *(f"fails differently on the way, not taken: {key}" for key in result.others),
        f"{result.folder / 'case.toml'} {result.folder / 'repro.py'}",
    ):
        out_console.print(text, markup=False, soft_wrap=True)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="RUN")],
    after: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: JsonFlag = False,
) -> None:
    """Compare two run folders trial by trial; exit 1 if the second fails as the first did not."""
    names = other_names([folder.finding for run_dir in (before, after) for folder in known_findings(run_dir)])
    compared = compare_folders(before, after, names)
    if as_json:
        print(json.dumps([change.model_dump(mode="json") for change in compared.changes], indent=1))
    else:
        print_changes(out_console, compared.changes, compared.counts)
    raise typer.Exit(1 if any(compared.counts.get(name) for name in NEWS) else 0)


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("site"),
    as_json: JsonFlag = False,
) -> None:
    """Render the pages of a run anew from its data, read as hostile: index.html, the last nights, and report.html."""
    check_folder(run_folder)
    render_site(run_folder, out)
    _path(out / "index.html", as_json)


@app.command("docs")
def docs_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder docs/ of a checkout.")] = Path("docs"),
) -> None:
    """Write the reference pages: one a setting family, and every key of d3bot.toml."""
    for path in write_pages(folder):
        print(path)


@app.command("list")
def list_command(
    what: Annotated[str, typer.Argument(metavar="settings|layers|seeds|contracts", autocompletion=lambda: list(LISTS))],
    as_json: JsonFlag = False,
    seeds: SeedsFolder = None,
) -> None:
    """List what there is: settings, layers, seeds or contracts."""
    rows = listing(what, Path(seeds) if seeds else _own_seeds())
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print_rows(out_console, rows, LISTS[what])


@app.command()
def promote(
    finding: Annotated[Path, typer.Argument(metavar="FINDING", help="A finding folder.")],
    seeds: Annotated[Path, typer.Option(help="Folder of seeds to add to.")] = Path("seeds"),
    name: Annotated[str | None, typer.Option(help="Name of the seed (default: from the key).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a finding a seed, so that every run tries it."""
    _path(promote_finding(finding, seeds, name), as_json)


@app.command()
def doctor(as_json: JsonFlag = False, config: ConfigFile = None) -> None:
    """Say what this machine can and cannot test, and what to mend; exit 3 if something must be mended."""
    loaded = _config(config)
    told = json.dumps(loaded.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    file = config or Path(FILE)
    where = f"{file}, variables and this machine" if file.exists() else f"no {FILE}; variables and this machine"
    resolved = Check("configuration", True, f"{where} give {told}; the rest is default")
    checks = [*diagnose(loaded.cache, loaded.out or Path.cwd()), resolved]
    if as_json:
        rows = [{"name": c.name, "ok": c.ok, "detail": c.detail, "mend": c.mend} for c in checks]
        print(json.dumps(rows, indent=1))
    else:
        for check in checks:
            sign = {True: "ok  ", False: "FAIL", None: "note"}[check.ok]
            mend = f"  ({check.mend})" if check.mend and check.ok is not True else ""
            out_console.print(f"{sign} {check.name}: {check.detail}{mend}", markup=False, soft_wrap=True)
    raise typer.Exit(3 if any(check.ok is False for check in checks) else 0)


@bench.command("recall")
def recall(
    faults: Annotated[Path, typer.Option(help="Folder of faults, each with fault.patch and meta.json.")],
    build: Builds = None,
    seeds: SeedsFolder = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these fault ids.")] = None,
    cap: Annotated[float, typer.Option(help="Seconds for each fault and column.")] = 180.0,
    seed: Annotated[int, typer.Option(help="Seed of the fresh cases.")] = 0,
    workers: Workers = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plant each fault in a stock build and see whether, and how fast, it is found."""
    loaded = _config(None, builds=build or None, seeds=seeds, seed=seed, workers=workers)
    rows = bench_recall(loaded, faults, only or [], cap, _progress(quiet))
    if as_json:
        print(json.dumps({"faults": [row.as_json() for row in rows]}, indent=1))
        return
    _table(
        ("fault", "found", "seeds only", "fresh only", "seconds", "key", "diagnosis", "D3's rule"),
        [
            (
                *(row.id, row.verdict, row.shown("seeds"), row.shown("fresh"), f"{row.seconds:.0f}", row.key),
                *(row.diagnosis, "found" if row.d3 else "missed"),
            )
            for row in rows
        ],
    )
    found, d3 = sum(row.found for row in rows), sum(row.d3 for row in rows)
    out_console.print(f"{found} of {len(rows)} found; by D3's rule on the same observations {d3}", markup=False)


@bench.command("findings")
def findings(
    faults: Annotated[Path, typer.Option(help="Folder of faults, each with fault.patch and meta.json.")],
    build: Builds = None,
    seeds: SeedsFolder = None,
    settings: SettingGlobs = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these fault ids.")] = None,
    cap: Annotated[float, typer.Option(help="Seconds for the trials of each fault.")] = 60.0,
    keep: Annotated[Path | None, typer.Option(help="Folder for the findings.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fresh cases.")] = 0,
    workers: Workers = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Plant each fault in a stock build and see how many findings it makes, under which names, how long."""
    loaded = _config(None, builds=build or None, seeds=seeds, settings=settings or None, seed=seed, workers=workers)
    rows = bench_findings(loaded, faults, only or [], cap, keep, _progress(quiet))
    if as_json:
        print(json.dumps([row.as_json() for row in rows], indent=1))
    for text in told(rows):
        Console(stderr=as_json, highlight=False, quiet=as_json and quiet).print(text, markup=False, soft_wrap=True)


@bench.command("noise")
def noise(
    build: Builds = None,
    trials: Annotated[int, typer.Option(help="Trials a build.")] = 300,
    settings: SettingGlobs = None,
    seed: Seed = None,
    workers: Workers = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run fresh trials on a healthy build: every non-pass by key, and how close passes come to their bounds."""
    loaded = _config(None, builds=build or None, settings=settings or None, seed=seed, workers=workers)
    report = bench_noise(loaded, trials, _progress(quiet))
    print(json.dumps(report.as_json(), indent=1) if as_json else report.as_text())
    raise typer.Exit(1 if report.failing else 0)


@bench.command("speed")
def speed(
    build: Builds = None,
    trials: Annotated[int, typer.Option(help="Trials a build by the engine.")] = 120,
    scripts: Annotated[int, typer.Option(min=1, help="Trials of each family whose script is run by itself.")] = 2,
    settings: SettingGlobs = None,
    seed: Seed = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Time the same trials by the engine and as scripts by themselves."""
    loaded = _config(None, builds=build or None, settings=settings or None, seed=seed)
    report = bench_speed(loaded, trials, scripts, _progress(quiet))
    data = report.as_json()
    if as_json:
        print(json.dumps(data, indent=1))
        return
    heads = ("build, family, loop", "trials", "engine s", "script s", "ratio", "floor s", "engine / floor")
    _table(heads, table_rows(report))
    for row in data["builds"]:  # type: ignore[attr-defined]  # a list of rows
        out_console.print(
            f"{row['build']}: {row['trials_per_second']} trials a second, {row['ratio']} x the scripts", markup=False
        )


@bench.command("d3")
def d3(
    build: Builds = None,
    faults: Annotated[Path | None, typer.Option(help="Folder of faults; without it, healthy builds only.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these fault ids.")] = None,
    fresh: Annotated[int, typer.Option(help="Models of each of D3's kinds, and fresh cases of ours.")] = 4,
    seeds: SeedsFolder = None,
    seed: Annotated[int, typer.Option(help="Seed of the models.")] = 0,
    workers: Workers = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare D3's models, settings and rule with ours: found, missed and false alarms of both rules on both."""
    loaded = _config(None, builds=build or None, seeds=seeds, seed=seed, workers=workers, fresh=fresh)
    rows = bench_d3(loaded, faults, only or [], _progress(quiet))
    if as_json:
        print(json.dumps([row.as_json() for row in rows], indent=1))
        return
    heads = ("build or fault", "D3's trials: our rule / D3's", "our trials: our rule / D3's")
    _table(heads, [(row.name, row.theirs.shown(), row.mine.shown()) for row in rows])
    planted = [row for row in rows if row.fault]
    for what, found in (
        ("D3's trials and D3's rule", sum(row.theirs.d3 > 0 for row in planted)),
        ("D3's trials and our rule", sum(row.theirs.ours > 0 for row in planted)),
        ("our trials and D3's rule", sum(row.mine.d3 > 0 for row in planted)),
        ("our trials and our rule", sum(row.mine.ours > 0 for row in planted)),
    ):
        out_console.print(f"{what}: {found} of {len(planted)} faults found", markup=False)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out_console.print(table)


def main() -> None:
    """Run the command line; every error a person can mend is one line on stderr."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as error:
        code = error.exit_code
    except _WRONG_USE as error:
        _say(error.format_message())
        code = 2
    except typer.Abort:
        code = 3
    except SpecError as error:
        _say(str(error))
        code = 2
    except (NoDataError, TrackerError) as error:
        _say(str(error))
        code = 3
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    sys.exit(code or 0)


def _path(path: Path, as_json: bool) -> None:
    print(json.dumps({"path": str(path)}) if as_json else path)


def _log(quiet: bool) -> Callable[[str], None]:
    """Return what tells progress where the result goes to stdout."""
    return teller(_progress(quiet))


def _progress(quiet: bool) -> Console:
    return Console(stderr=True, highlight=False, quiet=quiet)


def _say(text: str) -> None:
    print(f"d3bot: {' '.join(text.split())}", file=sys.stderr)


def _config(file: Path | None, told: Mapping[str, Any] | None = None, **given: Any) -> Config:
    """Return the configuration; `told` is what a run that goes on was told, and counts where nothing else is given."""
    workers = given.pop("workers", None)
    values = dict(told or {}) | {name: value for name, value in given.items() if value is not None}
    loaded = load_config(file, cli=values | ({"workers": workers} if workers else {}))
    if "workers" not in loaded.model_fields_set:
        loaded = loaded.model_copy(update={"workers": default_workers()})
    if not loaded.builds:
        loaded = loaded.model_copy(update={"builds": tuple(PINNED.values())})
    if "seeds" not in loaded.model_fields_set:
        loaded = loaded.model_copy(update={"seeds": _own_seeds()})
    return loaded


def _own_seeds() -> Path:
    """Return the seeds of the working folder, or d3bot's own where it has none."""
    return Path("seeds") if Path("seeds").is_dir() else data_folder("seeds")


def _file(run_folder: Path, tracker: Path, file_all: bool, known: dict[str, str], console: Console) -> None:
    for decision in file_run(run_folder, FolderTracker(tracker), datetime.now(UTC), file_all, known, issue_of):
        console.print(f"{decision.action} {decision.key}: {decision.reason}", markup=False, soft_wrap=True)


add_commands(app)
