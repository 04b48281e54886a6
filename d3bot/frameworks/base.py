"""What a framework is made of: setting families with their contracts, and rendered scripts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from d3bot.spec import ROLES, ArrayName, Case, Framework, Role, Scalar, Setting, SpecError, show_scalar

EPSILON: Mapping[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance of 1 to the next number of a type."""


@dataclass(frozen=True)
class Option:
    """An option of a setting family or of a layer: either listed values or a range of whole numbers."""

    name: str
    doc: str
    default: Scalar | None = None
    """None: must be given."""
    choices: tuple[Scalar, ...] = ()
    low: int = 1
    high: int = 64

    def check(self, value: Scalar, where: str) -> None:
        """Raise SpecError if the value is not one that this option takes."""
        if self.choices:
            if not any(value == choice and type(value) is type(choice) for choice in self.choices):
                raise SpecError(f"{where}: {self.name}={show_scalar(value)} is not one of {self.takes}")
        elif isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise SpecError(f"{where}: {self.name}={show_scalar(value)} must be a whole number {self.takes}")

    @property
    def values(self) -> tuple[Scalar, ...]:
        """The values that runs draw: the listed ones; of a range those up to 4, or its least."""
        return self.choices or tuple(range(self.low, min(self.high, 4) + 1)) or (self.low,)

    @property
    def takes(self) -> str:
        """The values on one line for people."""
        return ", ".join(map(show_scalar, self.choices)) if self.choices else f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Contract:
    """What a family promises.  Its source is a sentence of the documentation, never observed behaviour."""

    promise: str
    source: str
    """The sentence, in quotes, and where it stands, with the version read."""
    reference: str
    """Which plain definition the reference emulates."""
    exact: str
    """Where equality is to the last bit, and where the noise bound holds."""
    breaks: tuple[str, ...] = ()
    """For which trials the rule's preconditions do not hold, one sentence each; `Family.obstacle` decides."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Features of a case (the words of `frameworks.features`) with which no trial applies -> why, in one sentence."""


@dataclass(frozen=True)
class Family:
    """A setting family: one template, one contract, and the pure functions that go with them."""

    framework: Framework
    name: str
    summary: str
    options: tuple[Option, ...]
    contract: Contract
    world: Callable[[Setting], int]
    """How many ranks, replicas or workers share the work."""
    processes: Callable[[Setting], int]
    """How many operating-system processes call `distributed`."""
    parts: Callable[[Case, Setting], int]
    """Into how many parts the reference splits the batch: shards, micro-batches, or 1."""
    obstacle: Callable[[Case, Setting], str | None]
    """Why the rule's preconditions do not hold for this trial, in one sentence; None if they do."""
    context: Callable[[Case, Setting], Mapping[str, Any]]
    """What the family's template needs beyond the case."""
    standing: tuple[str, ...]
    """The settings that a run plans when nobody names any."""
    exact: Callable[[Case, Setting, ArrayName], bool] = lambda case, setting, name: False
    """Whether this array must be bit-equal to the reference; nowhere, unless it was measured."""
    rounding: Callable[[Case, Setting], float] = lambda case, setting: 0.0
    """Relative rounding unit of a lower type that numbers pass through by the setting's definition; 0 for none."""
    needs: str = ""
    """A package that the build must hold beside the library, or empty."""
    files: tuple[str, ...] = ()
    """Beginnings of paths in the library's repository: the code that this family runs and few others do."""
    cost: float = 2.0
    """Seconds of one of its processes or replicas, relative to a data-parallel rank of PyTorch, of a small model."""

    def canonical(self, setting: Setting) -> Setting:
        """Return the setting with defaults left out; SpecError names the unknown or wrong option."""
        where = f"setting {setting}"
        known = {option.name: option for option in self.options}
        given = dict(setting.options)
        for name, value in given.items():
            if name not in known:
                raise SpecError(f"{where}: {self.name} has no option {name!r}; it has {', '.join(known)}")
            known[name].check(value, where)
        for option in self.options:
            if option.default is None and option.name not in given:
                raise SpecError(f"{where}: {option.name} must be given: {option.takes}")
        kept = tuple((name, value) for name, value in given.items() if value != known[name].default)
        return Setting(family=self.name, options=kept)

    @property
    def example(self) -> Setting:
        """A setting of this family: the first standing one, else one that gives only what must be given."""
        if self.standing:
            return self.canonical(Setting.parse(self.standing[0]))
        given = tuple((option.name, option.values[0]) for option in self.options if option.default is None)
        return Setting(family=self.name, options=given)

    def value(self, setting: Setting, name: str) -> Scalar:
        """Return an option's value, its default if the setting does not name it."""
        option = next(option for option in self.options if option.name == name)
        value = setting.get(name, option.default)
        if value is None:
            raise SpecError(f"setting {setting}: {name} must be given")
        return value


@dataclass(frozen=True)
class View:
    """What a script observes and how much difference it allows: rendering choices, not part of the trial."""

    roles: frozenset[Role] = frozenset(ROLES)
    """Arrays of these roles are returned; a first run observes everything, a filed script what differs first.

    None where the script shows that the distributed run does not end well: then nothing is compared.
    """
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Largest difference allowed, by array name."""
    bound: float = 0.0
    """Largest difference allowed where `bounds` says nothing."""
    metric: str = ""
    """The only metric that is looked at; all of them if empty."""
    updates: bool = False
    """Whether parameters are updated in the last step although nothing is looked at after it."""


@dataclass(frozen=True)
class Script:
    """A rendered trial: one file for the engine, the issue and the maintainer."""

    text: str
    reference_key: str
    """Hash of the half that the reference runs; settings with equal keys share one reference."""
    env: Mapping[str, str]
    processes: int
    world: int
    parts: int
    steps: int
    ordered: bool = False
    """Whether rows must keep their places in a batch for the noise floor: what is drawn for them is drawn by place."""
