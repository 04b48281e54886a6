"""check.json: what a pull request's build does worse than its base."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from d3bot.history.files import dump_json, read_object, write_atomic
from d3bot.spec import SCHEMA, Build, SpecError, one_line
from d3bot.spec.base import Noun

CHECK = "check.json"
_CAP = 4 * 1024**2

Outcome = Literal["same", "better", "worse", "mixed", "no-data"]


class Row(Noun):
    """One failure of a check."""

    key: str
    title: str = ""
    setting: str = ""
    note: str = ""


class Check(Noun):
    """The two builds, what was seen on both, and what that means."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    outcome: Outcome
    reason: str
    base: Build
    head: Build
    baseline: str = ""
    """What the base is: the merge base of the pull request, as whoever built it says."""
    seed: int
    trials: int
    worse: tuple[Row, ...] = Field(default=(), max_length=1000)
    pre_existing: tuple[Row, ...] = Field(default=(), max_length=10_000)
    unverified: tuple[Row, ...] = Field(default=(), max_length=1000)
    fixed: int = 0
    flaky: int = 0
    indeterminate: int = 0
    not_applicable: int = 0
    """Trials on the head to which the rule does not apply."""
    only: tuple[str, ...] = Field(default=(), max_length=1000)
    """The globs on settings to which the check was limited; none: all settings."""
    touched: tuple[str, ...] = Field(default=(), max_length=100)
    """The setting families whose code the head changes, which came first, on as many fresh cases again."""
    pull: int = 0
    """The pull request that the artifact claims to be of: never trusted."""

    model_config = {**Noun.model_config, "populate_by_name": True}

    @property
    def is_worse(self) -> bool:
        """Whether the head fails where the base does not."""
        return self.outcome in ("worse", "mixed")


def write_check(folder: Path, check: Check) -> None:
    """Write check.json, whole or not at all."""
    write_atomic(folder / CHECK, dump_json(check.model_dump(mode="json", by_alias=True), indent=1) + "\n")


def load_check(folder: Path) -> Check:
    """Read check.json; SpecError if it is missing or garbled."""
    try:
        return Check.model_validate(read_object(folder / CHECK, _CAP))
    except ValidationError as error:
        raise SpecError(f"{folder / CHECK}: {one_line(error)}; run `d3bot check` again") from error
