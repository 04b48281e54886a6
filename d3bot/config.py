"""One validated Config from d3bot.toml, the environment and the command line, the later winning."""

import difflib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from d3bot.builds.index import PREFIX as INDEX_PREFIX
from d3bot.builds.index import Index
from d3bot.builds.install import default_cache
from d3bot.builds.spec import parse
from d3bot.findings.policy import Policy
from d3bot.spec import SpecError, read_toml
from d3bot.spec.base import Noun

FILE = "d3bot.toml"
PREVIOUS = "previous"
"""As a base: the build of the previous run, whose environment is kept."""
PREFIX = "D3BOT_"
NOT_CONFIG = "D3BOT_TEST_"
"""Variables of this form are for the project's own tests."""

_LISTS = ("builds", "settings", "allow")
_SHARD = re.compile(r"^\s*(\d{1,4})\s*/\s*(\d{1,4})\s*$")


class Shard(Noun):
    """Part `index` of `count` of a run's trials; 1/1 is all of them."""

    index: Annotated[int, Field(ge=1)] = 1
    count: Annotated[int, Field(ge=1, le=256)] = 1
    """At most as many as GitHub starts jobs of one matrix."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        match = _SHARD.match(data)
        if not match:
            raise ValueError(f"a shard is written I/N, such as 1/4, not {data!r}")
        return {"index": int(match[1]), "count": int(match[2])}

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.index > self.count:
            raise ValueError(f"there is no shard {self}: the last of {self.count} is {self.count}/{self.count}")
        return self

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class Labels(Noun):
    """How issues are labelled; {} stands for the value, and an empty text leaves the label out."""

    framework: str = Field(default="framework: {}", max_length=40)
    """Label of the library; {} stands for its name, an empty text leaves the label out."""
    family: str = Field(default="setting: {}", max_length=40)
    """Label of the setting family."""
    kind: str = Field(default="kind: {}", max_length=40)
    """Label of the verdict's kind."""

    model_config = {**Noun.model_config, "use_attribute_docstrings": True}

    @field_validator("framework", "family", "kind")
    @classmethod
    def _one_place(cls, value: str) -> str:
        if value and (value.count("{}") != 1 or value.count("{") != 1 or value.count("}") != 1):
            raise ValueError(f"a label holds {{}} once, such as 'kind: {{}}', not {value!r}")
        return value


class TrackerConfig(Noun):
    """The table [tracker]: where findings go, and how much of them."""

    folder: Path | None = None
    """Folder tracker: where findings become Markdown files with a lifecycle.  `tracker = "DIR"` is short for it."""
    repo: str = ""
    """GitHub repository, owner/name; empty means the workflow's own."""
    allow: tuple[str, ...] = ()
    """Repositories other than the workflow's own that may be filed into."""
    login: str = "github-actions[bot]"
    """Who the token is: `github-actions[bot]` for GITHUB_TOKEN, `<slug>[bot]` for an App's, a user for theirs."""
    label: str = Field(default="d3bot", pattern=r"^[A-Za-z0-9][A-Za-z0-9 :._-]{0,39}$")
    """The label on every issue of d3bot.  `<label>-filing` is its lock while a run files."""
    labels: Labels = Labels()
    """The other labels: framework, family, kind."""
    owners: dict[str, tuple[str, ...]] = {}
    """Who is assigned: glob on framework/family, such as "torch/fsdp*", to logins; the first that matches counts."""
    per_run: int = Field(default=5, ge=0, le=100)
    """New issues of one run; more findings are listed in one overflow issue."""
    per_day: int = Field(default=20, ge=0, le=500)
    """New issues of one library in 24 hours."""
    crowd: int = Field(default=3, ge=1, le=100)
    """New findings of one setting family and kind that get an issue each."""
    panic: int = Field(default=25, ge=1, le=1000)
    """More new keys than this in a run are a bad build: one issue says so, nothing else is filed."""
    edits: int = Field(default=40, ge=1, le=1000)
    """Issues that one run brings up to date."""
    closes: int = Field(default=5, ge=0, le=100)
    """Issues that one run may close."""
    requests: int = Field(default=100, ge=20, le=900)
    """Requests to GitHub of one run; a repository's workflows share 1,000 an hour."""
    quiet_hours: float = Field(default=48, ge=0, le=24 * 60, allow_inf_nan=False)
    """After a closing, how long a failure waits before it reopens the issue."""
    reopen_days: float = Field(default=90, ge=1, le=3650, allow_inf_nan=False)
    """How long after its closing an issue is reopened; later, a new one is filed."""
    remind_days: float = Field(default=14, ge=0, le=3650, allow_inf_nan=False)
    """Days of silence after which an issue that still fails gets a comment, at least 14; 0 means never."""
    passes: int = Field(default=3, ge=1, le=20)
    """Fresh processes in which a finding's script must pass before its issue is closed."""

    model_config = {**Noun.model_config, "use_attribute_docstrings": True}

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, data: Any) -> Any:
        return {"folder": data} if isinstance(data, str | Path) else data

    @field_validator("folder")
    @classmethod
    def _home(cls, value: Path | None) -> Path | None:
        return value.expanduser() if value else value

    @field_validator("remind_days")
    @classmethod
    def _patience(cls, value: float) -> float:
        if 0 < value < 14:
            raise ValueError("a reminder comes at most every 14 days; give 14 or more, or 0 for never")
        return value

    def policy(self) -> Policy:
        """Return the limits that filing into GitHub holds."""
        return Policy(
            per_run=self.per_run,
            per_day=self.per_day,
            edits=self.edits,
            closes=self.closes,
            panic=self.panic,
            crowd=self.crowd,
            quiet=timedelta(hours=self.quiet_hours),
            window=timedelta(days=self.reopen_days),
            remind=timedelta(days=self.remind_days) if self.remind_days else None,
            passes=self.passes,
            night_issue=True,
        )


