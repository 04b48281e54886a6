"""What a case does around its gradients: each feature by the lines that it writes, and no others."""

from typing import Literal

import pytest
from torch_cases import case, chain, layer

from d3bot.frameworks import obstacle, render
from d3bot.spec import Case, Cast, Clip, Freeze, Group, Input, Layer, Optimizer, Setting, Skip, SpecError, Tie

DEEP = chain("linear", "tanh", "linear", "tanh", "linear")
"""Layers a, c and e are linear."""


def text(one: Case, setting: str = "ddp(world=2)") -> str:
    return render(one, Setting.parse(setting), "doc").text


def halves(one: Case, setting: str) -> tuple[str, str]:
    """Return the text of the reference and that of the distributed half."""
    before, _, after = text(one, setting).partition("def distributed(")
    return before.partition("def reference(")[2], after.partition("def save(")[0]


def with_(**changes: object) -> Case:
    return case(layers=DEEP.layers, **changes)


@pytest.mark.parametrize(
    ("one", "setting", "reference", "distributed"),
    [
        (
            with_(freeze=(Freeze(layer="a", until=1),)),
            "fsdp1(world=2)",
            "if step == 1: model[0].requires_grad_(True)",
            "if step == 1: model[0].requires_grad_(True)",
        ),
        (
            with_(clip=Clip(limit=0.5, order="1")),
            "fsdp1(world=2)",
            "norm = sum(grad.abs().sum() for grad in grads)",
            "model.clip_grad_norm_(0.5, norm_type=1.0)",
        ),
        (
            with_(clip=Clip(limit=0.5, order="inf")),
            "fsdp2(world=2)",
            "norm = max(grad.abs().max() for grad in grads)",
            'nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type=float("inf"))',
        ),
        (
            with_(accumulate=2),
            "ddp(world=2)",
            "(loss / WORLD).backward()",
            "for part in parts:  # micro-batches",
        ),
        (
            with_(accumulate=4),
            "ddp(world=2, no_sync=true)",
            "(loss / WORLD).backward()",
            "with ddp.no_sync() if i < 3 else nullcontext():",
        ),
        (
            with_(accumulate=2),
            "fsdp2(world=2, no_sync=true)",
            "(loss / WORLD).backward()",
            "model.set_requires_gradient_sync(i == 1)",
        ),
        (
            with_(accumulate=2),
            "hsdp(world=4, all_reduce_last=true)",
            "(loss / WORLD).backward()",
            "model.set_requires_all_reduce(i == 1)",
        ),
        (
            with_(groups=(Group(layers=("c",), lr=0.5), Group())),
            "ddp(world=2)",
            '{"params": [*model[2].parameters()], "lr": 0.5},',
            '{"params": []},',
        ),
        (
            with_(groups=(Group(layers=("c",), weight_decay=0.5, at=1),)),
            "zero1(world=2)",
            'if step == 1: optimizer.add_param_group({"params": [*model[2].parameters()], "weight_decay": 0.5})',
            "optimizer = ZeroRedundancyOptimizer(groups, torch.optim.SGD",
        ),
        (
            with_(ema=0.75),
            "ddp(world=2)",
            "averages = {name: 0.75 * averages.get(name, value) + 0.25 * value for name, value in now.items()}",
            "average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.75))",
        ),
        (
            with_(swa=True),
            "zero1(world=2)",
            "averages = {name: averages.get(name, 0) + value / STEPS for name, value in now.items()}",
            "average = AveragedModel(model)",
        ),
        (
            case(layers=chain("linear", "batch_norm", "linear").layers, swa=True, average_buffers=True),
            "ddp(world=2)",
            'now |= {f"{name} {rank}": b for name, b in buffers[rank].items() if b.is_floating_point()}',
            "average = AveragedModel(model, use_buffers=True)",
        ),
        (
            with_(swa=True),
            "fsdp2(world=2)",
            "averages.get(name, 0) + value / STEPS",
            "for model in (average.module, model):  # FSDP supports no copies of what it has wrapped",
        ),
        (
            with_(in_backward=True),
            "fsdp2(world=2)",
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            "optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}",
        ),
        (
            with_(in_backward=True, freeze=(Freeze(layer="a"),)),
            "tp(world=2)",
            "optimizer.step()",
            "optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters() if p.requires_grad}",
        ),
        (
            with_(in_backward=True, optimizer=Optimizer(momentum=0.5)),
            "fsdp1(world=2)",
            "optimizer.step()",
            "_apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), dict(lr=0.1, momentum=0.5), "
            "register_hook=False)",
        ),
        (
            with_(in_backward=True, freeze=(Freeze(layer="a"),)),
            "fsdp1(world=2)",
            "optimizer.step()",
            "_apply_optimizer_in_backward(torch.optim.SGD, [p for p in model.parameters() if p.requires_grad], "
            "dict(lr=0.1), register_hook=False)",
        ),
        (
            with_(skips=(Skip(layer="c", at=1),)),
            "fsdp1(world=2)",
            "model.skipped = {1: ['c']}.get(step, [])",
            "model.module.skipped = {1: ['c']}.get(step, [])",
        ),
    ],
)
def test_both_halves_say_it(one: Case, setting: str, reference: str, distributed: str) -> None:
    found = halves(one, setting)
    assert reference in found[0]
    assert distributed in found[1]


