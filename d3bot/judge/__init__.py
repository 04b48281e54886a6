"""From two observations to a verdict: noise bound, comparison, diagnosis.  Pure: no process, no network."""

from d3bot.judge.arbiter import is_rounding
from d3bot.judge.bounds import floors
from d3bot.judge.compare import Difference
from d3bot.judge.verdict import Judgement, judge

__all__ = ["Difference", "Judgement", "floors", "is_rounding", "judge"]
