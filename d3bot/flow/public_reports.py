"""The page that leads from public reports of distributed training to the seeds that carry their kind of trigger."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import families
from d3bot.generate.coverage import known_pairs
from d3bot.spec import FRAMEWORKS, Framework, Seed, SpecError, one_line, read_toml
from d3bot.spec.base import Noun

SOURCE = "public-reports.toml"
"""The list of reports, in docs/."""

_REPORT = re.compile(r"[\w.-]+/[\w.-]+#\d+")


class Row(Noun):
    """Reports of one thing that went wrong."""

    reports: tuple[str, ...]
    what: str
    meets: tuple[str, ...] = ()
    """Without a seed: the features, options and families by which fresh cases or other seeds meet it."""
    why_not: str = ""
    """Without either: why it is out of reach."""


_TABLE = TypeAdapter(dict[Framework, tuple[Row, ...]])


@dataclass(frozen=True)
class Answered:
    """A row with the seeds whose comments name one of its reports."""

    framework: Framework
    row: Row
    seeds: tuple[str, ...]


def answered(source: Path, seeds: Path) -> tuple[list[Answered], dict[str, list[str]]]:
    """Return every row of the list with its seeds, and the reports that seeds name beside them.

    SpecError if a row has neither seed nor reason, or both, or meets what there is not.
    """
    try:
        tables = _TABLE.validate_python(read_toml(source))
    except ValidationError as error:
        raise SpecError(f"{source}: {one_line(error)}") from error
    every = {framework: load_seeds(seeds, framework) for framework in FRAMEWORKS}
    named = _named(every)
    rows = [
        Answered(framework, row, tuple(sorted({seed for report in row.reports for seed in named.get(report, ())})))
        for framework, listed in tables.items()
        for row in listed
    ]
    for item in rows:
        _check(source, item)
    listed_reports = {report for item in rows for report in item.row.reports}
    return rows, {report: sorted(found) for report, found in sorted(named.items()) if report not in listed_reports}


def page(made: str, names: Mapping[Framework, str], source: Path, seeds: Path) -> str:
    """Return the text of the page; `made` is the line that says how it is made, `names` those of the libraries."""
    rows, others = answered(source, seeds)
    lines = [
        made,
        "# Public reports, and where d3bot meets them",
        "",
        "Reports of users whose training came out otherwise, crashed or hung only when it was distributed. A seed",
        "carries the kind of trigger of a report (its comment says which), never its model. Where no seed does,",
        "coverage meets the feature or option that is named, or the last column says why it is out of reach.",
        "",
    ]
    for framework in FRAMEWORKS:
        mine = [item for item in rows if item.framework == framework]
        with_seed = sum(bool(item.seeds) for item in mine)
        met = sum(bool(item.row.meets) for item in mine)
        out = len(mine) - with_seed - met
        lines += [
            f"## {names[framework]}",
            "",
            f"{len(mine)} kinds: {with_seed} in seeds, {met} met by coverage, {out} out of reach.",
            "",
            "| reports | what went wrong | seeds, or what meets it |",
            "|---|---|---|",
            *(f"| {', '.join(item.row.reports)} | {item.row.what} | {_where(item)} |" for item in mine),
            "",
        ]
    lines += [
        "## Beside these",
        "",
        "Reports that seeds name and that are found bugs or refusals rather than kinds of trigger of their own.",
        "",
        "| report | seeds |",
        "|---|---|",
        *(f"| {report} | {_links(found)} |" for report, found in others.items()),
        "",
    ]
    return "\n".join(lines)


def _named(every: Mapping[Framework, Sequence[Seed]]) -> dict[str, list[str]]:
    """Return the seeds, as `framework/name`, by report that their comments name."""
    named: dict[str, list[str]] = {}
    for framework, seeds in every.items():
        for seed in seeds:
            for report in _REPORT.findall(seed.comment):
                named.setdefault(report, []).append(f"{framework}/{seed.name}")
    return named


def _check(source: Path, item: Answered) -> None:
    where = f"{source}: {item.row.reports[0]}"
    if bool(item.seeds) + bool(item.row.meets) + bool(item.row.why_not) != 1:
        raise SpecError(f"{where}: say `meets` or `why_not` exactly where no seed names it; its seeds: {item.seeds}")
    pairs = known_pairs(item.framework)
    words = {word for pair in (*pairs.reachable, *pairs.excluded) for word in pair} | set(families(item.framework))
    for word in item.row.meets:
        if word not in words:
            raise SpecError(f"{where}: meets {word!r}, which is no feature, option or family; mend the word")


def _where(item: Answered) -> str:
    if item.seeds:
        return _links(item.seeds)
    return ", ".join(f"`{word}`" for word in item.row.meets) or f"out of reach: {item.row.why_not}"


def _links(seeds: Sequence[str]) -> str:
    return ", ".join(f"[{seed.partition('/')[2]}](../seeds/{seed}.toml)" for seed in seeds)