def test_the_reference_of_micro_batches_is_one_batch() -> None:
    assert halves(with_(accumulate=2), "ddp(world=2)")[0] == halves(with_(), "ddp(world=2)")[0]


def test_a_group_added_late_leaves_gradients_that_only_the_model_clears() -> None:
    late = with_(groups=(Group(layers=("c",), at=1),))
    assert "model.zero_grad()" in text(late)
    assert "optimizer.zero_grad()" not in text(late)


def test_a_tied_weight_is_in_the_group_of_the_layer_it_was_taken_from() -> None:
    tied = with_(tie=(Tie(layer="c", to="a"),), groups=(Group(layers=("c",)),))
    assert '{"params": [*model[0].parameters(), *model[4].parameters()]},' in text(tied)
    assert '{"params": [model[2].bias]},' in text(tied)


def test_what_is_never_used_is_not_in_forward() -> None:
    found = text(with_(skips=(Skip(layer="c"),)), "fsdp2(world=2)")
    assert "self.c = nn.Linear(6, 6)" in found
    assert "self.c(" not in found
    assert "skipped" not in found


def test_one_step_says_at_once_what_it_leaves_out() -> None:
    assert "model.skipped = ['c']" in text(with_(steps=1, skips=(Skip(layer="c", at=0),)), "fsdp2(world=2)")


def test_only_a_layer_that_keeps_its_inputs_shape_can_be_left_out() -> None:
    with pytest.raises(SpecError, match="only a layer that keeps its input's shape"):
        text(case(layers=(layer("a", "linear", "x", units=4), layer("b", "tanh", "a")), skips=(Skip(layer="a"),)))


CLASSES = case(loss="cross_entropy", batch=12)


def test_ignored_rows_and_class_weights() -> None:
    found = text(CLASSES.model_copy(update={"ignored": 2, "weights": "class"}))
    assert "target[:2] = -100" in found
    assert "F.cross_entropy(model(x), target, weight=torch.tensor([0.5, 2.0]))" in found


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("ddp(world=2)", 'F.mse_loss(model(x), target, reduction="sum")'),
        ("pp(world=2)", 'loss_fn=lambda output, target: F.mse_loss(output, target, reduction="sum")'),
    ],
)
def test_a_sum_over_the_rows(setting: str, written: str) -> None:
    assert written in text(case(reduction="sum"), setting)
    assert "/ 2\n" not in text(case(reduction="sum", accumulate=2), "fsdp2(world=2)")


MICRO = {"accumulate": 2, "batch": 12}


