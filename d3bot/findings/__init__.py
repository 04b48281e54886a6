"""Findings: their identity, their text and what is to be done with them.  Pure functions, no I/O."""

from d3bot.findings.group import Group, group_failing
from d3bot.findings.issue import Issue, render_issue
from d3bot.findings.key import (
    KEY_VERSION,
    ErrorInfo,
    Symptom,
    akin,
    alternate_keys,
    failure_key,
    is_catch_all,
    is_key,
    normalise,
    symptom_key,
    tensor_class,
)
from d3bot.findings.lifecycle import Decision, Record, decide
from d3bot.findings.title import title_of

__all__ = [
    "KEY_VERSION",
    "Decision",
    "ErrorInfo",
    "Group",
    "Issue",
    "Record",
    "Symptom",
    "akin",
    "alternate_keys",
    "decide",
    "failure_key",
    "group_failing",
    "is_catch_all",
    "is_key",
    "normalise",
    "render_issue",
    "symptom_key",
    "tensor_class",
    "title_of",
]
