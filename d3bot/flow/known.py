"""known.toml: keys of failures that upstream knows already; they are linked, never filed again."""

import re
from pathlib import Path

from d3bot.findings.key import is_key
from d3bot.spec import SpecError, read_toml

_UPSTREAM = re.compile(r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+#\d+$")

KNOWN = "known.toml"
"""Beside the folders of seeds."""


def load_known(seeds: Path | None) -> dict[str, str]:
    """Return key -> upstream issue (`owner/repo#number`) from known.toml beside the seeds; empty if there is none."""
    path = seeds / KNOWN if seeds else None
    if path is None or not path.exists():
        return {}
    known = {}
    for key, upstream in read_toml(path).items():
        if not is_key(key):
            raise SpecError(f"{path}: {key!r} is not a key; take it from the finding's folder name")
        if not isinstance(upstream, str) or not _UPSTREAM.match(upstream):
            raise SpecError(f"{path}: {key} must name an upstream issue as owner/repo#number")
        known[key] = upstream
    return known
