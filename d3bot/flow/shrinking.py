"""One failing trial of a run made smaller by hand: `d3bot shrink RUN:TRIAL`."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from d3bot.builds.candidates import spec_of
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.finding import find_smallest, write_narrowest
from d3bot.flow.harness import Harness
from d3bot.flow.plan_file import load_plan
from d3bot.flow.resolved import resolved
from d3bot.frameworks import script_env
from d3bot.history.files import write_atomic
from d3bot.history.folder import load_run
from d3bot.spec import Seed, SpecError, Trial, dump_seed


@dataclass(frozen=True)
class Result:
    """What a shrinking came to; the case and its script lie in `folder`."""

    folder: Path
    key: str
    reason: str
    setting: str
    tried: int
    finished: bool
    others: tuple[str, ...]
    """Symptoms of smaller trials that fail differently, and so were not taken."""


def find_trial(run_dir: Path, name: str) -> Trial:
    """Return a trial of a run by the beginning of its id, or by `case setting`; SpecError unless it is one."""
    found = [
        trial
        for trial in load_plan(run_dir)
        if trial.id.startswith(name) or name in (trial.case.id, f"{trial.case.id} {trial.setting}")
    ]
    if len(found) != 1:
        many = f"fits {len(found)} trials" if found else "is no trial"
        raise SpecError(f"{run_dir}: {name!r} {many} of its plan; give a trial's id, or 'CASE SETTING' from the report")
    return found[0]


def shrink_trial(
    run_dir: Path,
    name: str,
    out: Path,
    build: str,
    config: Config,
    workers: int,
    seconds: float,
    log: Callable[[str], None] = lambda text: None,
) -> Result:
    """Shrink a failing trial of a run and write case.toml and repro.py to `out`.

    At any time `out` holds the smallest trial so far: who interrupts it and starts it again goes on from there.
    SpecError if there is no such trial or it does not fail.
    """
    trial = find_trial(run_dir, name)
    framework = trial.case.framework
    mine = next((each for each in load_run(run_dir).run.builds if each.framework == framework), None)
    spec = build or (spec_of(mine) if mine else "")
    if not spec:
        raise SpecError(f"{run_dir}: has no build of {framework}; give --build")
    used = resolved(spec, config, log, framework)
    if used.framework != framework:
        raise SpecError(f"--build {build}: is not {framework}, of which the trial is")
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as scripts,
        Pool(used, script_env(framework), workers) as pool,
    ):
        harness = Harness(pool, Path(scripts), Pace())
        small = find_smallest(harness, trial, out / "case.toml", workers, seconds)
        if small is None:
            raise SpecError(f"{run_dir}: {name} does not fail on {used.label}; nothing is left to shrink")
        judged = small.judged
        setting = judged.trial.setting
        seed = Seed(small.names.key, judged.trial.case, f"{judged.verdict.reason[:400]}", (setting,))
        write_atomic(out / "case.toml", dump_seed(seed))
        write_narrowest(harness, judged, out / "repro.py")
    others = tuple(sorted(other.verdict.key for other in small.others))
    return Result(out, small.names.key, judged.verdict.reason, str(setting), small.tried, small.finished, others)
