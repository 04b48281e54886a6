"""Which cases run under which settings, and in which shard.  Pure and deterministic."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from d3bot.frameworks import canonical_setting, cost, obstacle
from d3bot.spec import Case, Framework, Origin, Seed, Setting, SpecError, Trial

PER_CASE: Mapping[Framework, int] = {"torch": 8, "tensorflow": 3}
"""How many applicable settings a case gets unless somebody says otherwise."""

FEWEST = 3
"""How many settings a seed gets that names some of its own: what it was made for, and the rule between any two."""

EXPLORED: Mapping[Framework, int] = {"torch": 3, "tensorflow": 1}
"""How many settings a fresh case gets beyond those, from all that the options allow, to cover what is not covered."""

EXPLORED_EVERY: Mapping[Framework, int] = {"torch": 1, "tensorflow": 2}
"""Of how many fresh cases one gets them: a tensorflow trial costs ten of PyTorch's."""

_REFERENCE_COST: Mapping[Framework, float] = {"torch": 1.0, "tensorflow": 15.0}
"""Relative seconds of small models, in the unit of `frameworks.cost`, measured side by side on two cores."""


@dataclass
class _Entry:
    """A case with what is planned for it."""

    case: Case
    origin: Origin
    seed: str = ""
    wanted: list[Setting] = field(default_factory=list)
    """Settings that are planned whatever the balance says: a seed's own, a previous failure's."""
    named: bool = False
    """Whether it is a seed that names settings of its own."""
    only: bool = False
    """Whether nothing beyond `wanted` is planned."""


def plan(
    seeds: Sequence[Seed],
    previous: Sequence[tuple[Case, Setting]],
    fresh: Sequence[Case],
    settings: Sequence[Setting],
    per_case: int,
    own_settings: bool = True,
) -> list[Trial]:
    """Return the trials of one framework's run: seeds, then previous failures, then fresh cases.

    Every case gets `per_case` applicable settings, or all of them if there are fewer: those with the fewest trials so
    far, the rarely applicable first among equals, so that the trials spread evenly over the settings.  A seed that
    names settings gets those (with `own_settings` even what is not among `settings`), filled up to `FEWEST`.  Previous
    failing trials are always planned, on a case of their own or among a seed's.  One setting a case that does not apply
    is planned too, so that the reason is on record; it counts for nothing.  Within a case cheap settings come first.

    SpecError if the cases are of more than one framework or `per_case` is below 1.
    """
    if per_case < 1:
        raise SpecError(f"{per_case} settings a case plan nothing; give at least 1")
    entries = _entries(seeds, previous, fresh, settings, own_settings)
    if len({entry.case.framework for entry in entries}) > 1:
        raise SpecError("one plan holds one framework's cases; plan each framework by itself")
    applicable = {entry.case.id: [s for s in settings if obstacle(entry.case, s) is None] for entry in entries}
    common = Counter(s for entry in entries if not entry.only for s in applicable[entry.case.id])
    order = {setting: place for place, setting in enumerate(settings)}
    planned: Counter[Setting] = Counter()
    recorded: Counter[Setting] = Counter()
    trials = []
    for entry in entries:
        chosen = list(dict.fromkeys(entry.wanted))
        runs = [s for s in chosen if obstacle(entry.case, s) is None]
        if not entry.only:
            free = [s for s in applicable[entry.case.id] if s not in chosen]
            free.sort(key=lambda s: (planned[s], common[s], order[s]))
            count = min(per_case, FEWEST) if entry.named else per_case
            more = free[: max(0, count - len(runs))]
            chosen, runs = chosen + more, runs + more
        planned.update(runs)
        if len(runs) == len(chosen) and not entry.only:
            idle = [s for s in settings if s not in applicable[entry.case.id]]
            for setting in sorted(idle, key=lambda s: (recorded[s], order[s]))[:1]:
                recorded[setting] += 1
                chosen.append(setting)
        chosen.sort(key=lambda s: (cost(entry.case.framework, s), str(s)))
        trials += [Trial(case=entry.case, setting=s, origin=entry.origin, seed=entry.seed) for s in chosen]
    return trials


def shard(trials: Sequence[Trial], index: int, count: int) -> list[Trial]:
    """Return the trials of shard `index` of `count` (from 1), in their order.

    All settings of one case lie in one shard, since they share its reference.  The dearest cases are dealt first, each
    to the shard with the least work so far.  SpecError if there is no such shard.
    """
    if not 1 <= index <= count:
        raise SpecError(f"shard {index}/{count}: give I/N with I from 1 to N")
    work: dict[str, float] = {}
    for trial in trials:
        work.setdefault(trial.case.id, _REFERENCE_COST[trial.case.framework])
        if obstacle(trial.case, trial.setting) is None:
            work[trial.case.id] += cost(trial.case.framework, trial.setting)
    loads = [0.0] * count
    owner: dict[str, int] = {}
    for case in sorted(work, key=lambda case: -work[case]):  # stable: equal cases stay in the plan's order
        owner[case] = min(range(count), key=lambda i: (loads[i], i))
        loads[owner[case]] += work[case]
    return [trial for trial in trials if owner[trial.case.id] == index - 1]


def _entries(
    seeds: Sequence[Seed],
    previous: Sequence[tuple[Case, Setting]],
    fresh: Sequence[Case],
    settings: Sequence[Setting],
    own_settings: bool,
) -> list[_Entry]:
    """Return the cases in the plan's order, each once."""
    entries: dict[str, _Entry] = {}
    for seed in seeds:
        entry = entries.setdefault(seed.case.id, _Entry(seed.case, "seed", seed.name))
        own = [canonical_setting(seed.case.framework, setting) for setting in seed.settings]
        entry.wanted += [s for s in own if own_settings or s in settings]
        entry.named |= bool(entry.wanted)
    fresh_ids = {case.id for case in fresh}
    for case, setting in previous:
        entry = entries.setdefault(case.id, _Entry(case, "previous", only=case.id not in fresh_ids))
        entry.wanted.append(canonical_setting(case.framework, setting))
    for case in fresh:
        entries.setdefault(case.id, _Entry(case, "fresh"))
    return list(entries.values())
