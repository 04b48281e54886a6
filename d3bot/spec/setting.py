"""Setting: distribution and nothing else, printable on one line: `fsdp2(world=2, reshard_after_forward=false)`."""

import math
import re
from typing import Annotated, Any, Self

from pydantic import StringConstraints, model_serializer, model_validator

from d3bot.spec.base import Name, Noun, Scalar, SpecError, one_line, show_scalar

_TEXT = re.compile(r"^\s*([a-z][a-z0-9_]*)\s*(?:\((.*)\))?\s*$")
_ITEM = re.compile(r"\s*([a-z][a-z0-9_]{0,39})\s*=\s*([A-Za-z0-9_.+-]{1,40})\s*")
_SIZES = ("world", "replicas", "workers")

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,40}$")]


class Setting(Noun):
    """A family and its options.  Syntax only: which families and options exist, `d3bot.frameworks` says."""

    family: Name
    options: tuple[tuple[Name, bool | int | float | Word], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            return _parse(data)
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        plain = [(name, _read(value) if isinstance(value, str) else value) for name, value in self.options]
        ordered = tuple(sorted(plain, key=lambda item: (item[0] not in _SIZES, item[0])))
        for name, value in ordered:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{self.family}: {name}={value} is not a finite number")
        if len({name for name, _ in ordered}) != len(ordered):
            raise ValueError(f"{self.family}: an option is given twice")
        object.__setattr__(self, "options", ordered)
        return self

    @model_serializer
    def _to_text(self) -> str:
        return str(self)

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read the one-line form; SpecError says what is wrong with it."""
        try:
            return cls.model_validate(text)
        except ValueError as error:
            reason = one_line(error)
            raise SpecError(
                f"setting {text[:100]!r}: {reason}; write family(option=value, ...), for example ddp(world=2)"
            ) from error

    def get(self, name: str, default: Scalar | None = None) -> Scalar | None:
        """Return the value of an option, or the default."""
        return dict(self.options).get(name, default)

    def integer(self, name: str) -> int:
        """Return an integer option that must be there; KeyError if it is not."""
        value = dict(self.options)[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise SpecError(f"setting {self}: {name} must be a whole number")
        return value

    def __str__(self) -> str:
        inner = ", ".join(f"{name}={show_scalar(value)}" for name, value in self.options)
        return f"{self.family}({inner})" if inner else self.family


def _read(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parse(text: str) -> dict[str, object]:
    match = _TEXT.match(text)
    if not match:
        raise ValueError("cannot be read")
    options = []
    for part in filter(str.strip, (match[2] or "").split(",")):
        item = _ITEM.fullmatch(part)
        if not item:
            raise ValueError(f"{part.strip()[:40]!r} is not of the form option=value")
        options.append((item[1], _read(item[2])))
    return {"family": match[1], "options": tuple(options)}
