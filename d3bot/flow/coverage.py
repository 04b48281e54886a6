"""What the executed trials of a run cover, and what has been covered lately."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from d3bot.generate.coverage import NEVER, known_pairs, pairs_of
from d3bot.generate.risky import is_triple
from d3bot.history.coverage import load_coverage, write_coverage
from d3bot.spec import FRAMEWORKS, Framework, Pair, PairCount, Trial, Verdict

Ages = dict[Framework, dict[Pair, int]]


@dataclass(frozen=True)
class Counts:
    """The numbers of a run, of each framework that it ran."""

    pairs: dict[Framework, PairCount]
    triples: dict[Framework, PairCount]


def record_coverage(out: Path, previous: Path | None, trials: Sequence[Trial], verdicts: Sequence[Verdict]) -> Counts:
    """Write coverage.json of a run and return its numbers, for each framework that it ran.

    Only executed trials count that could have shown a fault: a refusal, an obstacle, trouble of the infrastructure or a
    vacuous case covers nothing.
    """
    executed = {verdict.trial for verdict in verdicts if verdict.covers}
    before = load_coverage(previous) if previous else None
    ages: Ages = {}
    for framework in FRAMEWORKS:
        mine = [trial for trial in trials if trial.case.framework == framework]
        if mine:
            covered = {pair for trial in mine if trial.id in executed for pair in pairs_of(trial.case, trial.setting)}
            ages[framework] = aged(before.of(framework) if before else {}, covered)
    write_coverage(out, ages)
    return _counts(ages)


def merge_coverage(out: Path, parts: Sequence[Path]) -> Counts:
    """Write the coverage of shards together, and return its numbers: what one of them covered, the run did."""
    ages: Ages = {}
    for part in parts:
        coverage = load_coverage(part)
        for framework in coverage.ages:
            whole = ages.setdefault(framework, {})
            for pair, age in coverage.of(framework).items():
                whole[pair] = min(age, whole.get(pair, NEVER))
    write_coverage(out, ages)
    return _counts(ages)


def aged(before: Mapping[Pair, int], covered: set[Pair]) -> dict[Pair, int]:
    """Return the ages after a run that covered these pairs; a pair too old to remember is left out."""
    older = {pair: age + 1 for pair, age in before.items() if pair not in covered and age + 1 < NEVER}
    return older | dict.fromkeys(covered, 0)


def _counts(ages: Ages) -> Counts:
    pairs: dict[Framework, PairCount] = {}
    triples: dict[Framework, PairCount] = {}
    for framework, seen in ages.items():
        known = known_pairs(framework)
        for counts, triple in ((pairs, False), (triples, True)):
            counts[framework] = _count(
                (pair for pair in known.reachable if is_triple(pair) is triple),
                sum(is_triple(pair) is triple for pair in known.excluded),
                seen,
            )
    return Counts(pairs, triples)


def _count(reachable: Iterable[Pair], excluded: int, seen: Mapping[Pair, int]) -> PairCount:
    ages = [seen.get(pair) for pair in reachable]
    return PairCount(
        reachable=len(ages),
        excluded=excluded,
        covered=sum(age == 0 for age in ages),
        lately=sum(age is not None for age in ages),
    )
