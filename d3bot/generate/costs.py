"""What a trial costs: seconds learned from an earlier run, else what its family is said to cost."""

from collections.abc import Iterable
from statistics import median

from d3bot.frameworks import families, family_of
from d3bot.spec import Costs, Framework, Setting, Verdict

NO_COSTS = Costs()
"""What is known without an earlier run."""

_REFERENCE_SHARE = 0.5
"""Work of judging a trial beside its distributed side, in units of `frameworks.cost`."""


def learned(run: str, verdicts: Iterable[Verdict]) -> Costs:
    """Return the median seconds of the run's passes, by family and number of ranks.

    A failure says little of what its setting costs: it runs again, and a hang lasts as long as it is waited for.
    """
    seen: dict[Framework, dict[str, list[float]]] = {}
    for verdict in verdicts:
        if verdict.kind != "pass" or verdict.seconds <= 0:
            continue
        name = f"{verdict.setting.partition('(')[0]} {verdict.world}"
        seen.setdefault(verdict.framework, {}).setdefault(name, []).append(verdict.seconds)
    return Costs(
        run=run,
        seconds={
            framework: {name: float(f"{median(times):.2g}") for name, times in sorted(table.items())}
            for framework, table in sorted(seen.items())
        },
    )


def expected(costs: Costs, framework: Framework, setting: Setting) -> float:
    """Return the seconds that a trial of this setting is expected to take.

    What was not seen on so many ranks costs what its family says, in the seconds that the family's other trials took
    for that; what was not seen at all, in the seconds of all trials; without any, in units of `frameworks.cost`.
    """
    family = family_of(framework, setting)
    seen = costs.seconds.get(framework, {})
    name = f"{family.name} {family.world(setting)}"
    if name in seen:
        return seen[name]
    scales: dict[str, list[float]] = {}
    for known, seconds in seen.items():
        other, _, world = known.partition(" ")
        if other in families(framework):
            scales.setdefault(other, []).append(seconds / _said(families(framework)[other].cost, int(world)))
    every = [scale for found in scales.values() for scale in found]
    scale = median(scales.get(family.name) or every) if every else 1.0
    return scale * _said(family.cost, family.world(setting))


def _said(cost: float, world: int) -> float:
    return _REFERENCE_SHARE + cost * world
