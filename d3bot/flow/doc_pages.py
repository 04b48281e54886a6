"""Pages of the documentation that say what the code says: settings, keys, inputs, and which report has which seed.

`make docs` writes them; a test says when they are not current.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from d3bot.builds import Index
from d3bot.config import Config, Labels, TrackerConfig
from d3bot.flow import public_reports
from d3bot.frameworks import Family, Option, families
from d3bot.history.files import write_atomic
from d3bot.spec import FRAMEWORKS, Framework, SpecError, show_scalar
from d3bot.spec.base import Noun
from d3bot.templates import data_folder

_NAMES: dict[Framework, str] = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
_PINNED = {"torch": "torch==2.13.0", "tensorflow": "tensorflow-cpu==2.21.0"}
_TABLES: tuple[tuple[str, type[Noun]], ...] = (
    ("", Config),
    ("tracker", TrackerConfig),
    ("tracker.labels", Labels),
    ("index", Index),
)
_IN_WORDS = {("", "cache"): "the user's cache folder", ("index", "url"): "Python's own package index"}
"""Defaults by (table, key) that are better told than shown: what they are depends on the machine, or is not ours."""
_MADE = "<!-- Written by `make docs` from the code; edit the code. -->"


def pages() -> dict[str, str]:
    """Return the text of every page by its path below docs/."""
    made = {f"settings/{family.framework}-{family.name}.md": family_page(family) for family in _families()}
    made["settings/README.md"] = overview()
    made["configuration.md"] = configuration()
    checkout = data_folder("templates").parent
    made["inputs.md"] = inputs(checkout)
    reports = checkout / "docs" / public_reports.SOURCE
    made["public-reports.md"] = public_reports.page(_MADE, _NAMES, reports, checkout / "seeds")
    return made


def write_pages(folder: Path) -> list[Path]:
    """Write the pages below a folder, and remove those of families that there are no more; return what was written."""
    (folder / "settings").mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in (folder / "settings").glob("*.md"):
        if f"settings/{path.name}" not in made:
            path.unlink()
    for name, text in made.items():
        write_atomic(folder / name, text)
    return [folder / name for name in made]


def overview() -> str:
    """Return the page that lists the families."""
    rows = []
    for family in _families():
        link = f"[{family.name}]({family.framework}-{family.name}.md)"
        rows.append(f"| {_NAMES[family.framework]} | {link} | {_cell(family.summary)} |")
    return "\n".join(
        [
            _MADE,
            "# Setting families",
            "",
            "What distribution d3bot tests, one page a family: its options, what it promises and where that is",
            "written, what one process does instead, where equality is to the last bit, and which trials the rule does",
            "not cover.",
            "",
            "| library | family | |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def family_page(family: Family) -> str:
    """Return the page of a family."""
    contract = family.contract
    excluded = [f"`{word}`: {why}" for word, why in sorted(contract.excluded.items())]
    lines = [
        _MADE,
        f"# {_NAMES[family.framework]}: {family.name}",
        "",
        f"{family.summary}",
        "",
        "## What is promised",
        "",
        contract.promise,
        "",
        f"Source: {contract.source}",
        "",
        f"**One process instead:** {contract.reference}",
        "",
        f"**Exact:** {contract.exact}",
        "",
        "## Options",
        "",
        "| option | takes | default | |",
        "|---|---|---|---|",
        *(
            f"| `{option.name}` | {_cell(option.takes)} | {_default(option)} | {_cell(option.doc)} |"
            for option in family.options
        ),
        "",
        "## Where the rule does not hold",
        "",
        *([f"- {text}" for text in (*contract.breaks, *excluded)] or ["Nowhere that is known."]),
        "",
        "## What every run tries",
        "",
        *([f"- `{setting}`" for setting in family.standing] or ["Nothing by itself: seeds name its settings."]),
        "",
        "```console",
        f"$ d3bot run --build {_PINNED[family.framework]} --settings '{family.name}*' --fresh 8",
        "```",
        "",
    ]
    return "\n".join(lines)


def configuration() -> str:
    """Return the page of d3bot.toml: every key with its default, its meaning and its variable."""
    lines = [
        _MADE,
        "# d3bot.toml",
        "",
        "Everything is optional. The file lies in the working folder, or where `--config` says. Over it goes the",
        "variable of a key, over that the option of the command line. An unknown key is an error that names the one",
        "you probably meant. A list in a variable is separated by `;`.",
    ]
    for table, model in _TABLES:
        lines += [
            "",
            f"## [{table}]" if table else "## The file itself",
            "",
            "| key | default | variable | |",
            "|---|---|---|---|",
        ]
        lines += _keys(table, model)
    return "\n".join([*lines, ""])


def _keys(table: str, model: type[Noun]) -> Iterator[str]:
    prefix = "D3BOT_" + "".join(f"{part.upper()}_" for part in table.split(".") if part)
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Noun) and name != "shard":
            continue  # a table of its own
        variable = f"`{prefix}{name.upper()}`" if table != "tracker.labels" and name != "owners" else ""
        default = _IN_WORDS.get((table, name)) or _toml(field.get_default(call_default_factory=True))
        yield f"| `{name}` | {default} | {variable} | {_cell(field.description or '')} |"


def _toml(value: Any) -> str:
    if value is None or value in ((), "", {}):
        return "none"
    plain = list(value) if isinstance(value, tuple) else value
    plain = plain if isinstance(plain, bool | int | float | list) else str(plain)
    return f"`{tomli_w.dumps({'x': plain}).removeprefix('x = ').strip()}`"


def inputs(checkout: Path) -> str:
    """Return the page of every input and output of the actions and the reusable workflows of a checkout.

    SpecError if it is none: what is installed from a wheel has no actions.
    """
    actions = [checkout / "action.yml", *sorted((checkout / ".github/actions").glob("*/action.yml"))]
    if not actions[0].exists():
        raise SpecError("d3bot docs: the pages are made from a checkout; run it in one")
    lines = [
        _MADE,
        "# Inputs and outputs",
        "",
        "Of the actions and of the workflows that can be called. [Actions and workflows](actions.md) says how they are",
        "used; every key of [d3bot.toml](configuration.md) that has no input here is set there.",
        "",
    ]
    for path in actions:
        text = path.read_text()
        lines += [f"## {path.relative_to(checkout)}", "", *_table_of(entries(text, "inputs"), "input")]
        lines += _table_of(entries(text, "outputs"), "output")
    for path in sorted((checkout / ".github/workflows").glob("*.yml")):
        if told := entries(path.read_text(), "on", "workflow_call", "inputs"):
            lines += [f"## {path.relative_to(checkout)}", "", *_table_of(told, "input")]
    return "\n".join(lines)


def entries(text: str, *path: str) -> dict[str, dict[str, str]]:
    """Return the entries of one block of YAML as ours is written: names, and below each `field: value` on one line."""
    left, found, name = list(path), dict[str, dict[str, str]](), ""
    for line in text.splitlines():
        words, deep = line.strip(), (len(line) - len(line.lstrip())) // 2
        if not words or words.startswith("#"):
            continue
        if left:
            if deep == len(path) - len(left) and words == f"{left[0]}:":
                left.pop(0)
            continue
        if deep < len(path):
            break
        key, _, value = words.partition(":")
        if deep == len(path):
            name = key
            found[name] = {}
        else:
            value = value.strip()
            found[name][key] = value[1:-1] if value[:1] == '"' else value
    return found


def _table_of(entries: dict[str, dict[str, str]], what: str) -> list[str]:
    if not entries:
        return []
    given = what == "input"
    rows = [
        f"| `{name}` |{f' {_shown(facts)} |' if given else ''} {_cell(facts['description'])} |"
        for name, facts in entries.items()
    ]
    return [f"| {what} |{' default |' if given else ''} |", f"|---|{'---|' if given else ''}---|", *rows, ""]


def _shown(facts: dict[str, str]) -> str:
    return f"`{facts['default']}`" if facts.get("default") else "none"


def _default(option: Option) -> str:
    return "must be given" if option.default is None else f"`{show_scalar(option.default)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _families() -> list[Family]:
    return [family for framework in FRAMEWORKS for family in families(framework).values()]
