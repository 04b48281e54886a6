"""Making cases and choosing trials: models, recipes, inputs and the plan of a run.  Pure; no library, no process."""

from d3bot.generate.cases import fresh_cases
from d3bot.generate.coverage import drawn_settings, explored, grid
from d3bot.generate.plan import EXPLORED, EXPLORED_EVERY, PER_CASE, plan, shard

__all__ = [
    "EXPLORED",
    "EXPLORED_EVERY",
    "PER_CASE",
    "drawn_settings",
    "explored",
    "fresh_cases",
    "grid",
    "plan",
    "shard",
]
