"""Verdict: what the judge says of one trial; Change, Run and Finding, the records around it."""

from typing import Annotated, Literal

from pydantic import Field

from d3bot.spec.base import SCHEMA, Noun, short_hash
from d3bot.spec.bisection import Bisection
from d3bot.spec.build import Build
from d3bot.spec.case import Case, Dtype, Framework
from d3bot.spec.coverage import PairCount
from d3bot.spec.setting import Setting

Kind = Literal[
    "pass",
    "diverged",
    "nonfinite",
    "crashed",
    "died",
    "hung",
    "refused",
    "reference-failed",
    "not-applicable",
    "flaky",
    "no-data",
]
KINDS: tuple[Kind, ...] = (
    "pass",
    "diverged",
    "nonfinite",
    "crashed",
    "died",
    "hung",
    "refused",
    "reference-failed",
    "not-applicable",
    "flaky",
    "no-data",
)
FAILING: frozenset[Kind] = frozenset({"diverged", "nonfinite", "crashed", "died", "hung"})
"""Kinds that say the library broke the rule; only these become findings."""
SETTLED: frozenset[Kind] = FAILING | {"pass", "refused"}
"""Kinds that say something about the library at all; the others are indeterminate."""

Origin = Literal["seed", "fresh", "previous", "mutant"]


class First(Noun):
    """The earliest divergent tensor.  `step` is None for what is taken after the last step."""

    step: int | None = None
    role: str
    tensor: str = ""


class Verdict(Noun):
    """One line of verdicts.jsonl."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    trial: str
    """Identity across runs: hash of framework, case and setting."""
    framework: Framework
    build: str
    """Build.id."""
    case: str
    """Case.id."""
    seed: str = ""
    """Name of the seed file, for cases that came from one."""
    origin: Origin = "fresh"
    setting: str
    world: int = 1
    dtype: Dtype = "float64"
    kind: Kind
    reason: str
    """One line a person can read."""
    key: str = ""
    """Key of the finding that it belongs to, or of its symptom as long as nobody looked into it; empty for a pass."""
    also: tuple[str, ...] = ()
    """Symptoms that the same trial showed when it ran again: one cause that shows now like this and now like that."""
    first: First | None = None
    error: float | None = None
    """Largest |difference| in the first divergent tensor (or the tensor closest to its bound, in a pass)."""
    bound: float | None = None
    """Largest difference allowed there."""
    diagnosis: str = ""
    same: tuple[str, ...] = ()
    """Other settings of the case that gave the same wrong numbers."""
    vacuous: bool = False
    """Whether nothing differed in a case that could not have shown a fault: `reason` says which."""
    detail: str = ""
    """Several lines: the exception, the stacks of a hang, the tail of the output."""
    confirmed: str = ""
    """`3/3`: how often the failure was seen again in a fresh process; empty if never tried."""
    seconds: float = 0.0
    shard: str = "1/1"

    model_config = {**Noun.model_config, "populate_by_name": True}

    @property
    def failing(self) -> bool:
        """Whether the library broke the rule."""
        return self.kind in FAILING

    @property
    def covers(self) -> bool:
        """Whether the trial was executed and could have shown a fault: only then does it count as tried."""
        return (self.failing or self.kind == "pass") and not self.vacuous


class Trial(Noun):
    """Case x Setting, with where the case came from.  The build is the run's."""

    case: Case
    setting: Setting
    origin: Origin = "fresh"
    seed: str = ""

    @property
    def id(self) -> str:
        """Hash of framework, case and setting: the same trial in every run."""
        return trial_id(self.case.framework, self.case.id, str(self.setting))


def trial_id(framework: str, case: str, setting: str) -> str:
    """Return the identity of a trial across runs."""
    return "t" + short_hash(f"{framework} {case} {setting}")


