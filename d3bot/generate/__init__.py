"""Making cases and choosing trials: models, recipes, inputs and the plan of a run.  Pure; no library, no process."""

from d3bot.generate.cases import fresh_cases
from d3bot.generate.plan import PER_CASE, plan, shard

__all__ = ["PER_CASE", "fresh_cases", "plan", "shard"]
