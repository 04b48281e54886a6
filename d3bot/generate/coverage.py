"""Coverage by pairs: which feature of a case has met which option of a setting.

Bugs sit where two things meet: a tied weight under a hook, an uneven size under sharding on the second dimension.  A
pair is (word of `frameworks.features`, option of a family with its value).  Of the features in `risky`, two at a time
count as one more: a triple.  Which pairs and triples exist, `pairs.toml` beside this module says: it is written from
the layers, features, settings and contracts (`make pairs`) and reviewed like code.
"""

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from d3bot.frameworks import Family, families, features, obstacle, standing_settings
from d3bot.generate.costs import NO_COSTS, expected
from d3bot.generate.risky import is_triple, parts, together
from d3bot.spec import Case, Costs, Framework, Pair, Scalar, Setting, SpecError, Trial, show_scalar

NEVER = 30
"""Age, in runs, of a pair that no run on record has executed."""

_FILE = Path(__file__).with_name("pairs.toml")
_TRIPLE = 0.25
"""What a triple counts beside a pair: there are several times as many, and pairs come first."""


@dataclass(frozen=True)
class Pairs:
    """The pairs and triples of one framework: those that a trial can have, and the others with the reason."""

    reachable: frozenset[Pair]
    excluded: Mapping[Pair, str]


@cache
def known_pairs(framework: Framework) -> Pairs:
    """Return the pairs and triples as `pairs.toml` lists them; a triple with an excluded pair is excluded by it."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))[framework]
    excluded = {(word, option): why for option, words in table["excluded"].items() for word, why in words.items()}
    for word, option in product(table["together"], table["options"]):
        for part in parts(word):
            if (part, option) in excluded:
                excluded.setdefault((word, option), excluded[part, option])
    every = frozenset(product((*table["features"], *table["together"]), table["options"]))
    return Pairs(every - excluded.keys(), excluded)


@cache
def option_words(framework: Framework, setting: Setting) -> frozenset[str]:
    """Return every option of a setting with its value, defaults among them, such as `fsdp2:wrap=layers`."""
    family = families(framework)[setting.family]
    return frozenset(
        f"{family.name}:{option.name}={show_scalar(family.value(setting, option.name))}" for option in family.options
    )


def words_of(case: Case) -> frozenset[str]:
    """Return the features of a case, and a word for every two risky ones of them."""
    words = features(case)
    return words | together(case.framework, words)


def pairs_of(case: Case, setting: Setting) -> frozenset[Pair]:
    """Return the pairs and triples that a trial of this case under this setting covers once it has been executed."""
    return frozenset(product(words_of(case), option_words(case.framework, setting)))


@cache
def grid(framework: Framework) -> tuple[Setting, ...]:
    """Return settings that hold every value of every option: each standing one, and each with one option changed.

    A family without a standing setting has its example instead.  Families that need a package beside the library are
    left out, since most builds hold none: they are run by the seeds, and by who names them.

    Changes are tried at every size (ranks, replicas, workers), since some options need more ranks than others.
    """
    found: dict[str, Setting] = {str(setting): setting for setting in standing_settings(framework)}
    found |= {str(families(framework)[name].example): families(framework)[name].example for name in _alone(framework)}
    for standing in list(found.values()):
        family = families(framework)[standing.family]
        sizes = [option for option in family.options if option.name in ("world", "replicas", "workers")]
        for size in sizes:
            for value in size.values:
                for option in family.options:
                    for other in option.values:
                        changed = _changed(family, standing, {size.name: value, option.name: other})
                        if changed is not None:
                            found.setdefault(str(changed), changed)
    return tuple(found.values())


def _alone(framework: Framework) -> list[str]:
    """Return the names of the families that need nothing beside the library."""
    return sorted(name for name, family in families(framework).items() if not family.needs)


def drawn_settings(framework: Framework, seed: int, count: int) -> list[Setting]:
    """Return `count` settings whose options are all drawn at random; the same for the same seed."""
    chance = random.Random(f"{seed}/{framework}/settings")
    chosen = []
    names = _alone(framework)
    for _ in range(count):
        family = families(framework)[chance.choice(names)]
        drawn = {option.name: chance.choice(option.values) for option in family.options}
        changed = _changed(family, family.example, drawn)
        if changed is not None:
            chosen.append(changed)
    return list(dict.fromkeys(chosen))


def explored(
    trials: Sequence[Trial],
    cases: Sequence[Case],
    settings: Sequence[Setting],
    ages: Mapping[Pair, int],
    per_case: int,
    costs: Costs = NO_COSTS,
) -> list[Trial]:
    """Return the trials with up to `per_case` more for each of the cases: those that cover most per expected second.

    A pair that no trial here has counts by its age in runs (`ages`; `NEVER` where there is none), a triple a part of
    that, and what some trial has already counts nothing.  `costs` are the seconds that trials took before.  Greedy,
    case by case; deterministic.  A case's new trials follow its others, since they share its reference.  All are of
    one framework.
    """
    have = {trial.id for trial in trials}
    covered = {
        pair
        for trial in trials
        if obstacle(trial.case, trial.setting) is None
        for pair in pairs_of(trial.case, trial.setting)
    }
    more: dict[str, list[Trial]] = {trial.case.id: [] for trial in trials}
    seconds = {setting: expected(costs, case.framework, setting) for case in cases[:1] for setting in settings}
    for case in cases:
        reachable = known_pairs(case.framework).reachable
        words = words_of(case)
        left = {
            s: (frozenset(product(words, option_words(case.framework, s))) & reachable) - covered
            for s in settings
            if obstacle(case, s) is None
        }
        for _ in range(per_case):
            best = max(left, key=lambda s: (_gain(left[s], ages) / seconds[s], str(s)), default=None)
            if best is None or not left[best]:
                break
            new = left.pop(best)
            covered |= new
            left = {setting: pairs - new for setting, pairs in left.items()}
            trial = Trial(case=case, setting=best, origin="fresh")
            if trial.id not in have:
                more.setdefault(case.id, []).append(trial)
    by_case: dict[str, list[Trial]] = {name: [] for name in more}
    for trial in trials:
        by_case[trial.case.id].append(trial)
    return [trial for name, extra in more.items() for trial in (*by_case[name], *extra)]


def _gain(pairs: frozenset[Pair], ages: Mapping[Pair, int]) -> float:
    return sum(ages.get(pair, NEVER) * (_TRIPLE if is_triple(pair) else 1) for pair in pairs)


def _changed(family: Family, setting: Setting, values: Mapping[str, Scalar]) -> Setting | None:
    """Return the setting with other values, canonical; None if the family has no such setting."""
    options = tuple((dict(setting.options) | dict(values)).items())
    try:
        return family.canonical(Setting(family=family.name, options=options))
    except SpecError:
        return None
