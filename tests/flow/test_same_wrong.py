"""Settings of one case that are wrong in the same way are found when the run ends."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from d3bot.flow.harness import Judged
from d3bot.flow.same_wrong import SameWrong
from d3bot.spec import Observation, RankObservation

RIGHT = Observation((RankObservation(0, arrays={"param w": np.ones(3)}),))


def judged(setting: str, *ranks: float | None, case: str = "c", half: str = "h", kind: str = "diverged") -> Judged:
    """A trial whose ranks returned a parameter full of these numbers; None: the rank returned none."""
    held = (RankObservation(0, arrays={} if x is None else {"param w": np.full(3, x)}) for x in ranks)
    stand_in: Any = SimpleNamespace(
        reference=RIGHT,
        distributed=Observation(tuple(held)),
        script=SimpleNamespace(reference_key=half),
        verdict=SimpleNamespace(kind=kind, case=case, setting=setting, trial=f"trial of {setting}"),
    )
    return cast(Judged, stand_in)


def grouped(*trials: Judged) -> dict[str, tuple[str, ...]]:
    seen = SameWrong()
    for trial in trials:
        seen.add(trial)
    return seen.result()


def test_those_that_agree_name_each_other() -> None:
    found = grouped(judged("ddp", 2.0, 2.0), judged("fsdp2", 2.0, 2.0), judged("tp", 3.0))
    assert found == {"trial of ddp": ("fsdp2",), "trial of fsdp2": ("ddp",)}


def test_of_several_copies_the_first_rank_counts_and_any_rank_may_hold_it() -> None:
    found = grouped(judged("pp", None, 2.0), judged("ddp", 2.0, 5.0))
    assert found == {"trial of ddp": ("pp",), "trial of pp": ("ddp",)}


def test_other_references_other_cases_and_other_kinds_are_not_compared() -> None:
    ddp = judged("ddp", 2.0)
    assert grouped(ddp, judged("tp", 2.0, half="another")) == {}
    assert grouped(ddp, judged("tp", 2.0, case="another")) == {}
    assert grouped(ddp, judged("tp", 2.0, kind="flaky")) == {}
