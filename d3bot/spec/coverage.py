"""Coverage of a run: which pairs of a case's feature and a setting's option its executed trials had."""

from pydantic import Field

from d3bot.spec.base import SCHEMA, Noun
from d3bot.spec.case import Framework

Pair = tuple[str, str]
"""(feature of the case, option of the setting with its value)."""


class PairCount(Noun):
    """The numbers of one framework, of pairs or of triples."""

    reachable: int = 0
    """Pairs that some trial can have."""
    excluded: int = 0
    """Pairs that no trial can have, each with its reason on record."""
    covered: int = 0
    """Pairs that an executed trial of this run had."""
    lately: int = 0
    """Pairs that this run or an earlier one on record had."""

    @property
    def left(self) -> int:
        """Pairs that some trial can have, and none on record had."""
        return self.reachable - self.lately


class Coverage(Noun):
    """coverage.json: for every pair that any run on record has executed, how many runs ago that was."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    ages: dict[Framework, dict[str, dict[str, int]]] = {}
    """Framework -> option -> feature -> age in runs, 0 for this run."""

    model_config = {**Noun.model_config, "populate_by_name": True}

    def of(self, framework: Framework) -> dict[Pair, int]:
        """Return one framework's ages by pair."""
        table = self.ages.get(framework, {})
        return {(word, option): age for option, words in table.items() for word, age in words.items()}
