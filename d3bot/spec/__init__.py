"""The nouns of d3bot, and how they are read and written.  Imports nothing else of d3bot."""

from d3bot.spec.base import SCHEMA, Scalar, SpecError, canonical_json, one_line, short_hash
from d3bot.spec.build import Build
from d3bot.spec.case import FRAMEWORKS, Case, Clip, Dtype, Framework, Freeze, Input, Layer, Optimizer, Tie
from d3bot.spec.observation import AFTER, ROLES, ArrayName, Role, parse_name
from d3bot.spec.seed import Seed, dump_seed, load_seed, read_toml
from d3bot.spec.setting import Setting
from d3bot.spec.verdict import (
    FAILING,
    KINDS,
    SETTLED,
    Attempt,
    Change,
    ChangeClass,
    Finding,
    First,
    Kind,
    Origin,
    Run,
    Trial,
    Verdict,
    trial_id,
)

__all__ = [
    "AFTER",
    "FAILING",
    "FRAMEWORKS",
    "KINDS",
    "ROLES",
    "SCHEMA",
    "SETTLED",
    "ArrayName",
    "Attempt",
    "Build",
    "Case",
    "Change",
    "ChangeClass",
    "Clip",
    "Dtype",
    "Finding",
    "First",
    "Framework",
    "Freeze",
    "Input",
    "Kind",
    "Layer",
    "Optimizer",
    "Origin",
    "Role",
    "Run",
    "Scalar",
    "Seed",
    "Setting",
    "SpecError",
    "Tie",
    "Trial",
    "Verdict",
    "canonical_json",
    "dump_seed",
    "load_seed",
    "one_line",
    "parse_name",
    "read_toml",
    "short_hash",
    "trial_id",
]
