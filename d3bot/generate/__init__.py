"""Making cases and choosing trials: models, recipes, inputs and the plan of a run.  Pure; no library, no process."""

from d3bot.generate.cases import fresh_cases
from d3bot.generate.features import features
from d3bot.generate.plan import PER_CASE, cost, plan, shard

__all__ = ["PER_CASE", "cost", "features", "fresh_cases", "plan", "shard"]
