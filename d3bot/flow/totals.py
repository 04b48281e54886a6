"""What run.json counts of a run's verdicts."""

from collections import Counter
from collections.abc import Sequence

from d3bot.spec import KINDS, Verdict


def totals(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Return the fields of a Run that are counted: trials, kinds, coverage by setting, vacuous trials by reason."""
    kinds = Counter(verdict.kind for verdict in verdicts)
    coverage = Counter(verdict.setting for verdict in verdicts if verdict.covers)
    return {
        "trials": len(verdicts),
        "counts": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
        "coverage": dict(sorted(coverage.items())),
        "vacuous": dict(sorted(Counter(verdict.reason for verdict in verdicts if verdict.vacuous).items())),
    }
