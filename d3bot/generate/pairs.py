"""Writes `pairs.toml`: `python -m d3bot.generate.pairs`, or `make pairs`."""

from pathlib import Path

from d3bot.generate.cases import fresh_cases
from d3bot.generate.coverage import Pairs, dump_pairs, survey
from d3bot.spec import FRAMEWORKS, Framework

FILE = Path(__file__).with_name("pairs.toml")
_CASES = 480
"""Fresh cases that are looked at; every feature is among them many times over."""


def surveyed() -> dict[Framework, Pairs]:
    """Return the pairs of both frameworks, from cases that are always the same."""
    return {framework: survey(framework, fresh_cases(framework, 0, _CASES)) for framework in FRAMEWORKS}


if __name__ == "__main__":
    FILE.write_text(dump_pairs(surveyed()), encoding="utf-8")
