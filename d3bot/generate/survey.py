"""The list of pairs and triples that coverage is counted by: made from cases and contracts, written as `pairs.toml`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

import tomli_w

from d3bot.frameworks import obstacle
from d3bot.generate.coverage import Pairs, grid, option_words, words_of
from d3bot.generate.risky import RISKY, parts, together
from d3bot.spec import Case, Framework, Pair, Setting


def survey(framework: Framework, cases: Sequence[Case]) -> Pairs:
    """Return all pairs and triples of the features that the cases have and the options of the framework's settings.

    One is excluded if no trial with it applies; the reason is the contracts' own, of the obstacle met most often.
    """
    having: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        for word in sorted(words_of(case)):
            having.setdefault(word, []).append(place)
    holding: dict[str, list[Setting]] = {}
    for setting in grid(framework):
        for option in option_words(framework, setting):
            holding.setdefault(option, []).append(setting)

    @cache
    def why(place: int, setting: Setting) -> str | None:
        return obstacle(cases[place], setting)

    def reason(word: str, option: str) -> str | None:
        met: Counter[str] = Counter()
        for place, setting in product(having[word], holding[option]):
            found = why(place, setting)
            if found is None:
                return None
            met[found] += 1
        return met.most_common(1)[0][0]

    reachable: set[Pair] = set()
    excluded: dict[Pair, str] = {}
    for word in sorted(having, key=lambda word: (len(parts(word)), word)):  # a triple's own pairs before it
        for option in holding:
            found = next((excluded[part, option] for part in parts(word) if (part, option) in excluded), None)
            found = found or reason(word, option)
            if found is None:
                reachable.add((word, option))
            else:
                excluded[word, option] = found
    return Pairs(frozenset(reachable), excluded)


def dump_pairs(tables: Mapping[Framework, Pairs]) -> str:
    """Return the text of `pairs.toml`; `known_pairs` reads it back.

    Of the triples only those are written as excluded whose pairs are not.
    """
    data: dict[str, dict[str, object]] = {}
    for framework, pairs in tables.items():
        every = {*pairs.reachable, *pairs.excluded}
        words = {word for word, _ in every}
        reasons: dict[str, dict[str, str]] = {}
        for (word, option), why in sorted(pairs.excluded.items()):
            if len(parts(word)) == 1 or not any((part, option) in pairs.excluded for part in parts(word)):
                reasons.setdefault(option, {})[word] = why
        data[framework] = {
            "features": sorted(word for word in words if len(parts(word)) == 1),
            "together": sorted(word for word in words if len(parts(word)) > 1),
            "never_together": sorted(together(framework, RISKY[framework]) - words),
            "options": sorted({option for _, option in every}),
            "excluded": dict(sorted(reasons.items())),
        }
    head = "# Written by `make pairs` from layers, features, settings and contracts; do not edit by hand."
    return f"{head}\n\n{tomli_w.dumps(data)}"
