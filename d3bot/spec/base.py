"""What every noun shares: strict, frozen, plain data with one canonical JSON form."""

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

SCHEMA = 1
"""Version of every file d3bot writes.  A reader refuses a newer one and keeps reading older ones."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""A name that ends up as an identifier in a rendered script: nothing else may reach the template."""

Scalar = bool | int | float | str


class SpecError(ValueError):
    """Bad input from a person or a file.  The message is one line: what, where, how to mend it."""


class Noun(BaseModel):
    """Base of all nouns: unknown keys are errors, instances are immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    def canonical(self) -> str:
        """Return the one JSON text of this value: defaults left out, keys sorted, no spaces."""
        return canonical_json(self.model_dump(mode="json", exclude_defaults=True))


def canonical_json(data: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal data has equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def show_scalar(value: Scalar) -> str:
    """Return an option's value as settings and files write it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def short_hash(text: str) -> str:
    """Return the first 12 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def one_line(error: Exception) -> str:
    """Return a pydantic or other error as one line a person can act on, of at most 600 printable characters."""
    text = str(error)
    errors = getattr(error, "errors", None)
    if callable(errors):
        parts = []
        for item in errors():
            where = ".".join(str(part) for part in item["loc"])
            message = str(item["msg"]).removeprefix("Value error, ")
            parts.append(f"{where}: {message}" if where else message)
        text = "; ".join(parts[:3]) + (f" (and {len(parts) - 3} more)" if len(parts) > 3 else "")
    # A location may hold a key of the file as it stands there: line breaks and terminal codes among it.
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:600]
