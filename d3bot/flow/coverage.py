"""What the executed trials of a run cover, and what has been covered lately."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from d3bot.generate.coverage import NEVER, known_pairs, pairs_of
from d3bot.history.coverage import load_coverage, write_coverage
from d3bot.spec import FRAMEWORKS, Framework, Pair, PairCount, Trial, Verdict

Ages = dict[Framework, dict[Pair, int]]


def record_coverage(
    out: Path, previous: Path | None, trials: Sequence[Trial], verdicts: Sequence[Verdict]
) -> dict[Framework, PairCount]:
    """Write coverage.json of a run and return its numbers, for each framework that it ran.

    Only executed trials count: a refusal, an obstacle, or trouble of the infrastructure covers nothing.
    """
    executed = {verdict.trial for verdict in verdicts if verdict.failing or verdict.kind == "pass"}
    before = load_coverage(previous) if previous else None
    ages: Ages = {}
    for framework in FRAMEWORKS:
        mine = [trial for trial in trials if trial.case.framework == framework]
        if mine:
            covered = {pair for trial in mine if trial.id in executed for pair in pairs_of(trial.case, trial.setting)}
            ages[framework] = aged(before.of(framework) if before else {}, covered)
    write_coverage(out, ages)
    return _counts(ages)


def merge_coverage(out: Path, parts: Sequence[Path]) -> dict[Framework, PairCount]:
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


def _counts(ages: Ages) -> dict[Framework, PairCount]:
    counts: dict[Framework, PairCount] = {}
    for framework, pairs in ages.items():
        known = known_pairs(framework)
        counts[framework] = PairCount(
            reachable=len(known.reachable),
            excluded=len(known.excluded),
            covered=sum(age == 0 for pair, age in pairs.items() if pair in known.reachable),
            lately=len(pairs.keys() & known.reachable),
        )
    return counts
