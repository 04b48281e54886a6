"""Writes `pairs.toml`: `python -m d3bot.generate.pairs`, or `make pairs`."""

from functools import cache
from pathlib import Path

from d3bot.generate.cases import fresh_cases
from d3bot.generate.coverage import Pairs
from d3bot.generate.mutate import mutants
from d3bot.generate.survey import dump_pairs, survey
from d3bot.spec import FRAMEWORKS, Framework

FILE = Path(__file__).with_name("pairs.toml")
_CASES = 480
"""Fresh cases that are looked at, and mutants of them; every feature is among them many times over."""


@cache
def surveyed() -> dict[Framework, Pairs]:
    """Return the pairs of both frameworks, from cases that are always the same."""
    found: dict[Framework, Pairs] = {}
    for framework in FRAMEWORKS:
        cases = fresh_cases(framework, 0, _CASES)
        found[framework] = survey(framework, [*cases, *mutants([(case, 1.0) for case in cases], 0, _CASES)])
    return found


if __name__ == "__main__":
    FILE.write_text(dump_pairs(surveyed()), encoding="utf-8")
