"""A trace names the first layer and the first collective: built by hand, each with one thing wrong."""

from dataclasses import replace

import numpy as np
import pytest

from d3bot.judge import Traced, trace_of
from d3bot.spec import Event, Trace

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6, 3))
WEIGHTS = RNG.normal(size=(3, 2))


def passed(rows: np.ndarray, step: int = 0, by: float = 1.0) -> list[Event]:
    """One forward pass of two layers over these rows."""
    hidden = by * rows @ WEIGHTS
    return [
        Event("input", "", step, rows, shapes=(rows.shape,)),
        Event("layer", "fc", step, hidden, shapes=(hidden.shape,), of="Linear"),
        Event("layer", "act", step, np.tanh(hidden), shapes=(hidden.shape,), of="Tanh"),
    ]


def collective(name: str, given: np.ndarray, value: np.ndarray, group: tuple[int, ...] = (0, 1)) -> Event:
    return Event("collective", name, 0, value, given, (given.shape,), group, reduces="reduce" in name)


REFERENCE = Trace((*passed(ROWS[:3]), *passed(ROWS[3:])))


def traced(*ranks: list[Event], **more: object) -> Traced:
    return trace_of(REFERENCE, [], [Trace(tuple(events)) for events in ranks], **more)  # type: ignore[arg-type]


SPLITS: dict[str, tuple[list[Event], ...]] = {
    "a shard each": (passed(ROWS[:3]), passed(ROWS[3:])),
    "all rows on each": (passed(ROWS), passed(ROWS)),
    "micro-batches": ([*passed(ROWS[:1]), *passed(ROWS[1:3])], [*passed(ROWS[3:5]), *passed(ROWS[5:])]),
    "every other row": (passed(ROWS[::2]), passed(ROWS[1::2])),
    "batches asked for before the first step": (passed(ROWS[:3], step=1), passed(ROWS[3:], step=1)),
}


@pytest.mark.parametrize("name", SPLITS)
def test_rows_are_found_by_what_the_model_was_given(name: str) -> None:
    whole = trace_of(Trace((*REFERENCE.events, *passed(-ROWS, step=1))), [], [Trace(tuple(e)) for e in SPLITS[name]])
    first = [row for row in whole.layers if row.step == 0]
    assert [(row.name, row.shape, row.wrong) for row in first] == [("fc", (6, 2), False), ("act", (6, 2), False)]
    assert all(row.error is not None and row.error <= row.bound for row in first)


def test_the_first_layer_is_the_earliest_that_is_wrong_and_says_on_which_rank() -> None:
    found = traced(passed(ROWS[:3]), passed(ROWS[3:], by=1.01))
    assert found.first_layer is not None
    assert (found.first_layer.name, found.first_layer.ranks) == ("fc", (1,))


def test_rows_that_the_reference_never_had_are_not_compared() -> None:
    row = traced(passed(ROWS[:3] + 1)).layers[0]
    assert (row.error, row.wrong, row.why) == (None, False, "its rows could not be laid over the reference's")


def test_a_stage_without_an_input_has_all_rows_and_may_run_once_before() -> None:
    warm = passed(np.zeros((1, 3)))
    stage = [event for event in [*warm, *passed(ROWS)] if event.kind == "layer"]
    assert not any(row.wrong or row.why for row in traced(stage).layers)


def test_a_shard_of_the_output_is_laid_over_its_place() -> None:
    whole = passed(ROWS)
    parts = [
        [whole[0], replace(whole[1], value=whole[1].value[:, i : i + 1], offset=(0, i))]  # type: ignore[index]
        for i in range(2)
    ]
    assert traced(*parts).layers[0].error == pytest.approx(0, abs=1e-15)
    twice = [[*part, *part] for part in parts]
    assert trace_of(Trace(tuple(whole * 2)), [], [Trace(tuple(part)) for part in twice]).layers[0].why == ""
    spread = [[replace(part[0], offset=(0, 0)), *part[1:]] for part in parts]
    often = trace_of(Trace(tuple(whole * 2)), [], [Trace(tuple(part)) for part in spread])
    assert often.layers[0].why == "", "one process may predict twice"
    unreduced = [[whole[0], replace(whole[1], offset=(0, 0), partial=True)]]
    assert traced(*unreduced).layers[0].error is None


A, B = RNG.normal(size=8), RNG.normal(size=8)
TABLE: dict[str, tuple[str, tuple[np.ndarray, np.ndarray], bool | None, str, tuple[int, ...]]] = {
    "the sum": ("allreduce", (A + B, A + B), True, "", ()),
    "the mean": ("allreduce", ((A + B) / 2, (A + B) / 2), True, "", ()),
    "a share left out": ("allreduce", (A, A), False, "their sum with weights 1, 0", (0, 1)),
    "one rank left out": ("allreduce", (A + B, B), False, "what came out is not", (1,)),
    "a little": ("allreduce", ((A + B) * (1 + 1e-7),) * 2, False, "off by 1.0e-07 of their sum", (0, 1)),
    "a shard each": ("reduce_scatter_base", ((A + B)[:4], (A + B)[4:]), True, "", ()),
    "shards swapped": ("reduce_scatter_base", ((A + B)[4:], (A + B)[:4]), False, "what came out is not", (0, 1)),
    "gathered": ("allgather", (np.concatenate([A, B]),) * 2, True, "", ()),
    "gathered in another order": (
        "allgather",
        (np.concatenate([A, B]), np.concatenate([B, A])),
        False,
        "one after the other",
        (1,),
    ),
    "no sum": ("broadcast", (A, A), None, "", ()),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_collective_must_give_what_went_in(name: str) -> None:
    how, made, sound, text, ranks = TABLE[name]
    found = traced([collective(how, A, made[0])], [collective(how, B, made[1])])
    (row,) = found.collectives
    assert (row.sound, row.ranks, row.group, row.sizes) == (sound, ranks, (0, 1), (8,))
    assert text in row.found
    assert (found.first_collective is not None) == bool(text)


def test_replicas_of_one_process_are_a_row_each() -> None:
    event = collective("HierarchicalCopyAllReduce", np.stack([A, B, A - B]), np.stack([A + B] * 3), (0, 1, 2))
    (row,) = trace_of(REFERENCE, [], [Trace((replace(event, reduces=True),))]).collectives
    assert (row.sound, row.ranks) == (False, (0, 1, 2))


def test_a_rank_that_takes_no_part_is_told() -> None:
    (row,) = traced([collective("allreduce", A, A)], []).collectives
    assert row.found == "not every rank of the group takes part"


def test_a_collective_that_carried_a_wrong_gradient_is_named() -> None:
    wrong = RNG.normal(size=(2, 2))
    out = np.concatenate([A, wrong.ravel()])
    held = {"step 0 grad fc.weight": [{"step 0 grad fc.weight": wrong}]}
    found = traced([collective("allreduce", out / 2, out)], [collective("allreduce", out / 2, out)], wrong=held)
    assert found.first_collective is not None
    assert found.first_collective.found == "carried step 0 grad fc.weight"
