"""DistributedDataParallel: when its promise holds, what each option writes, what the reference makes of it."""

import ast

import pytest
from torch_cases import case, chain

from d3bot.frameworks import families, obstacle, render
from d3bot.generate import fresh_cases
from d3bot.spec import Case, Clip, Setting

BY_NORM = Clip(kind="norm", limit=0.1)


def text(setting: str, **changes: object) -> str:
    return render(case(**changes), Setting.parse(setting), "doc").text


def halves(setting: str, **changes: object) -> tuple[str, str]:
    """Return the reference and the distributed half."""
    reference, _, distributed = text(setting, **changes).partition("def distributed")
    return reference, distributed


@pytest.mark.parametrize(
    ("setting", "one", "why"),
    [
        ("ddp(world=2, join=initial)", case(steps=2), ""),
        ("ddp(world=2, join=initial)", case(steps=1), "no rank has fewer batches"),
        ("ddp(world=1, join=initial)", case(steps=2), "no rank has fewer batches"),
        ("ddp(world=2, join=initial)", chain("linear", "batch_norm"), "whose batch-norm statistics"),
        ("ddp(world=2, join=initial, comm_hook=allreduce)", case(steps=2), ""),
        ("ddp(world=2, join=effective, comm_hook=allreduce)", case(steps=2), "divides the gradients itself"),
        ("ddp(world=2, comm_hook=fp16)", case(), ""),
        ("ddp(world=3, comm_hook=fp16)", case(), "order of a half-precision sum"),
        ("ddp(world=2, comm_hook=fp16)", case(clip=BY_NORM), "the last bit decides"),
        ("ddp(world=2, comm_hook=allreduce)", case(clip=BY_NORM), ""),
        ("ddp(world=2, comm_hook=bf16)", case(), "requires NCCL"),
        ("ddp(world=3, comm_hook=powersgd)", case(steps=3), ""),
        ("ddp(world=2, comm_hook=powersgd)", case(steps=2), "from the third step on"),
    ],
)
def test_where_the_promise_holds(setting: str, one: Case, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("ddp(world=2, batched_grad_copy=true)", "DistributedDataParallel(model, batched_grad_copy=True)"),
        ("ddp(world=2, broadcast_buffers=false)", "DistributedDataParallel(model, broadcast_buffers=False)"),
        ("ddp(world=2, comm_hook=fp16)", "ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)"),
        (
            "ddp(world=2, group=tail, comm_hook=allreduce)",
            "ddp.register_comm_hook(group, default_hooks.allreduce_hook)",
        ),
        ("ddp(world=2, comm_hook=powersgd)", "PowerSGDState(None, start_powerSGD_iter=STEPS - 1), powerSGD_hook"),
        ("ddp(world=2, join=initial)", "with ddp.join():"),
        ("ddp(world=2, join=effective)", "with ddp.join(divide_by_initial_world_size=False):"),
        ("ddp(world=2, bad_batch=true)", "with ddp.no_sync():"),
    ],
)
def test_an_option_is_written_once(setting: str, written: str) -> None:
    assert text(setting, steps=3).count(written) == 1


def test_ranks_run_out_of_batches_one_after_the_other() -> None:
    assert "BATCHES = [1, 2, 4]" in text("ddp(world=3, join=initial)", steps=4)
    assert "BATCHES = [1, 2, 2, 2]" in text("ddp(world=4, join=initial)", steps=2)


@pytest.mark.parametrize(
    ("kind", "divisor"),
    [("initial", "(loss / WORLD).backward()"), ("effective", "(loss / sum(step < count for count in BATCHES))")],
)
def test_a_joined_rank_adds_nothing_and_the_divisor_is_as_asked_for(kind: str, divisor: str) -> None:
    reference, distributed = halves(f"ddp(world=2, join={kind})")
    assert "if step >= BATCHES[rank]:" in reference
    assert divisor in reference
    assert "for step in range(BATCHES[rank]):" in distributed


def test_half_precision_casts_then_divides_then_sums() -> None:
    reference, _ = halves("ddp(world=2, comm_hook=fp16)")
    assert "sums[name] = sums.get(name, 0) + p.grad.to(torch.float16) / WORLD" in reference


def test_what_powersgd_approximates_is_not_observed_on_either_side() -> None:
    for half in halves("ddp(world=2, comm_hook=powersgd)", steps=3):
        assert "and (p.ndim == 1 or step < STEPS - 1)" in half
        assert "in model.named_parameters() if p.ndim == 1}" in half
        assert "predict" not in half


def test_a_group_of_its_own_needs_one_more_process() -> None:
    setting = Setting.parse("ddp(world=2, group=tail)")
    family = families("torch")["ddp"]
    assert (family.world(setting), family.processes(setting)) == (2, 3)
    _, distributed = halves(str(setting))
    assert "group = dist.new_group(range(1, WORLD + 1))" in distributed
    assert "mp.start_processes(save, (folder,), WORLD + 1," in distributed


def test_options_that_change_no_number_share_the_reference() -> None:
    settings = ("ddp(world=2)", "ddp(world=2, group=tail)", "ddp(world=2, comm_hook=allreduce, bad_batch=true)")
    assert len({render(case(), Setting.parse(setting), "doc").reference_key for setting in settings}) == 1


@pytest.mark.parametrize("setting", ["ddp(world=3, join=effective)", "ddp(world=2, comm_hook=powersgd, group=tail)"])
def test_every_fresh_case_becomes_python(setting: str) -> None:
    for one in fresh_cases("torch", 2, 20):
        if obstacle(one, Setting.parse(setting)) is None:
            ast.parse(render(one, Setting.parse(setting), "doc").text)
