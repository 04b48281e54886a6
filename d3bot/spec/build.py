"""Build: one installed library and the interpreter that imports it."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

from d3bot.spec.base import Noun, canonical_json, short_hash
from d3bot.spec.case import Framework

Text = Annotated[str, StringConstraints(max_length=500)]


class Build(Noun):
    """What was tested.  Two runs compare build for build through `line`, not through `id`."""

    spec: Text
    """What the person asked for, e.g. `torch==2.13.0`."""
    framework: Framework
    name: Text
    """Distribution name: torch, tensorflow-cpu, tf-nightly."""
    version: Text
    commit: Text = ""
    source: Text = ""
    """Where it came from: index host, wheel path, `python:` or `overlay:`."""
    wheel_hash: Text = ""
    python: Text
    """The interpreter that imports it."""
    overlay: Text = ""
    """A folder put first on the import path (a fork's Python files), or empty."""
    packages: dict[str, str] = {}
    """Versions of what matters beside it: keras, numpy."""
    environment: dict[str, str] = {}
    """Environment class: python, os, machine, cpu, device, driver, cuda, nccl, variables."""
    provenance: dict[str, Text] = {}
    """How it came to be this one: index, night, number of wheels of that night, companions, pip configuration."""
    notes: tuple[Text, ...] = ()
    """What a reader must know of it: nights passed over, no new night for days, older code than the night before."""

    @property
    def id(self) -> str:
        """Hash of what decides a number: library, version, commit, overlay, companions, environment class."""
        facts = self.model_dump(mode="json", exclude={"spec", "python", "source", "provenance", "notes"})
        return "b" + short_hash(canonical_json(facts))

    @property
    def label(self) -> str:
        """The build on one line for people."""
        commit = f" ({self.commit.rpartition('-g')[2][:10]})" if self.commit else ""
        companions = self.provenance.get("with", "")
        more = f" with {companions}" if companions else " + overlay" if self.overlay else ""
        return f"{self.name} {self.version}{commit}{more}"


_CLASS = ("machine", "gpus", "device", "cuda")


def environment_class(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that decides whether a failure can show there at all."""
    return {name: environment[name] for name in _CLASS if environment.get(name)}
