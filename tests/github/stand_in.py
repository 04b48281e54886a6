"""Stands in for d3bot in workflows that `act` runs: what needs a build or GitHub is played, all else is d3bot itself.

Every call is a line of the log: its arguments, and the configuration that the workflow gave by environment.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from d3bot.flow.plan_file import write_plan
from d3bot.history.folder import RunWriter
from d3bot.spec import Setting, Trial
from tests.findings.samples import case, run, verdict

STORE = Path(os.environ["STAND_IN_STORE"])


def main(arguments: list[str]) -> int:
    told = {name: value for name, value in os.environ.items() if name.startswith("D3BOT_") and value}
    with (STORE / "calls.jsonl").open("a") as log:
        token = bool(os.environ.get("GITHUB_TOKEN"))
        log.write(json.dumps({"call": arguments, "told": told, "token": token}) + "\n")
    command, options = arguments[0], dict(itertools.pairwise(arguments))
    if command in os.environ.get("STAND_IN_FAILS", "").split(";") or told.get("D3BOT_SHARD") in _broken():
        return 3
    if command == "run":
        return _shard(Path(options["--out"]), told["D3BOT_SHARD"], int(told["D3BOT_SEED"]))
    if command == "fetch":
        return _fetch(Path(options["--out"]), options["--name"])
    if command == "file":
        given = arguments[1:]
        given[given.index("github")] = str(STORE / "issues")
        return _real(["file", *given])
    if command == "command":
        return _outputs(json.loads(os.environ["STAND_IN_ANSWER"]))
    if command in ("check", "bisect", "retest"):
        Path(options["--out"]).mkdir()
        (Path(options["--out"]) / "summary.md").write_text("done\n")
        return 0
    return _real(arguments)


def _broken() -> list[str]:
    return os.environ.get("STAND_IN_BROKEN", "").split()


def _shard(out: Path, shard: str, seed: int) -> int:
    index, count = map(int, shard.split("/"))
    begun = run(f"20261130T00-{index}", config={"shard": {"index": index, "count": count}})
    begun = begun.model_copy(update={"seed": seed})
    with RunWriter.create(out, begun) as writer:
        setting = Setting.parse(f"ddp(world={1 + index})")
        write_plan(out, [Trial(case=case(), setting=setting)])
        writer.append(verdict("pass", case().id, str(setting)))
        writer.finish(begun)
    return 0


def _fetch(out: Path, name: str) -> int:
    found = (STORE / "artifacts" / name).is_dir()
    if found:
        shutil.copytree(STORE / "artifacts" / name, out)
    return _outputs({"found": str(found).lower(), "run-dir": str(out) if found else ""})


def _outputs(values: dict[str, str]) -> int:
    with open(os.environ["GITHUB_OUTPUT"], "a") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())
    return 0


def _real(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "d3bot", *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
