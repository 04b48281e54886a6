"""Seed files: a Case in TOML with a comment on where it comes from and, optionally, the settings it was made for."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from d3bot.spec.base import SpecError, one_line
from d3bot.spec.case import Case
from d3bot.spec.setting import Setting

MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Seed:
    """A named case.  `settings` are one-line settings it was made for; empty means any."""

    name: str
    case: Case
    comment: str
    settings: tuple[Setting, ...] = ()


def load_seed(path: Path) -> Seed:
    """Read a seed file.  SpecError names the file and what to mend."""
    data = read_toml(path)
    comment = data.pop("comment", "")
    settings = data.pop("settings", [])
    if not isinstance(comment, str) or not comment.strip():
        raise SpecError(f'{path}: a seed says where it comes from; add a line comment = "..."')
    if not isinstance(settings, list) or not all(isinstance(item, str) for item in settings):
        raise SpecError(f'{path}: settings must be a list of texts such as "ddp(world=2)"')
    try:
        case = Case.model_validate(data)
        return Seed(path.stem, case, comment, tuple(Setting.parse(item) for item in settings))
    except ValidationError as error:
        raise SpecError(f"{path}: {one_line(error)}") from error
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def dump_seed(seed: Seed) -> str:
    """Return the TOML text of a seed; `load_seed` reads back an equal one."""
    data: dict[str, Any] = {"comment": seed.comment}
    if seed.settings:
        data["settings"] = [str(setting) for setting in seed.settings]
    data.update(seed.case.model_dump(mode="json", exclude_defaults=True))
    return tomli_w.dumps(data)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of at most 256 KiB; SpecError if it cannot be read or parsed."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if len(raw) > MAX_BYTES:
        raise SpecError(f"{path}: larger than {MAX_BYTES // 1024} KiB; a seed is small plain data")
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, a number of thousands of digits, deep nesting
        raise SpecError(f"{path}: not valid TOML ({one_line(error)}); mend that line") from error
