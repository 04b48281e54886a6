"""Builds: from what a person asked for to an interpreter that imports exactly that library.

`resolve` is the way in.  A build that cannot be had is a `NoDataError`, a wrong request a `SpecError`.
"""

from d3bot.builds.errors import NoDataError, UnavailableError
from d3bot.builds.faults import Fault, load_faults
from d3bot.builds.index import Index
from d3bot.builds.install import default_cache
from d3bot.builds.overlay import make_overlay
from d3bot.builds.resolve import resolve
from d3bot.builds.store import prune

__all__ = [
    "Fault",
    "Index",
    "NoDataError",
    "UnavailableError",
    "default_cache",
    "load_faults",
    "make_overlay",
    "prune",
    "resolve",
]
