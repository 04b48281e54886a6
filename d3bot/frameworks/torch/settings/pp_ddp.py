"""A pipeline whose stages are replicated: DistributedDataParallel in each, over a mesh of copies and stages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from d3bot.frameworks.base import Family, Option
from d3bot.frameworks.torch.settings import ddp, pp
from d3bot.frameworks.torch.settings.common import world_of
from d3bot.spec import ArrayName, Case, Setting

_COPIES = 2


def pipeline(setting: Setting) -> Setting:
    """Return the setting of one copy's pipeline."""
    kept = tuple((name, value) for name, value in setting.options if name in ("schedule", "microbatches"))
    return Setting(family="pp", options=(("world", world_of(setting) // _COPIES), *kept))


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the promise of copies of a pipeline does not hold for this trial, or None."""
    if case.batch % _COPIES:
        return f"a batch of {case.batch} does not divide into the shards of {_COPIES} copies"
    return pp.obstacle(case.model_copy(update={"batch": case.batch // _COPIES}), pipeline(setting))


def _obstacle(case: Case, setting: Setting) -> str | None:
    why = obstacle(case, setting)
    if why is None and not pp.every_stage_trains(case, pipeline(setting)):
        return "DistributedDataParallel refuses a stage without a parameter that requires a gradient"
    return why


def exact(case: Case, setting: Setting, name: ArrayName) -> bool:
    """Only the first losses: the copies' sums over their micro-batches are added to each other at the end."""
    return name.step == 0 and name.role == "loss"


def context(case: Case, setting: Setting, copies: str) -> Mapping[str, Any]:
    """Return what `pp.py.j2` needs; `copies` says what keeps the copies equal, "ddp" or "fsdp2"."""
    return {
        **pp.context(case, pipeline(setting)),
        "copies": copies,
        "layers_apart": False,
        "parts_name": "PARTS",
        "part_comment": "the copies' micro-batches",
        "predict": False,
    }


OPTIONS = (
    Option("world", "number of ranks: two copies of a pipeline", choices=(4,)),
    *(option for option in pp.FAMILY.options if option.name != "world"),
)
CONTRACT = replace(
    pp.FAMILY.contract,
    promise="A step's gradients are those of the mean of all copies' micro-batches' losses, whatever the schedule.",
    reference="The micro-batches of one copy after the other's in one process, each loss divided by their number.",
    exact="The first losses. All else: the noise bound, since each copy sums its micro-batches before they are added.",
    breaks=("A batch that does not divide into the copies' shards.", *pp.FAMILY.contract.breaks),
    excluded={
        **pp.FAMILY.contract.excluded,
        "cast": "nothing says in which type the copies of a stage reduce parameters of several types",
        "unused": "a stage's copies wait for the gradient of every parameter",
        "conditional": "a stage's copies wait for the gradient of every parameter",
        "batch-norm": "whose statistics a copy's micro-batch starts from is not documented",
    },
)

FAMILY = Family(
    framework="torch",
    name="pp_ddp",
    summary="copies of a pipeline: DistributedDataParallel in every stage",
    options=OPTIONS,
    contract=replace(
        CONTRACT,
        source=f'{CONTRACT.source}; "This container provides data parallelism by synchronizing gradients across each '
        'model replica" (torch.nn.parallel.DistributedDataParallel, 2.13)',
        breaks=(*CONTRACT.breaks, "A stage without a parameter that requires a gradient: DDP refuses it."),
        excluded={
            **CONTRACT.excluded,
            "late-freeze": "parameters must not change after DDP has wrapped them",
            "thaw": "parameters must not change after DDP has wrapped them",
        },
    ),
    world=world_of,
    processes=world_of,
    parts=lambda case, setting: _COPIES * pp.micro_batches(pipeline(setting)),
    obstacle=_obstacle,
    exact=exact,
    context=lambda case, setting: context(case, setting, "ddp"),
    standing=(),
    files=(*pp.FAMILY.files, *ddp.FAMILY.files),
    cost=1.5,
)
