"""evidence.json: how the scripts of findings that are not seen any more did in this run."""

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from d3bot.history.files import dump_json, read_object, write_atomic
from d3bot.spec import SCHEMA, Evidence, SpecError, one_line

EVIDENCE = "evidence.json"
MAX_EVIDENCE = 1000
_CAP = 4 * 1024**2


def write_evidence(folder: Path, items: Sequence[Evidence]) -> None:
    """Write evidence.json, whole or not at all."""
    data = {"schema": SCHEMA, "evidence": [item.model_dump(mode="json", by_alias=True) for item in items]}
    write_atomic(folder / EVIDENCE, dump_json(data, indent=1) + "\n")


def load_evidence(folder: Path) -> list[Evidence]:
    """Return the evidence of a run, empty if it has none; SpecError if the file is garbled."""
    path = folder / EVIDENCE
    if not os.path.lexists(path):
        return []
    items = read_object(path, _CAP).get("evidence")
    if not isinstance(items, list) or len(items) > MAX_EVIDENCE:
        raise SpecError(f"{path}: holds no list of at most {MAX_EVIDENCE} entries; run again")
    try:
        return [Evidence.model_validate(item) for item in items]
    except ValidationError as error:
        raise SpecError(f"{path}: {one_line(error)}; run again") from error
