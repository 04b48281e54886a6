"""What `d3bot list` shows, as rows of plain data."""

from pathlib import Path

from d3bot.flow.seeds import load_seeds
from d3bot.frameworks import Contract, Option, families, standing_settings
from d3bot.frameworks.layers import KINDS
from d3bot.spec import FRAMEWORKS, SpecError

Row = dict[str, str]
LISTS = {"settings": 2, "layers": 1, "seeds": 2, "contracts": 1}
"""Every list, and how many of its first columns name a row."""


def listing(what: str, seeds: Path) -> list[Row]:
    """Return the rows of one list; SpecError if there is no such list."""
    match what:
        case "settings":
            return _settings()
        case "layers":
            return [
                {"layer": kind.name, "what": kind.doc, "options": _options(kind.options)} for kind in KINDS.values()
            ]
        case "seeds":
            return [
                {"framework": framework, "seed": seed.name, "comment": " ".join(seed.comment.split())}
                for framework in FRAMEWORKS
                for seed in load_seeds(seeds, framework)
            ]
        case "contracts":
            return _contracts()
        case _:
            raise SpecError(f"list {what}: there is no such list; there are {', '.join(LISTS)}")


def complete_settings(incomplete: str) -> list[str]:
    """Return the families and standing settings that begin so, for a shell's completion."""
    names = {name for framework in FRAMEWORKS for name in families(framework)}
    names |= {str(setting) for framework in FRAMEWORKS for setting in standing_settings(framework)}
    return sorted(name for name in names if name.startswith(incomplete))


def _settings() -> list[Row]:
    return [
        {
            "framework": framework,
            "family": family.name,
            "summary": family.summary,
            "options": _options(family.options),
            "standing": "; ".join(str(s) for s in standing_settings(framework) if s.family == family.name),
        }
        for framework in FRAMEWORKS
        for family in families(framework).values()
    ]


def _contracts() -> list[Row]:
    return [
        {
            "setting": f"{framework} {family.name}",
            "promise": family.contract.promise,
            "source": family.contract.source,
            "reference": family.contract.reference,
            "exact": family.contract.exact,
            "breaks": " ".join((*family.contract.breaks, *_excluded(family.contract))),
        }
        for framework in FRAMEWORKS
        for family in families(framework).values()
    ]


def _excluded(contract: Contract) -> list[str]:
    return [f"{word}: {why}." for word, why in contract.excluded.items()]


def _options(options: tuple[Option, ...]) -> str:
    return "; ".join(f"{option.name}: {option.takes}" for option in options)
