"""What the frameworks' renderers share: the context of every template, and the Script around the text."""

import re
from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import Family, Script, View
from d3bot.frameworks.layers import drops
from d3bot.spec import Case, Setting, short_hash

_CONSTANTS = re.compile(r"([A-Z]+(?:, [A-Z]+)*) = .*")
"""Constants of the script: two settings share a reference only if those that it reads are equal."""


def common_context(
    family: Family, case: Case, setting: Setting, env: Mapping[str, str], docstring: str, view: View
) -> dict[str, Any]:
    """Return what every script template may use, whatever the framework."""
    return {
        "case": case,
        "names": [item.name for item in case.inputs],
        "parts": family.parts(case, setting),
        "world": family.world(setting),
        "env": dict(env),
        "bounds": dict(view.bounds),
        "bound": view.bound,
        "see": view.roles,
        "compares": bool(view.roles),
        "docstring": docstring,
    }


def assemble(family: Family, case: Case, setting: Setting, env: Mapping[str, str], half: str, text: str) -> Script:
    """Return the Script of a rendered text; `half` is the part of it that the reference runs."""
    parts = family.parts(case, setting)
    defined = [match for match in map(_CONSTANTS.match, text.splitlines()) if match]
    constants = [match[0] for match in defined if any(name in half for name in match[1].split(", "))]
    return Script(
        text=text,
        reference_key=short_hash("\n".join([*constants, half, case.dtype, str(parts)])),
        env=env,
        processes=family.processes(setting),
        world=family.world(setting),
        parts=parts,
        steps=case.steps,
        ordered=drops(case),
    )


def class_weights(classes: int) -> list[float]:
    """Return the weight of each class in a loss with class weights: powers of two, no two neighbours alike."""
    return [(0.5, 2.0, 1.0)[i % 3] for i in range(classes)]
