"""plan.json: every case and trial of a run, so that it can be resumed, explained, and its failures tried next time."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from d3bot.history.files import dump_json, read_object, write_atomic
from d3bot.spec import SCHEMA, Case, Costs, Origin, Setting, SpecError, Trial, one_line
from d3bot.spec.base import Noun

PLAN = "plan.json"
_CAP = 256 * 2**20


class _Entry(Noun):
    case: str
    setting: Setting
    origin: Origin
    seed: str = ""


class _Plan(Noun):
    schema_: int = Field(default=SCHEMA, alias="schema")
    cases: dict[str, Case]
    trials: tuple[_Entry, ...]
    costs: Costs = Costs()
    """What the choice of trials was told of their seconds."""

    model_config = {**Noun.model_config, "populate_by_name": True}


def write_plan(folder: Path, trials: Sequence[Trial], costs: Costs) -> None:
    """Write the plan of a run, whole or not at all, with the costs by which trials were chosen."""
    cases = {trial.case.id: trial.case for trial in trials}
    plan = _Plan(
        cases=cases,
        costs=costs,
        trials=tuple(
            _Entry(case=trial.case.id, setting=trial.setting, origin=trial.origin, seed=trial.seed) for trial in trials
        ),
    )
    data = plan.model_dump(mode="json", by_alias=True, exclude={"cases"})
    data["cases"] = {name: case.model_dump(mode="json", exclude_defaults=True) for name, case in cases.items()}
    write_atomic(folder / PLAN, dump_json(data) + "\n")


def load_costs(folder: Path) -> Costs:
    """Read the costs by which the trials of a run were chosen; SpecError if its plan is missing or garbled."""
    return _load(folder).costs


def load_plan(folder: Path) -> list[Trial]:
    """Read the plan of a run; SpecError if it is missing or garbled."""
    plan = _load(folder)
    try:
        return [
            Trial(case=plan.cases[entry.case], setting=entry.setting, origin=entry.origin, seed=entry.seed)
            for entry in plan.trials
        ]
    except KeyError as error:
        raise SpecError(f"{folder / PLAN}: names the case {error}, which it does not hold; run again") from error


def _load(folder: Path) -> _Plan:
    path = folder / PLAN
    data = read_object(path, _CAP)
    try:
        plan = _Plan.model_validate(data)
    except ValidationError as error:
        raise SpecError(f"{path}: not a plan of this version ({one_line(error)}); run again") from error
    if plan.schema_ > SCHEMA:
        raise SpecError(f"{path}: written by a newer d3bot (schema {plan.schema_}); update d3bot")
    return plan
