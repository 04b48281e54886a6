"""One validated Config from d3bot.toml, the environment and the command line, the later winning."""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from d3bot.builds.index import PREFIX as INDEX_PREFIX
from d3bot.builds.index import Index
from d3bot.builds.install import default_cache
from d3bot.builds.spec import parse
from d3bot.spec import SpecError, read_toml
from d3bot.spec.base import Noun

FILE = "d3bot.toml"
PREVIOUS = "previous"
"""As a base: the build of the previous run, whose environment is kept."""
PREFIX = "D3BOT_"
NOT_CONFIG = "D3BOT_TEST_"
"""Variables of this form are for the project's own tests."""

_LISTS = ("builds", "settings")
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
    tracker: Path | None = None
    """Folder tracker: where findings become Markdown files with a lifecycle."""
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

    @field_validator("seeds", "out", "cache", "tracker")
    @classmethod
    def _home(cls, value: Path | None) -> Path | None:
        return value.expanduser() if value else value

    @model_validator(mode="after")
    def _something_to_run(self) -> Self:
        if self.seeds is None and not self.fresh and self.minutes is None:
            raise ValueError('seeds = "none" and fresh = 0 leave nothing to run; give one of seeds, fresh, minutes')
        return self


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
            values[key], origin[key] = _from_text(key, text), name
    for key, value in (cli or {}).items():
        if value is not None:
            values[key], origin[key] = value, f"--{key}"
    for key in values:
        if key not in Config.model_fields:
            close = difflib.get_close_matches(key, Config.model_fields, n=1)
            mend = f"did you mean {close[0]}?" if close else f"known are {', '.join(Config.model_fields)}"
            raise SpecError(f"{origin[key]}: there is no such setting; {mend}")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = origin.get(str(first["loc"][0]), "configuration") if first["loc"] else "configuration"
        if first["loc"][:1] == ("index",) and not where.startswith(PREFIX):
            where += "".join(f".{part}" for part in first["loc"][1:])
        raise SpecError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def _from_text(key: str, text: str) -> str | list[str]:
    if key not in _LISTS:
        return text.strip()
    return [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]