class Run(Noun):
    """run.json: everything about a run that is not one trial's."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: str
    started: str
    """UTC, ISO 8601."""
    seconds: float = 0.0
    builds: tuple[Build, ...]
    environment: dict[str, str] = {}
    seed: int
    """Seed of the fresh cases."""
    config: dict[str, object] = {}
    trials: int = 0
    counts: dict[Kind, int] = {}
    coverage: dict[str, int] = {}
    """How many executed trials each setting had; a vacuous one does not count."""
    vacuous: dict[str, int] = {}
    """How many trials could not have shown a fault, by reason."""
    pairs: dict[Framework, PairCount] = {}
    """How many pairs of a case's feature and a setting's option the executed trials had."""
    triples: dict[Framework, PairCount] = {}
    """The same of two risky features at once and an option."""
    timings: dict[str, float] = {}
    """Seconds that went into `generate` (cases, settings, choosing) and `render` (scripts, written and formatted)."""
    complete: bool = False
    previous: str = ""
    """Run id of the run this one was compared with."""
    host: dict[str, str] = {}
    version: str = ""
    """Version of d3bot."""

    model_config = {**Noun.model_config, "populate_by_name": True}


ChangeClass = Literal[
    "regressed",
    "fixed",
    "still-failing",
    "fails-differently",
    "new-failing",
    "new-passing",
    "still-passing",
    "flaky",
    "lost",
    "represented",
    "indeterminate",
    "retired",
]


class Change(Noun):
    """One trial across two runs.  `before` or `after` is None where the run did not have the trial."""

    trial: str
    framework: Framework
    case: str
    setting: str
    change: ChangeClass
    before: Kind | None
    after: Kind | None
    before_key: str = ""
    after_key: str = ""


class Attempt(Noun):
    """One run of a finding's script: in the engine or as `python repro.py`."""

    how: Literal["engine", "script"]
    build: str
    """Label of the build."""
    failed: bool
    outcome: str
    """`exit 1`, `diverged: step 0 grad fc.weight`, ..."""


class TensorRow(Noun):
    """One array of a finding's trial: the largest |difference| over all ranks, and what is allowed."""

    name: str = Field(max_length=500)
    error: float | None
    """None where the two cannot be subtracted."""
    bound: float
    wrong: str = Field(default="", max_length=20)
    """`value`, `nonfinite`, `missing`, `unexpected`, `shape` or `dtype`; empty where it is equal."""


class Finding(Noun):
    """finding.json: a confirmed failing trial; the folder beside it holds the script and both outputs."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: str
    title: str
    verdict: Verdict
    build: Build
    case: Case
    setting: Setting
    tensors: Annotated[tuple[TensorRow, ...], Field(max_length=200)] = ()
    """What the shrunk trial compared, the earliest first."""
    attempts: tuple[Attempt, ...] = ()
    verified: bool = False
    """True only if every attempt failed the same way, `python repro.py` among them."""
    unverified_reason: str = ""
    trials: tuple[str, ...] = ()
    """`case setting` of every trial of the run that has this key."""
    agreeing: tuple[str, ...] = ()
    """Settings under which the same case passed."""
    aliases: tuple[str, ...] = ()
    """Keys by which the same cause is known where it shows differently."""
    symptoms: tuple[str, ...] = ()
    """Symptoms of its trials, which other causes may share; until version 1 of the rules these were the keys."""
    needs: tuple[str, ...] = ()
    """What every trial that fails by this cause has, as far as shrinking tells."""
    regression: Literal["regression", "pre-existing", "unknown"] = "unknown"
    first_seen: str = ""
    good: Build | None = None
    """The newest build on which the script is known to pass."""
    bisection: Bisection | None = None
    mended_on: str = Field(default="", max_length=500)
    """The newer build on which its script passes already; empty where none is, or where none was there to ask."""

    model_config = {**Noun.model_config, "populate_by_name": True}

    @property
    def names(self) -> frozenset[str]:
        """Its key and every other key by which it is known for sure."""
        return frozenset((self.key, *self.aliases))
