"""Which layers and settings each framework has, the contract of each setting, and how a trial becomes a script."""

from d3bot.frameworks.base import Contract, Family, Option, Script, View
from d3bot.frameworks.features import features
from d3bot.frameworks.registry import (
    canonical_setting,
    cost,
    families,
    family_of,
    find_settings,
    matches,
    obstacle,
    render,
    script_env,
    standing_settings,
    touched,
)

__all__ = [
    "Contract",
    "Family",
    "Option",
    "Script",
    "View",
    "canonical_setting",
    "cost",
    "families",
    "family_of",
    "features",
    "find_settings",
    "matches",
    "obstacle",
    "render",
    "script_env",
    "standing_settings",
    "touched",
]
