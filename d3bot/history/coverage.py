"""coverage.json of a run folder."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from d3bot.history.files import dump_json, read_object, write_atomic
from d3bot.spec import Coverage, Framework, Pair, SpecError, one_line

COVERAGE = "coverage.json"
_CAP = 16 * 1024**2


def write_coverage(folder: Path, ages: Mapping[Framework, Mapping[Pair, int]]) -> None:
    """Write the age of every pair that was ever executed; SpecError if it cannot be written."""
    tables: dict[Framework, dict[str, dict[str, int]]] = {}
    for framework, pairs in ages.items():
        table = tables.setdefault(framework, {})
        for (word, option), age in sorted(pairs.items()):
            table.setdefault(option, {})[word] = age
    write_atomic(folder / COVERAGE, dump_json(Coverage(ages=tables).model_dump(mode="json", by_alias=True)) + "\n")


def load_coverage(folder: Path) -> Coverage:
    """Read the coverage of a run; an empty one where the folder holds none, SpecError if it is garbled."""
    path = folder / COVERAGE
    if not path.exists():
        return Coverage()
    try:
        return Coverage.model_validate(read_object(path, _CAP))
    except ValidationError as error:
        raise SpecError(f"{path}: {one_line(error)}; remove it, and coverage is counted anew") from error
