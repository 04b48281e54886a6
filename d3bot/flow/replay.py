"""One case again: from a seed file or a finding folder to verdicts, to its script, or to a new seed."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from d3bot.builds.candidates import spec_of
from d3bot.builds.spec import PINNED
from d3bot.config import Config
from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow.format import format_files
from d3bot.flow.harness import Harness
from d3bot.flow.resolved import resolved
from d3bot.flow.seeds import read_seed
from d3bot.frameworks import View, canonical_setting, obstacle, render, script_env, standing_settings
from d3bot.history.finding_folder import read_finding
from d3bot.judge import Traced
from d3bot.spec import Dtype, Seed, Setting, SpecError, Trial, Verdict, dump_seed

UNMEASURED: dict[Dtype, float] = {"float64": 1e-12, "float32": 1e-4}
"""Bounds of a script that was printed, not run: nobody measured this case's own noise."""

_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,79}$")

Log = Callable[[str], None]


def _silent(text: str) -> None:
    pass


def load_trial(source: Path, setting: str | None) -> list[Trial]:
    """Return the trials of a seed file, a case.toml or a finding folder: under one setting, or under all its own.

    A case that names no settings gets every standing setting that applies.  SpecError if it cannot be read.
    """
    if source.is_dir():
        folder = read_finding(source)
        seed = Seed(folder.finding.key, folder.finding.case, "finding", (folder.finding.setting,))
    else:
        seed = read_seed(source)
    framework = seed.case.framework
    if setting is not None:
        chosen = [Setting.parse(setting)]
    elif seed.settings:
        chosen = list(seed.settings)
    else:
        chosen = [item for item in standing_settings(framework) if obstacle(seed.case, item) is None]
    trials = [
        Trial(case=seed.case, setting=canonical_setting(framework, item), origin="seed", seed=seed.name)
        for item in chosen
    ]
    if not trials:
        raise SpecError(f"{source}: no standing setting applies to this case; name one with --setting")
    return trials


def own_build(source: Path) -> str:
    """Return the spec of the build to replay on: a finding's own, or the pinned one of a seed's framework."""
    if source.is_dir():
        return spec_of(read_finding(source).finding.build)
    return PINNED[read_seed(source).case.framework]


def replay_trial(trials: Sequence[Trial], build_spec: str, config: Config, log: Log = _silent) -> list[Verdict]:
    """Run the trials on a build and return their verdicts; `log` is told what has to be installed first."""
    with _harness(trials, build_spec, config, log) as harness:
        return [harness.explained(harness.run(trial)).verdict for trial in trials]


@dataclass(frozen=True)
class Followed:
    """A trial that was run again with its layers and collectives recorded."""

    verdict: Verdict
    traced: Traced | None
    """None where nothing could be recorded."""
    again: Verdict | None = None
    """How the traced run itself is judged."""

    @property
    def same(self) -> bool:
        """Whether watching changed nothing: the traced run fails as the other did, or passes too."""
        return self.again is not None and (self.again.kind, self.again.key) == (self.verdict.kind, self.verdict.key)


def trace_trials(trials: Sequence[Trial], build_spec: str, config: Config, log: Log = _silent) -> list[Followed]:
    """Run the trials as `replay_trial` does, then each once more with its layers and collectives recorded."""
    followed = []
    with _harness(trials, build_spec, config, log) as harness:
        for trial in trials:
            judged = harness.explained(harness.run(trial))
            found = harness.traced(judged)
            followed.append(
                Followed(judged.verdict, found[0], found[1].verdict) if found else Followed(judged.verdict, None)
            )
    return followed


@contextlib.contextmanager
def _harness(trials: Sequence[Trial], build_spec: str, config: Config, log: Log) -> Iterator[Harness]:
    framework = trials[0].case.framework
    build = resolved(build_spec, config, log, framework)
    if build.framework != framework:
        raise SpecError(f"--build {build_spec}: is {build.framework}, but this is a case of {framework}")
    with (
        tempfile.TemporaryDirectory(prefix="d3bot-scripts-") as folder,
        Pool(build, script_env(framework), 1) as pool,
    ):
        yield Harness(pool, Path(folder), Pace())


def as_script(trial: Trial) -> str:
    """Return the formatted script of a trial; SpecError if the rule does not hold for it."""
    reason = obstacle(trial.case, trial.setting)
    if reason is not None:
        raise SpecError(f"{trial.setting} does not apply to this case: {reason}")
    docstring = f"Case {trial.case.id} under {trial.setting}: one process and the distributed run must agree."
    with tempfile.TemporaryDirectory(prefix="d3bot-script-") as folder:
        path = Path(folder) / "repro.py"
        path.write_text(render(trial.case, trial.setting, docstring, View(bound=UNMEASURED[trial.case.dtype])).text)
        format_files([path])
        return path.read_text()


def promote_finding(source: Path, seeds: Path, name: str | None) -> Path:
    """Write a finding's case as a seed file and return its path; SpecError if one of that name is there."""
    finding = read_finding(source).finding
    stem = name or finding.key
    if not _NAME.match(stem):
        raise SpecError(f"--name {stem}: small letters, digits, - and _ only")
    path = seeds / finding.case.framework / f"{stem}.toml"
    if path.exists():
        raise SpecError(f"{path}: is there already; choose another --name")
    comment = f"{finding.title}. Seen on {finding.build.label}: {finding.verdict.reason[:400]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_seed(Seed(stem, finding.case, comment, (finding.setting,))))
    return path
