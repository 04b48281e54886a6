"""Pipeline schedules: where a model is cut, which rank holds which stage, and when a schedule applies."""

import ast

import pytest
from torch_cases import case, chain

from d3bot.frameworks import obstacle, render
from d3bot.frameworks.torch.families import FAMILIES
from d3bot.frameworks.torch.settings.pp import stage_cuts
from d3bot.spec import Case, Freeze, Setting, parse_name

DEEP = chain("linear", "tanh", "linear", "relu", "linear", "linear")
SCHEDULES = ("1f1b", "gpipe", "loopedbfs", "interleaved1f1b", "interleaved_zero_bubble", "zbv", "dualpipev")


def pipeline(schedule: str, **options: int) -> Setting:
    more = "".join(f", {name}={value}" for name, value in options.items())
    return Setting.parse(f"pp(world=2, schedule={schedule}{more})")


@pytest.mark.parametrize(
    ("one", "schedule", "cuts"),
    [
        (DEEP, "gpipe", (3,)),
        (DEEP, "loopedbfs", (1, 2, 4)),
        (chain("linear", "tanh", "linear", "tanh"), "zbv", (1, 2, 3)),  # rank 1 holds the middle
        (chain("linear", "linear", "tanh", "tanh"), "zbv", (1, 2, 3)),
        (chain("linear", "tanh", "linear", "tanh"), "loopedbfs", None),  # rank 1 would hold nothing but tanh
        (chain("linear", "tanh", "linear"), "loopedbfs", None),
        (chain("tanh", "linear", "linear", "linear", "linear"), "interleaved1f1b", (2, 3, 4)),
    ],
)
def test_cuts_make_even_stages_that_leave_both_ranks_something_to_train(
    one: Case, schedule: str, cuts: tuple[int, ...] | None
) -> None:
    assert stage_cuts(one, pipeline(schedule)) == cuts


def test_a_frozen_layer_does_not_count_as_trained() -> None:
    one = case(layers=DEEP.layers, freeze=(Freeze(layer="a"),))
    cuts = stage_cuts(one, pipeline("gpipe"))
    assert cuts == (3,)
    assert stage_cuts(case(layers=DEEP.layers[:3], freeze=(Freeze(layer="a"),)), pipeline("gpipe")) is None


@pytest.mark.parametrize(
    ("setting", "batch", "why"),
    [
        (pipeline("interleaved1f1b", microbatches=5), 10, "multiple of the number of rounds"),
        (pipeline("interleaved_zero_bubble", microbatches=5), 10, "multiple of the number of rounds"),
        (pipeline("interleaved1f1b", microbatches=3), 9, ""),
        (pipeline("zbv", microbatches=5), 10, ""),
        (pipeline("zbv"), 10, "does not divide into 4 micro-batches"),
    ],
    ids=str,
)
def test_micro_batches_fit_batch_and_schedule(setting: Setting, batch: int, why: str) -> None:
    found = obstacle(DEEP.model_copy(update={"batch": batch}), setting)
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("schedule", "written"),
    [
        ("gpipe", "stage = PipelineStage(model[rank], rank, WORLD"),
        ("loopedbfs", "own = (rank, rank + 2)"),
        ("zbv", "own = (rank, 3 - rank)"),
        ("zbv", "schedule.step(*inputs, target=target, losses=losses)"),  # rank 0 has the first stage and the last
        ("interleaved1f1b", "schedule.step(target=target, losses=losses)"),
    ],
)
def test_which_rank_holds_which_stages(schedule: str, written: str) -> None:
    assert written in render(DEEP, pipeline(schedule), "doc").text


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_becomes_python_with_its_class(schedule: str) -> None:
    text = render(DEEP, pipeline(schedule), "doc").text
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    names = {name.name for node in imported for name in node.names if node.module == "torch.distributed.pipelining"}
    assert any(name.startswith("Schedule") for name in names)


@pytest.mark.parametrize(
    ("schedule", "name", "exact"),
    [
        ("zbv", "step 1 grad 0.0.weight", True),
        ("loopedbfs", "step 0 grad 0.0.weight", False),  # it goes backward from the last micro-batch
        ("loopedbfs", "step 0 loss 1", True),
    ],
)
def test_only_looped_bfs_adds_in_another_order(schedule: str, name: str, exact: bool) -> None:
    assert FAMILIES["pp"].exact(DEEP, pipeline(schedule), parse_name(name)) is exact


@pytest.mark.parametrize(("count", "exact"), [(2, True), (3, False), (4, True), (6, False)])
def test_dividing_by_the_number_of_micro_batches_is_exact_for_a_power_of_two(count: int, exact: bool) -> None:
    setting = Setting.parse(f"pp(world=2, microbatches={count})")
    assert FAMILIES["pp"].exact(DEEP, setting, parse_name("step 1 grad 0.0.weight")) is exact
    assert FAMILIES["pp"].exact(DEEP, setting, parse_name("step 0 loss 1"))


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("pp(world=3)", "elif rank < WORLD - 1:"),
        ("pp(world=3, schedule=interleaved1f1b)", "own = (rank, rank + 3)"),
        ("pp(world=3, schedule=zbv)", "own = (rank, 5 - rank)"),
        ("pp_ddp(world=4)", 'DistributedDataParallel(model[rank], process_group=mesh.get_group("data"))'),
        ("pp_ddp(world=4)", "*inputs, target = (tensor.tensor_split(SHARDS)[shard] for tensor in data(step))"),
        ("pp_ddp(world=4)", "(loss / PARTS).backward()"),
        ("pp_fsdp2(world=4)", 'fully_shard(model[rank], mesh=mesh["data"])'),
        ("pp_fsdp2(world=4)", "p.grad.full_tensor().numpy()"),
        ("pp_fsdp2(world=4)", 'for layer in model[rank].children(): fully_shard(layer, mesh=mesh["data"])'),
    ],
)
def test_more_ranks_and_copies(setting: str, written: str) -> None:
    one = chain(*("linear",) * 7).model_copy(update={"batch": 16})
    assert written in " ".join(render(one, Setting.parse(setting), "doc").text.split())


def test_a_stage_may_be_one_unit() -> None:
    assert (
        "children()"
        not in render(DEEP.model_copy(update={"batch": 16}), Setting.parse("pp_fsdp2(world=4, wrap=root)"), "doc").text
    )


@pytest.mark.parametrize(
    ("setting", "batch", "why"),
    [
        ("pp(world=2, schedule=dualpipev, microbatches=2)", 8, "at least as many micro-batches as stages"),
        ("pp(world=2, schedule=dualpipev)", 8, ""),
        ("pp(world=4)", 8, ""),
        ("pp(world=3, microbatches=2)", 8, "at least as many micro-batches as stages"),
        ("pp_ddp(world=4)", 7, "does not divide into the shards of 2 copies"),
        ("pp_ddp(world=4)", 12, "does not divide into 4 micro-batches"),
        ("pp_fsdp2(world=4)", 16, ""),
    ],
)
def test_when_more_ranks_and_copies_apply(setting: str, batch: int, why: str) -> None:
    found = obstacle(DEEP.model_copy(update={"batch": batch}), Setting.parse(setting))
    assert why in (found or "")
    assert bool(found) is bool(why)
