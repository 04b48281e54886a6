"""The picture of what a run tried: how many trials met each feature of a case with each option of a setting.  Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from d3bot.generate.coverage import known_pairs, pairs_of
from d3bot.generate.risky import is_triple
from d3bot.report.html import Met, Tried
from d3bot.spec import SETTLED, Pair, SpecError, Trial, Verdict


def tried(trials: Sequence[Trial], verdicts: Mapping[str, Verdict]) -> list[Tried]:
    """Return one table a framework; only trials whose verdict says something about the library count.

    `verdicts` are by trial id.
    """
    return [
        _table([trial for trial in trials if trial.case.framework == framework], verdicts)
        for framework in sorted({trial.case.framework for trial in trials})
    ]


def _table(trials: Sequence[Trial], verdicts: Mapping[str, Verdict]) -> Tried:
    framework = trials[0].case.framework
    met: Counter[Pair] = Counter()
    failed: Counter[Pair] = Counter()
    for trial in trials:
        verdict = verdicts.get(trial.id)
        if verdict is None or verdict.kind not in SETTLED or verdict.vacuous:
            continue
        pairs = _pairs(trial)
        met.update(pairs)
        if verdict.failing:
            failed.update(pairs)
    excluded = known_pairs(framework).excluded
    columns = sorted({option for _, option in met})
    rows = sorted({word for word, _ in met})
    return Tried(
        framework,
        tuple(columns),
        tuple(
            (row, tuple(Met(met[row, column], failed[row, column], (row, column) in excluded) for column in columns))
            for row in rows
        ),
    )


def _pairs(trial: Trial) -> frozenset[Pair]:
    """Return a trial's pairs; none of an older run's that names an option which there is no more."""
    try:
        return frozenset(pair for pair in pairs_of(trial.case, trial.setting) if not is_triple(pair))
    except (SpecError, KeyError):
        return frozenset()
