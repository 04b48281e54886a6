"""Shards of one run, made into one run folder again; a missing one makes it incomplete, loudly."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from d3bot import __version__
from d3bot.findings.group import joined, one_cause
from d3bot.flow.coverage import merge_coverage
from d3bot.flow.evidence import FIXED, known_findings
from d3bot.flow.finding import issue_of
from d3bot.flow.night import MAX_NO_DATA, Night
from d3bot.flow.pages import write_pages
from d3bot.flow.plan_file import PLAN, load_costs, load_plan, write_plan
from d3bot.flow.totals import totals
from d3bot.generate.costs import NO_COSTS
from d3bot.history.changes import compare, known_again, other_names
from d3bot.history.evidence import load_evidence, write_evidence
from d3bot.history.finding_folder import FindingFolder, list_findings, read_finding, write_finding
from d3bot.history.folder import LoadedRun, RunWriter, load_run, write_changes
from d3bot.spec import Build, Costs, Evidence, Finding, Run, SpecError, Trial, Verdict, short_hash


@dataclass(frozen=True)
class Part:
    """One shard of a run: its folder, which part it is, and what it holds."""

    folder: Path
    index: int
    count: int
    loaded: LoadedRun


@dataclass(frozen=True)
class Merged:
    """The run that shards make together, and what is missing from it, in words."""

    night: Night
    missing: tuple[str, ...]


def merge_runs(
    folders: Sequence[Path],
    out: Path,
    previous: Path | None = None,
    shards: int | None = None,
    templates: Path | None = None,
) -> Merged:
    """Merge shards into a new run folder; of several attempts at one shard the last complete one counts.

    `shards` is how many there must be, by default what the parts say; `templates` is a person's own folder.  SpecError
    if the parts are not of one run.
    """
    parts = _chosen([_part(folder) for folder in folders])
    if not parts:
        raise SpecError("merge: no run folder given; give the folder of every shard")
    count = shards or parts[0].count
    _check_alike(parts, count)
    there = {part.index for part in parts}
    missing = [f"shard {index}/{count} is missing" for index in range(1, count + 1) if index not in there]
    missing += [f"shard {part.index}/{count} is incomplete" for part in parts if not part.loaded.run.complete]
    before = load_run(previous) if previous else None
    found = _found(parts)
    keys = {name: finding.key for _, finding in found for name in finding.names}
    verdicts = [_renamed(verdict, keys) for verdict in _verdicts(parts)]
    trials = _trials(parts)
    run = _run(parts, verdicts, trials, not missing, before.run.run if before else "")
    writer = RunWriter.create(out, run)
    with writer:
        write_plan(out, trials, _costs(parts))
        for verdict in verdicts:
            writer.append(verdict)
        _write_findings(out, found, templates)
        findings = [finding for _, finding in found]
        _evidence(parts, out, {verdict.key for verdict in verdicts if verdict.failing} | keys.keys())
        counts = merge_coverage(out, [part.folder for part in parts])
        run = run.model_copy(update={"pairs": counts.pairs, "triples": counts.triples})
        older = [folder.finding for folder in known_findings(previous)] if previous else []
        names = other_names([*older, *findings])
        changes = known_again(compare(before.verdicts if before else [], verdicts, names), names)
        write_changes(out, run.previous, changes)
        write_pages(out, run, trials, verdicts, changes, findings, older, previous, templates, _missing(missing))
        writer.finish(run)
    return Merged(Night(run, tuple(verdicts), tuple(changes), tuple(findings), out), tuple(missing))


def _part(folder: Path) -> Part:
    loaded = load_run(folder)
    shard = loaded.run.config.get("shard")
    if not isinstance(shard, Mapping) or not all(isinstance(shard.get(name), int) for name in ("index", "count")):
        raise SpecError(f"{folder}: does not say which shard it is; run it with --shard I/N")
    return Part(folder, shard["index"], shard["count"], loaded)


def _chosen(parts: Sequence[Part]) -> list[Part]:
    """Return one part for each shard: the last complete attempt, else the one that got furthest."""
    best: dict[int, Part] = {}
    for part in sorted(parts, key=_worth):
        best[part.index] = part
    return [best[index] for index in sorted(best)]


def _worth(part: Part) -> tuple[bool, int, str]:
    run = part.loaded.run
    return (run.complete, 0 if run.complete else len(part.loaded.verdicts), run.started)


def _check_alike(parts: Sequence[Part], count: int) -> None:
    first = parts[0]
    for part in parts:
        if part.count != count or part.index > count:
            raise SpecError(f"{part.folder}: is shard {part.index}/{part.count}, but {count} shards are merged")
        for what, mine, theirs in (
            ("seed", part.loaded.run.seed, first.loaded.run.seed),
            ("builds", _names(part.loaded.run.builds), _names(first.loaded.run.builds)),
            ("previous run", part.loaded.run.previous, first.loaded.run.previous),
        ):
            if mine != theirs:
                raise SpecError(
                    f"{part.folder}: its {what} ({mine}) is not that of {first.folder} ({theirs}); run it again"
                )


def _names(builds: Sequence[Build]) -> list[str]:
    """Return what must be equal on every shard; processors may differ from runner to runner."""
    return [f"{build.label} {build.overlay} {sorted(build.packages.items())}" for build in builds]


def _verdicts(parts: Sequence[Part]) -> list[Verdict]:
    found = {}
    for part in parts:
        for verdict in part.loaded.verdicts:
            found[verdict.trial] = verdict.model_copy(update={"shard": f"{part.index}/{part.count}"})
    return list(found.values())


def _trials(parts: Sequence[Part]) -> list[Trial]:
    found: dict[str, Trial] = {}
    for part in parts:
        if (part.folder / PLAN).exists():
            found |= {trial.id: trial for trial in load_plan(part.folder)}
    return list(found.values())


def _costs(parts: Sequence[Part]) -> Costs:
    """Return the costs by which the shards chose; all were compared with one run, and have the same."""
    return next((load_costs(part.folder) for part in parts if (part.folder / PLAN).exists()), NO_COSTS)


def _run(
    parts: Sequence[Part], verdicts: Sequence[Verdict], trials: Sequence[Trial], whole: bool, previous: str
) -> Run:
    first = min((part.loaded.run for part in parts), key=lambda run: run.started)
    blank = sum(verdict.kind == "no-data" for verdict in verdicts)
    name = short_hash(" ".join(part.loaded.run.run for part in parts))
    done = {verdict.trial for verdict in verdicts}
    return first.model_copy(
        update={
            "run": f"{first.run.rpartition('-')[0] or first.run}-{name[:6]}",
            "seconds": max(part.loaded.run.seconds for part in parts),
            "timings": _timings(parts),
            "config": {**first.config, "shard": {"index": 1, "count": 1}},
            **totals(verdicts),
            "complete": whole and all(t.id in done for t in trials) and blank <= MAX_NO_DATA * len(verdicts),
            "previous": previous or first.previous,
            "version": __version__,
        }
    )


def _timings(parts: Sequence[Part]) -> dict[str, float]:
    """Return the timings of the slowest shard, which is the one whose seconds the run has."""
    return max((part.loaded.run for part in parts), key=lambda run: run.seconds).timings


def _found(parts: Sequence[Part]) -> list[tuple[FindingFolder, Finding]]:
    """Return one folder for each cause, the best that any shard has, and its finding with what the others know.

    Two shards that saw one cause under two names share an alternate one.
    """
    folders = [read_finding(path) for part in parts for path in list_findings(part.folder)]
    found = []
    for places in one_cause([folder.finding.names for folder in folders]):
        best, *others = sorted((folders[place] for place in places), key=_short)
        found.append((best, joined(best.finding, [other.finding for other in others])))
    return sorted(found, key=lambda each: each[1].key)


def _short(folder: FindingFolder) -> tuple[bool, int, str]:
    return (not folder.finding.verified, len(folder.script), folder.finding.key)


def _write_findings(out: Path, found: Sequence[tuple[FindingFolder, Finding]], templates: Path | None) -> None:
    for folder, finding in found:
        text = folder.issue_md
        if finding != folder.finding:
            issue = issue_of(folder.with_finding(finding), templates)
            text = f"# {issue.title}\n\n{issue.body}"
        write_finding(out, finding, folder.script, folder.output_bad, folder.output_good, text)


def _renamed(verdict: Verdict, keys: Mapping[str, str]) -> Verdict:
    """Return a verdict under the key of its cause's one finding; its own is kept beside it."""
    key = keys.get(verdict.key, verdict.key)
    if key == verdict.key:
        return verdict
    return verdict.model_copy(update={"key": key, "also": tuple(sorted({*verdict.also, verdict.key} - {key}))})


def _evidence(parts: Sequence[Part], out: Path, failing: set[str]) -> None:
    """Keep evidence and kept findings of keys that fail in no shard."""
    items: dict[str, Evidence] = {}
    for part in parts:
        items |= {item.key: item for item in load_evidence(part.folder) if item.key not in failing}
        for folder in known_findings(part.folder):
            key = folder.finding.key
            if folder.path.parent.name == FIXED and key not in failing and not (out / FIXED / key).exists():
                shutil.copytree(folder.path, out / FIXED / key)
    if items:
        write_evidence(out, list(items.values()))


def _missing(missing: Sequence[str]) -> str:
    return "".join(f"> **{text}**\n" for text in missing) + ("\n" if missing else "")
