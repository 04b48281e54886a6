"""Coverage by pairs: which feature of a case has met which option of a setting.

Bugs sit where two things meet: a tied weight under a hook, an uneven size under sharding on the second dimension.  A
pair is (word of `frameworks.features`, option of a family with its value).  Which pairs exist, `pairs.toml` beside this
module says: it is written from the layers, features, settings and contracts (`make pairs`) and reviewed like code.
"""

import random
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import tomli_w

from d3bot.frameworks import Family, cost, families, features, obstacle, standing_settings
from d3bot.spec import Case, Framework, Pair, Scalar, Setting, SpecError, Trial, show_scalar

NEVER = 30
"""Age, in runs, of a pair that no run on record has executed."""

_FILE = Path(__file__).with_name("pairs.toml")
_REFERENCE_SHARE = 0.5
"""Work of judging a trial beside its distributed side, in units of `frameworks.cost`."""


@dataclass(frozen=True)
class Pairs:
    """The pairs of one framework: those that a trial can have, and the others with the reason."""

    reachable: frozenset[Pair]
    excluded: Mapping[Pair, str]


@cache
def known_pairs(framework: Framework) -> Pairs:
    """Return the pairs as `pairs.toml` lists them."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))[framework]
    excluded = {(word, option): why for option, words in table["excluded"].items() for word, why in words.items()}
    every = frozenset(product(table["features"], table["options"]))
    return Pairs(every - excluded.keys(), excluded)


def option_words(framework: Framework, setting: Setting) -> frozenset[str]:
    """Return every option of a setting with its value, defaults among them, such as `fsdp2:wrap=layers`."""
    family = families(framework)[setting.family]
    return frozenset(
        f"{family.name}:{option.name}={show_scalar(family.value(setting, option.name))}" for option in family.options
    )


def pairs_of(case: Case, setting: Setting) -> frozenset[Pair]:
    """Return the pairs that a trial of this case under this setting covers once it has been executed."""
    return frozenset(product(features(case), option_words(case.framework, setting)))


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
) -> list[Trial]:
    """Return the trials with up to `per_case` more for each of the cases: those that cover most for what they cost.

    A pair that no trial here has counts by its age in runs (`ages`; `NEVER` where there is none), one that some trial
    has already counts nothing.  Greedy, case by case; deterministic.  A case's new trials follow its others, since they
    share its reference.
    """
    have = {trial.id for trial in trials}
    covered = {
        pair
        for trial in trials
        if obstacle(trial.case, trial.setting) is None
        for pair in pairs_of(trial.case, trial.setting)
    }
    more: dict[str, list[Trial]] = {trial.case.id: [] for trial in trials}
    for case in cases:
        reachable = known_pairs(case.framework).reachable
        left = {s: (pairs_of(case, s) & reachable) - covered for s in settings if obstacle(case, s) is None}
        for _ in range(per_case):
            best = max(left, key=lambda s: (_gain(left[s], ages, case, s), str(s)), default=None)
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


def survey(framework: Framework, cases: Sequence[Case]) -> Pairs:
    """Return all pairs of the features that the cases have and the options of the framework's settings.

    A pair is excluded if no trial with it applies; the reason is the contracts' own, of the obstacle met most often.
    """
    having: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        for word in sorted(features(case)):
            having.setdefault(word, []).append(place)
    holding: dict[str, list[Setting]] = {}
    for setting in grid(framework):
        for option in option_words(framework, setting):
            holding.setdefault(option, []).append(setting)

    @cache
    def why(place: int, setting: Setting) -> str | None:
        return obstacle(cases[place], setting)

    reachable, excluded = set(), {}
    for word, option in product(having, holding):
        met: Counter[str] = Counter()
        for place, setting in product(having[word], holding[option]):
            reason = why(place, setting)
            if reason is None:
                reachable.add((word, option))
                break
            met[reason] += 1
        else:
            excluded[word, option] = met.most_common(1)[0][0]
    return Pairs(frozenset(reachable), excluded)


def dump_pairs(tables: Mapping[Framework, Pairs]) -> str:
    """Return the text of `pairs.toml`; `known_pairs` reads it back."""
    data: dict[str, dict[str, object]] = {}
    for framework, pairs in tables.items():
        every = (*pairs.reachable, *pairs.excluded)
        reasons: dict[str, dict[str, str]] = {}
        for (word, option), why in sorted(pairs.excluded.items()):
            reasons.setdefault(option, {})[word] = why
        data[framework] = {
            "features": sorted({word for word, _ in every}),
            "options": sorted({option for _, option in every}),
            "excluded": dict(sorted(reasons.items())),
        }
    head = "# Written by `make pairs` from layers, features, settings and contracts; do not edit by hand."
    return f"{head}\n\n{tomli_w.dumps(data)}"


def _gain(pairs: frozenset[Pair], ages: Mapping[Pair, int], case: Case, setting: Setting) -> float:
    return sum(ages.get(pair, NEVER) for pair in pairs) / (_REFERENCE_SHARE + cost(case.framework, setting))


def _changed(family: Family, setting: Setting, values: Mapping[str, Scalar]) -> Setting | None:
    """Return the setting with other values, canonical; None if the family has no such setting."""
    options = tuple((dict(setting.options) | dict(values)).items())
    try:
        return family.canonical(Setting(family=family.name, options=options))
    except SpecError:
        return None
