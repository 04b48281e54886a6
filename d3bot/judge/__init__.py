"""From two observations to a verdict: noise bound, comparison, diagnosis.  Pure: no process, no network."""

from d3bot.judge.arbiter import beyond_rounding, is_rounding
from d3bot.judge.bounds import floors
from d3bot.judge.clusters import clusters
from d3bot.judge.compare import Difference
from d3bot.judge.diagnose import KEYED, UNEXPLAINED, Clues
from d3bot.judge.trace import CollectiveRow, LayerRow, Traced, trace_of
from d3bot.judge.verdict import Judgement, judge

__all__ = [
    "KEYED",
    "UNEXPLAINED",
    "Clues",
    "CollectiveRow",
    "Difference",
    "Judgement",
    "LayerRow",
    "Traced",
    "beyond_rounding",
    "clusters",
    "floors",
    "is_rounding",
    "judge",
    "trace_of",
]