@pytest.mark.parametrize(
    ("one", "setting", "why"),
    [
        (case(**MICRO), "ddp(world=3)", ""),
        (case(**MICRO), "ddp(world=4)", "do not divide into 2 micro-batches each"),
        (case(**MICRO), "pp(world=2)", "splits the batch itself"),
        (case(loss="cross_entropy", weights="class", **MICRO), "fsdp2(world=2)", "is not that of the whole batch"),
        (case(loss="cross_entropy", weights="class", reduction="sum", **MICRO), "fsdp2(world=2)", ""),
        (CLASSES.model_copy(update={"ignored": 6}), "ddp(world=2)", "the mean over nothing"),
        (CLASSES.model_copy(update={"ignored": 5}), "ddp(world=2)", ""),
        (CLASSES.model_copy(update={"ignored": 3}), "pp(world=2)", "the mean over nothing"),
        (with_(skips=(Skip(layer="c"),)), "ddp(world=2)", "waits for the gradient of every parameter"),
        (with_(skips=(Skip(layer="c"),)), "ddp(world=2, static_graph=true)", ""),
        (with_(skips=(Skip(layer="c", at=1),)), "ddp(world=2, static_graph=true)", "stays the same"),
        (with_(skips=(Skip(layer="c", at=1),)), "ddp(world=2, find_unused_parameters=true)", ""),
        (with_(skips=(Skip(layer="c"),)), "fsdp1(world=2, wrap=root)", "zero gradient"),
        (with_(freeze=(Freeze(layer="a", until=1),)), "zero1(world=2)", "must not change after DDP has wrapped"),
    ],
)
def test_the_promise_holds_or_not(one: Case, setting: str, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


def test_a_layer_that_is_left_out_is_in_no_pair_of_column_and_row() -> None:
    plan = text(with_(skips=(Skip(layer="c", at=1),)), "tp(world=2)").partition("plan = ")[2].partition("\n")[0]
    assert "ColwiseParallel()" not in plan
    assert "ColwiseParallel()" in text(with_(), "tp(world=2)")


# Lower precision


HALF = {"dtype": "float32", "mixed": "float16"}
BRAIN = {"dtype": "float32", "mixed": "bfloat16"}


def test_a_layer_of_another_type_computes_in_it() -> None:
    found = text(with_(casts=(Cast(layer="c", dtype="bfloat16"),)), "fsdp2(world=2)")
    assert "self.c(b.to(torch.bfloat16)).to(torch.float64)" in found
    assert "model.c.to(torch.bfloat16)" in found
    assert "p.grad.to(torch.float64).numpy().copy()" in found, "numpy has no bfloat16"


def test_autocast_is_around_the_forward_pass_of_both_halves_and_the_mean_is_taken_last() -> None:
    for half in halves(with_(**BRAIN), "ddp(world=2)"):
        assert 'with torch.autocast("cpu", torch.bfloat16):' in half
        assert "loss.backward()" in half
        assert "scale" not in half
    assert "p.grad /= WORLD\n" in halves(with_(**BRAIN), "ddp(world=2)")[0]


@pytest.mark.parametrize(
    ("setting", "scaler"),
    [
        ("ddp(world=2)", 'torch.amp.GradScaler("cpu")'),
        ("fsdp1(world=2)", 'ShardedGradScaler(device="cpu")'),
    ],
)
def test_loss_scaling_is_written_out_in_the_reference(setting: str, scaler: str) -> None:
    reference, distributed = halves(with_(**HALF), setting)
    assert "scaler" not in reference
    assert "(loss * scale).backward()" in reference
    assert "p.grad /= WORLD * scale\n" in reference
    assert "scale /= 2" in reference
    assert f"scaler = {scaler}" in distributed
    assert "scaler.scale(loss).backward()" in distributed
    assert "scaler.step(optimizer)" in distributed


# What the distributed half alone does


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"recompute": ("c",)}, "layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)"),
        ({"recompute": ("c", "e"), "reentrant": True}, "for layer in [model[2], model[4]]:"),
        ({"compiler": "aot_eager"}, 'model.compile(backend="aot_eager")'),
    ],
)
def test_the_reference_knows_nothing_of_it(changes: dict[str, object], written: str) -> None:
    plain, special = with_(), with_(**changes)
    assert halves(special, "fsdp2(world=2)")[0] == halves(plain, "fsdp2(world=2)")[0]
    assert written in halves(special, "fsdp2(world=2)")[1]


NORMED = case(layers=(layer("n", "batch_norm", "x"), layer("a", "linear", "n", units=2)), batch=8)


