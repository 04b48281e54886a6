"""Stands in for d3bot in workflows that `act` runs: what runs a build is played, all else is d3bot itself.

Every call is a line of the log: its arguments, and the configuration that the workflow gave by environment.
"""

import itertools
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from d3bot.findings.lifecycle import script_hash
from d3bot.flow.evidence import find_known
from d3bot.flow.plan_file import write_plan
from d3bot.generate.costs import NO_COSTS
from d3bot.history.finding_folder import read_finding, write_finding
from d3bot.history.folder import RunWriter
from d3bot.spec import Bisection, Evidence, Point, Setting, Trial
from d3bot.tracker.filing import BISECTED, RETESTED
from tests.findings.samples import BUILD, case, run, verdict
from tests.github.nights import SCRIPT, build, checked, failing, night

STORE = Path(os.environ["STAND_IN_STORE"])
ONE = failing("one", build=BUILD)
"""What the first shard and a check find."""


def main(arguments: list[str]) -> int:
    told = {name: value for name, value in os.environ.items() if name.startswith("D3BOT_") and value}
    with (STORE / "calls.jsonl").open("a") as log:
        token = bool(os.environ.get("GITHUB_TOKEN"))
        log.write(json.dumps({"call": arguments, "told": told, "token": token}) + "\n")
    command, options = arguments[0], dict(itertools.pairwise(arguments))
    if command == os.environ.get("STAND_IN_FAILS") or told.get("D3BOT_SHARD") == os.environ.get("STAND_IN_BROKEN", "-"):
        return 3
    match command:
        case "run":
            return _shard(Path(options["--out"]), told["D3BOT_SHARD"], int(told["D3BOT_SEED"]))
        case "check":
            checked(Path(options["--out"]), ONE, options["--baseline"])
            return 1
        case "retest":
            return _retest(Path(arguments[1]), arguments[2], Path(options["--out"]))
        case "bisect":
            return _bisect(Path(arguments[1]), Path(options["--out"]))
    return subprocess.run([sys.executable, "-m", "d3bot", *arguments]).returncode


def _shard(out: Path, shard: str, seed: int) -> int:
    index, count = map(int, shard.split("/"))
    begun = run(f"20261130T00-{index}", config={"shard": {"index": index, "count": count}})
    begun = begun.model_copy(update={"seed": seed})
    with RunWriter.create(out, begun) as writer:
        setting = Setting.parse(f"ddp(world={1 + index})")
        write_plan(out, [Trial(case=case(), setting=setting)], NO_COSTS)
        writer.append(verdict("pass", case().id, str(setting)))
        if index == 1:
            write_finding(out, ONE, SCRIPT, "bad", None, "@octocat wrote this")
        writer.finish(begun)
    return 0


def _retest(previous: Path, key: str, out: Path) -> int:
    script = script_hash(find_known(previous, key).script)
    passed = Evidence(key=key, build=build("2.14.0.dev20261231", environment={}), script=script, runs=3, passed=3)
    night(out.parent, 9, datetime.now(UTC), evidence=[passed], previous=RETESTED).rename(out)
    return 0


def _bisect(source: Path, out: Path) -> int:
    good, bad = (
        Point(version=f"2.14.0.dev2026112{day}", spec=f"torch@2026-11-2{day}", answer=answer)
        for day, answer in ((0, "good"), (1, "bad"))
    )
    found = Bisection(subject="torch", direction="broke", status="found", good=good, bad=bad)
    finding = read_finding(source).finding.model_copy(update={"bisection": found})
    night(out.parent, 9, datetime.now(UTC), [finding], previous=BISECTED).rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
