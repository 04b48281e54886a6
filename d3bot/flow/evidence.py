"""What became of findings that a run does not show any more: their scripts are run on its builds, and kept for later.

A failure that is absent proves nothing: its case may not have run.  Its script, run again, does.
"""

import shutil
import time
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

from d3bot.config import Shard
from d3bot.engine.script import run_script
from d3bot.findings.lifecycle import script_hash
from d3bot.flow.confirm import script_shows
from d3bot.history.evidence import write_evidence
from d3bot.history.finding_folder import FindingFolder, list_findings, read_finding
from d3bot.spec import Build, Evidence, Framework, SpecError

FIXED = "fixed"
"""Beside findings/: those that this run does not show.  A later run goes on from there."""

_MAX_KEPT = 30
_SECONDS = 180.0
"""For all scripts of one run together; what is not run is kept for the next."""
_SCRIPT_SECONDS = 120.0


def gather(
    previous: Path,
    builds: Mapping[Framework, Build],
    failing: Collection[str],
    shown: Collection[str],
    out: Path,
    times: int,
    shard: Shard,
) -> list[Evidence]:
    """Run the scripts of the previous run's findings of which no key fails in this one; return how they did.

    They are kept in fixed/, the results in evidence.json.  What fails (`failing`: symptoms and names) but is not among
    this run's findings (`shown`: their names), because there was no time to look into it, is kept there as it is.
    Each shard takes its part of the keys.  Only verified findings of a framework that has a build here count.
    """
    known = [
        folder
        for folder in known_findings(previous)
        if folder.finding.verified
        and folder.finding.build.framework in builds
        and zlib.crc32(folder.finding.key.encode()) % shard.count == shard.index - 1
    ]
    mine = [folder for folder in known if not (folder.finding.names | set(folder.finding.symptoms)) & set(failing)]
    for folder in known:
        if folder not in mine and not folder.finding.names & set(shown):
            shutil.copytree(folder.path, out / FIXED / folder.finding.key)
    mine.sort(key=lambda folder: (folder.finding.first_seen, folder.finding.key), reverse=True)
    ends = time.monotonic() + _SECONDS
    items = []
    for folder in mine[:_MAX_KEPT]:
        shutil.copytree(folder.path, out / FIXED / folder.finding.key)
        if time.monotonic() < ends:
            items.append(retest(folder, builds[folder.finding.build.framework], times))
    if items:
        write_evidence(out, items)
    return items


def retest(folder: FindingFolder, build: Build, times: int) -> Evidence:
    """Run the script of a finding `times` times in fresh processes on a build, up to the first that does not pass."""
    runs, passed, outcome = 0, 0, ""
    while runs < times and passed == runs:
        done = run_script(build, folder.path / "repro.py", _SCRIPT_SECONDS)
        runs += 1
        if done.code == 0:
            passed += 1
        else:
            _, outcome = script_shows(done, folder.finding.verdict)
    key, digest = folder.finding.key, script_hash(folder.script)
    return Evidence(key=key, build=build, script=digest, runs=runs, passed=passed, outcome=outcome[:300])


def known_findings(run_dir: Path) -> list[FindingFolder]:
    """Return the findings of a run and those that it did not show but kept; what cannot be read is left out."""
    paths = list_findings(run_dir)
    kept = run_dir / FIXED
    if kept.is_dir() and not kept.is_symlink():
        paths += sorted(kept.iterdir())
    found: dict[str, FindingFolder] = {}
    for path in paths:
        try:
            folder = read_finding(path)
        except SpecError:
            continue
        found.setdefault(folder.finding.key, folder)
    return list(found.values())


def find_known(run_dir: Path, key: str) -> FindingFolder:
    """Return the finding of a key in a run folder; SpecError if it has none."""
    for folder in known_findings(run_dir):
        if folder.finding.key == key:
            return folder
    raise SpecError(f"{run_dir}: has no finding {key[:120]!r}; `ls {run_dir}/findings` shows what there is")