@pytest.mark.parametrize(
    ("one", "setting", "why"),
    [
        (with_(**BRAIN), "ddp(world=2)", ""),
        (with_(**BRAIN), "ddp(world=3)", "may become other numbers"),
        (with_(**BRAIN, steps=1), "ddp(world=3)", ""),
        (with_(**BRAIN, clip=Clip(limit=1.0)), "fsdp2(world=2)", "may become other numbers"),
        (with_(**BRAIN, accumulate=2), "ddp(world=2)", "rounded by itself"),
        (with_(**BRAIN, tie=(Tie(layer="c", to="a"),)), "fsdp1(world=2)", "rounded before they are added"),
        (with_(**BRAIN, tie=(Tie(layer="c", to="a"),)), "ddp(world=2)", ""),
        (with_(**BRAIN), "tp(world=2)", "rounded to the lower precision"),
        (with_(**BRAIN), "pp(world=2)", "forward pass"),
        (with_(**BRAIN), "ddp(world=2, comm_hook=fp16)", "rounded twice"),
        (with_(casts=(Cast(layer="c", dtype="bfloat16"),)), "ddp(world=2)", ""),
        (with_(casts=(Cast(layer="c", dtype="bfloat16"),)), "ddp(world=3)", "the order of a bfloat16 sum"),
        (with_(casts=(Cast(layer="c", dtype="float32"),)), "ddp(world=3)", ""),
        (with_(casts=(Cast(layer="c", dtype="float32"),)), "zero1(world=2)", "the same dense type"),
        (with_(casts=(Cast(layer="c", dtype="float32"),)), "fsdp2(world=2, wrap=root)", "of one type"),
        (
            with_(casts=(Cast(layer="c", dtype="float32"),), freeze=(Freeze(layer="c"),)),
            "fsdp2(world=2, wrap=root)",
            "",
        ),
        (with_(casts=(Cast(layer="c", dtype="float32"),), clip=Clip(limit=1.0)), "tp(world=2)", "several types"),
        (NORMED.model_copy(update={"recompute": ("n",)}), "fsdp2(world=2)", "its statistics twice"),
        (with_(recompute=("a",), reentrant=True), "fsdp2(world=2)", "only where an input has one"),
        (with_(recompute=("c",), reentrant=True), "fsdp2(world=2)", ""),
        (with_(recompute=("c",), reentrant=True), "ddp(world=2)", "under static_graph"),
        (with_(recompute=("c",), reentrant=True), "ddp(world=2, static_graph=true)", ""),
        (with_(compiler="eager"), "pp(world=2)", "how a compiled module becomes a stage"),
    ],
)
def test_what_can_be_compared_of_it(one: Case, setting: str, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert bool(found) is bool(why)
    assert why in (found or "")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"casts": (Cast(layer="b", dtype="float32"),)}, "casts: b is a tanh"),
        ({"recompute": ("b",)}, "recompute: b is a tanh"),
    ],
)
def test_only_layers_with_parameters_are_cast_and_recomputed(changes: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        text(with_(**changes))


# Layers and optimizers


def test_a_learned_number_brings_its_class_along() -> None:
    one = case(layers=(layer("a", "scale", "x"), layer("b", "scale", "a"), layer("c", "linear", "b", units=2)))
    assert text(one).count("class Scale(nn.Module):") == 1
    assert "nn.Sequential(Scale(), Scale(), nn.Linear(6, 2))" in text(one)
    assert "class Scale" not in text(case())


@pytest.mark.parametrize(
    ("shape", "made", "written"),
    [
        ((3, 6, 6), layer("a", "max_pool", "x"), "nn.MaxPool2d(2)"),
        ((3, 6, 6), layer("a", "avg_pool", "x", size=3), "nn.AvgPool2d(3)"),
        ((4, 6, 6), layer("a", "group_norm", "x"), "nn.GroupNorm(2, 4)"),
        ((6,), layer("a", "rms_norm", "x"), "nn.RMSNorm(6)"),
        ((4, 6), layer("a", "gru", "x", units=3), "nn.GRU(6, 3, batch_first=True)"),
    ],
)
def test_a_layer_as_pytorch_writes_it(shape: tuple[int, ...], made: Layer, written: str) -> None:
    ends = (layer("b", "flatten", "a"), layer("c", "linear", "b", units=2))
    assert written in text(case(inputs=(Input(name="x", shape=shape),), layers=(made, *ends)))


@pytest.mark.parametrize(
    ("shape", "made", "why"),
    [
        ((4, 6), layer("a", "max_pool", "x"), "needs an image"),
        ((3, 6, 1), layer("a", "avg_pool", "x"), "windows of 2 do not fit"),
        ((3, 6, 6), layer("a", "group_norm", "x"), "3 channels do not divide into 2 groups"),
        ((4, 6), layer("a", "group_norm", "x"), "needs a vector or an image"),
    ],
)
def test_a_layer_that_does_not_fit(shape: tuple[int, ...], made: Layer, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        text(case(inputs=(Input(name="x", shape=shape),), layers=(made, layer("b", "flatten", "a"))))


@pytest.mark.parametrize(("name", "written"), [("adagrad", "torch.optim.Adagrad"), ("rmsprop", "torch.optim.RMSprop")])
def test_more_optimizers(name: Literal["adagrad", "rmsprop"], written: str) -> None:
    assert f"{written}(model.parameters(), lr=0.1)" in text(case(optimizer=Optimizer(name=name)))
