"""Evidence: how the script of a known finding did on a later build."""

from typing import Annotated

from pydantic import Field

from d3bot.spec.base import SCHEMA, Noun
from d3bot.spec.build import Build, Text


class Evidence(Noun):
    """One entry of evidence.json: `passed` of `runs` fresh processes of `python repro.py` ended equal on `build`."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: Text
    build: Build
    script: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the script's text: only the very script that failed counts."""
    runs: int = Field(ge=1, le=1000)
    passed: int = Field(ge=0, le=1000)
    outcome: Text = ""
    """What the runs that did not pass gave."""

    model_config = {**Noun.model_config, "populate_by_name": True}