class Config(Noun):
    """Everything a run is told.  A field is a key of d3bot.toml, and D3BOT_ with its name in capitals a variable."""

    builds: tuple[str, ...] = ()
    """Build specs, such as `torch==2.13.0`."""
    base: str = ""
    """The build to compare with: a failing fresh case runs there too, to tell a regression from an old bug."""
    seeds: Path | None = Path("seeds")
    """Folder of seed files; None, written "none", runs fresh cases alone."""
    fresh: int = Field(default=24, ge=0, le=1_000_000)
    """How many fresh cases to generate for each build; not used when `minutes` is given."""
    minutes: float | None = Field(default=None, gt=0, le=5 * 24 * 60, allow_inf_nan=False)
    """Generate fresh cases until this much wall time has passed."""
    settings: tuple[str, ...] = ()
    """Globs on the one-line form of settings, such as `fsdp2*`; empty means all."""
    shard: Shard = Shard()
    """Part I of N of the trials, written I/N."""
    out: Path | None = None
    """Run folder; None lets the command choose one."""
    previous: str = ""
    """A run folder to compare with, or `latest`: the newest complete one beside `out`."""
    cache: Path = Field(default_factory=default_cache)
    """What is kept between runs: environments, references."""
    workers: int = Field(default=1, ge=1, le=256)
    """Trials that run at the same time."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Seed of the fresh cases; None takes a new one, which the run records."""
    confirmations: int = Field(default=3, ge=1, le=20)
    """How often a failure must be seen again in fresh processes before it counts."""
    finding_seconds: float = Field(default=30.0, gt=0, le=24 * 3600, allow_inf_nan=False)
    """Seconds in which each build's failures are looked into: what is begun is ended, what is not comes next time."""
    shrink_seconds: float = Field(default=20.0, gt=0, le=24 * 3600, allow_inf_nan=False)
    """Seconds of them that making one failing trial smaller may take."""
    tracker: TrackerConfig = TrackerConfig()
    """Where findings are filed: a table, or a folder for short."""
    templates: Path | None = None
    """A folder laid out like d3bot's own templates/; a file there takes the place of ours of the same name."""
    index: Index = Index()
    """Package indexes: the table [index], or variables such as D3BOT_INDEX_URL."""
    stale_days: int = Field(default=7, ge=1, le=3650)
    """A newest nightly older than this raises the staleness alarm."""
    cache_gib: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Environments kept are pruned to this size, the longest unused first; the last two of each library stay."""
    cache_days: float = Field(default=45.0, gt=0, allow_inf_nan=False)
    """Environments not used for this long are pruned."""
    bisect_minutes: float = Field(default=20.0, ge=0, le=24 * 60, allow_inf_nan=False)
    """Time that a run may take to bisect its new findings before they are filed; 0 bisects none."""

    model_config = {**Noun.model_config, "use_attribute_docstrings": True}

    @field_validator("builds", "base")
    @classmethod
    def _builds(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        specs = (value,) if isinstance(value, str) else value
        for spec in filter(None, specs):
            if value != PREVIOUS:
                parse(spec)
        if len(set(specs)) != len(specs):
            raise ValueError("one build is given twice")
        return value

    @field_validator(
        "fresh",
        "minutes",
        "workers",
        "seed",
        "confirmations",
        "finding_seconds",
        "shrink_seconds",
        "stale_days",
        "cache_gib",
        "cache_days",
        "bisect_minutes",
        mode="before",
    )
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool):  # Python counts true as 1
            raise ValueError(f"a number, not {str(value).lower()}")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _no_seeds(cls, value: Any) -> Any:
        return None if value == "none" else value

    @field_validator("seeds", "out", "cache", "templates")
    @classmethod
    def _home(cls, value: Path | None) -> Path | None:
        return value.expanduser() if value else value

    @model_validator(mode="after")
    def _something_to_run(self) -> Self:
        if self.seeds is None and not self.fresh and self.minutes is None:
            raise ValueError('seeds = "none" and fresh = 0 leave nothing to run; give one of seeds, fresh, minutes')
        return self


def default_workers() -> int:
    """Return how many trials run at the same time unless somebody says otherwise: one more than there are cores.

    A trial does not compute all the time: its processes are started and joined, and libraries sleep in between.
    """
    return len(os.sched_getaffinity(0)) + 1


def load_config(
    file: Path | None = None, environ: Mapping[str, str] | None = None, cli: Mapping[str, Any] | None = None
) -> Config:
    """Return the Config of a file, the environment's D3BOT_* variables, and command-line values, the later winning.

    `file` None means d3bot.toml in the working folder if there is one; a file that is named must exist.  In `cli`, None
    means not given.  A list in a variable is separated by `;` or new lines.  Empty variables count as not given, as
    workflows pass on inputs so.  SpecError names the file or the variable, the key, and the mend.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    if file is not None or Path(FILE).exists():
        path = file or Path(FILE)
        for key, value in read_toml(path).items():
            values[key], origin[key] = value, f"{path}: {key}"
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(PREFIX) and not name.startswith(NOT_CONFIG) and text.strip():
            if name.startswith(INDEX_PREFIX):
                table = values.get("index", {})
                own = {name.removeprefix(INDEX_PREFIX).lower(): text.strip()}
                values["index"], origin["index"] = (table | own if isinstance(table, dict) else own), name
                continue
            key = name.removeprefix(PREFIX).lower()
            inner = key.removeprefix("tracker_")
            if inner != key:
                values["tracker"] = _table(values.get("tracker")) | {inner: _from_text(inner, text)}
                origin["tracker"] = name
            elif key == "tracker":
                values[key], origin[key] = _table(values.get(key)) | {"folder": text.strip()}, name
            else:
                values[key], origin[key] = _from_text(key, text), name
    for key, value in (cli or {}).items():
        if value is not None:
            values[key] = _table(values.get(key)) | _table(value) if key == "tracker" else value
            origin[key] = f"--{key}"
    _check_names(values, Config, origin, "")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = origin.get(str(first["loc"][0]), "configuration") if first["loc"] else "configuration"
        if first["loc"][:1] in (("index",), ("tracker",)) and not where.startswith(PREFIX):
            where += "".join(f".{part}" for part in first["loc"][1:])
        raise SpecError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def _table(value: Any) -> dict[str, Any]:
    """Return [tracker] as a table, whichever way it was written."""
    return dict(value) if isinstance(value, Mapping) else {} if value is None else {"folder": value}


def _check_names(values: Mapping[str, Any], model: type[Noun], origin: Mapping[str, str], above: str) -> None:
    """SpecError for a key that there is not, with the one that was probably meant."""
    for key, value in values.items():
        where = origin[key] if not above else f"{above}.{key}"
        field = model.model_fields.get(key)
        if field is None:
            close = difflib.get_close_matches(key, model.model_fields, n=1)
            mend = f"did you mean {close[0]}?" if close else f"known are {', '.join(model.model_fields)}"
            raise SpecError(f"{where}: there is no such setting; {mend}")
        inner = field.annotation
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, Noun):
            _check_names(value, inner, origin, where)


def _from_text(key: str, text: str) -> str | list[str]:
    if key not in _LISTS:
        return text.strip()
    return [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]
