"""For which trials the rule's preconditions do not hold, and why."""

from typing import Any

import pytest
from keras_cases import TOKENS, case, layer

from d3bot.frameworks import canonical_setting, obstacle, standing_settings
from d3bot.frameworks.tensorflow.families import FAMILIES
from d3bot.spec import Case, Clip, Freeze, Layer, Optimizer, Setting, SpecError, Tie

FIT = case(loop="fit")
LOW: dict[str, Any] = {"loop": "fit", "dtype": "float32", "mixed": "bfloat16"}
NORM = (layer("norm", "batch_norm", "x"), layer("out", "linear", "norm", units=2))
LABELS: dict[str, Any] = {"loss": "cross_entropy"}
LOOP = (layer("embed", "embedding", "words", dim=4), layer("rnn", "gru", "embed", units=3), layer("end", "last", "rnn"))
SYNC = (layer("norm", "sync_batch_norm", "x"), layer("out", "linear", "norm", units=2))
MORE = (layer("own", "batch_norm", "norm"), layer("out", "linear", "own", units=2))


def dropout(rate: float) -> tuple[Layer, ...]:
    return (layer("drop", "dropout", "x", rate=rate), layer("out", "linear", "drop", units=2))


SQUARE = tuple(layer(name, "linear", source, units=6) for name, source in (("a", "x"), ("b", "a"), ("c", "b")))

TABLE: list[tuple[str, Case, str, str]] = [
    ("a custom loop", case(), "mirrored(replicas=3)", ""),
    ("fit", FIT, "mirrored(replicas=3)", ""),
    ("uneven, custom", case(batch=7), "mirrored(replicas=3)", ""),
    ("uneven, fit", case(batch=7, loop="fit"), "mirrored(replicas=3)", "unequal shares of 7 rows"),
    ("a replica without rows", case(batch=2), "mirrored(replicas=3)", "leaves a replica of 3 without a row"),
    ("batch norm, even", case(layers=NORM), "mirrored(replicas=3)", ""),
    ("batch norm, uneven", case(layers=NORM, batch=10), "mirrored(replicas=3)", "which rows a replica gets"),
    ("batch norm, one row", case(layers=NORM, batch=3), "mirrored(replicas=3)", "at least two rows"),
    ("batch norm under fit", case(layers=NORM, loop="fit"), "mirrored(replicas=2)", ""),
    ("fit on a server", FIT, "parameter_server(workers=1)", "takes a DatasetCreator only"),
    ("a custom loop on a server", case(batch=7), "parameter_server(workers=2)", ""),
    ("fit on several workers", FIT, "multi_worker(workers=2)", "takes no values of several workers"),
    ("uneven, divided by the library", case(batch=7), "multi_worker(workers=2)", ""),
    ("uneven, divided by file", case(batch=7), "multi_worker(workers=2, shard=file)", "7 do not divide by 2"),
    ("a worker without rows", case(batch=3), "multi_worker(workers=4)", "leaves a worker of 4 without a row"),
    ("batch norm on workers", case(layers=NORM), "multi_worker(workers=2, shard=data)", ""),
    ("batch norm, rows unknown", case(layers=NORM), "multi_worker(workers=2, shard=off)", "which rows a worker gets"),
    (
        "one shard of each",
        case(),
        "parameter_server(workers=1, partitioner=fixed)",
        "one server holds every variable whole",
    ),
    ("shards", case(), "parameter_server(workers=1, servers=2, partitioner=fixed)", ""),
    ("NCCL without a GPU", case(), "mirrored(replicas=2, ops=nccl)", "No OpKernel was registered"),
    ("a batch for every replica", case(), "mirrored(replicas=3, input=function)", ""),
    ("unequal batches", case(batch=7), "mirrored(replicas=2, input=function)", "do not divide by 2 into batches"),
    ("a replica without a batch", case(batch=7), "mirrored(replicas=2, input=tail)", ""),
    ("the only replica without a batch", case(), "mirrored(replicas=1, input=tail)", "cannot be left without a batch"),
    ("batch norm without a batch", case(layers=NORM), "mirrored(replicas=2, input=tail)", "rows on every replica"),
    ("fit with batches of one's own", FIT, "mirrored(replicas=2, input=tail)", "fit divides the rows itself"),
    ("fit on one device", FIT, "one_device", ""),
    ("batch norm on one device", case(layers=NORM), "one_device", ""),
    ("one copy of a statistic", case(layers=NORM), "central_storage(replicas=2)", "of which there is one copy"),
    ("fit with central storage", FIT, "central_storage(replicas=3)", ""),
    ("uneven fit with central storage", case(batch=7, loop="fit"), "central_storage(replicas=2)", "unequal shares"),
    ("on a mesh", case(), "dtensor(replicas=2, model=2)", ""),
    ("a mesh of one device", case(), "dtensor(replicas=1)", "splits nothing"),
    ("rows that do not split", case(batch=7), "dtensor(replicas=2)", "7 rows does not split over 2 devices"),
    ("momentum on a mesh", case(optimizer=Optimizer(momentum=0.5)), "dtensor(replicas=2)", "plain SGD"),
    ("no SPMD expansion", case(layers=NORM), "dtensor(replicas=2)", "expands batch_norm is not documented"),
    (
        "a loop on a mesh",
        case(inputs=TOKENS, layers=(layer("e", "embedding", "words", dim=4), layer("r", "lstm", "e", units=4))),
        "dtensor(replicas=2)",
        "does not implement layout propagation",
    ),
    ("interrupted", case(), "restore(replicas=2, into=3)", ""),
    ("interrupted fit", FIT, "restore(replicas=2)", "starts its metrics anew"),
    ("one step", case(steps=1), "restore(replicas=2)", "cannot be interrupted"),
    (
        "fewer rows than replicas that go on",
        case(batch=3),
        "restore(replicas=2, into=4)",
        "a replica of 4 without a row",
    ),
    ("interrupted batch norm", case(layers=NORM), "restore(replicas=2)", "a checkpoint holds one value of them"),
    ("frozen from the start", case(loop="fit", freeze=(Freeze(layer="hidden"),)), "mirrored(replicas=2)", ""),
    ("frozen later", case(freeze=(Freeze(layer="hidden", at=1),)), "mirrored(replicas=2)", ""),
    (
        "frozen later under fit",
        case(loop="fit", freeze=(Freeze(layer="hidden", at=1),)),
        "mirrored(replicas=2)",
        "until compile is called again",
    ),
    (
        "all frozen",
        case(freeze=(Freeze(layer="hidden"), Freeze(layer="out"))),
        "mirrored(replicas=2)",
        "no gradient to compare",
    ),
    ("two linears of one shape", case(layers=SQUARE, tie=(Tie(layer="b", to="a"),)), "mirrored(replicas=2)", ""),
    (
        "linears of two shapes",
        case(tie=(Tie(layer="out", to="hidden"),)),
        "mirrored(replicas=2)",
        "differ in shape or options",
    ),
    (
        "embedding and linear",
        case(
            inputs=TOKENS,
            layers=(
                layer("embed", "embedding", "words", dim=4),
                layer("pool", "mean", "embed"),
                layer("head", "linear", "pool", units=9, bias=False),
            ),
            tie=(Tie(layer="head", to="embed"),),
        ),
        "parameter_server(workers=1)",
        "are not two linear layers",
    ),
    ("sums under fit", case(loop="fit", reduction="sum"), "mirrored(replicas=2)", ""),
    ("ignored rows", case(loss="cross_entropy", ignored=2), "mirrored(replicas=2)", ""),
    (
        "ignored rows under fit",
        case(loop="fit", **LABELS, ignored=2),
        "mirrored(replicas=2)",
        "rows that count on each",
    ),
    ("their sum under fit", case(loop="fit", **LABELS, ignored=2, reduction="sum"), "mirrored(replicas=2)", ""),
    (
        "a running mean, uneven",
        case(batch=7, running_mean=True),
        "mirrored(replicas=2)",
        "is not the mean over its rows",
    ),
    ("synchronised, uneven", case(layers=SYNC, batch=7), "mirrored(replicas=3)", ""),
    ("both batch norms", case(layers=SYNC[:1] + MORE), "mirrored(replicas=2)", "beside those of the global batch"),
    ("a dropout that drops nothing", case(layers=dropout(1e-12)), "mirrored(replicas=2)", ""),
    ("a dropout", case(layers=dropout(0.5)), "mirrored(replicas=2)", "draws its own zeros"),
    ("lower precision", case(**LOW), "mirrored(replicas=2)", ""),
    (
        "lower precision, Adam",
        case(**LOW, optimizer=Optimizer(name="adam")),
        "one_device",
        "a whole step of one rounding",
    ),
    ("lower precision, clipped", case(**LOW, clip=Clip(limit=1.0)), "one_device", "no bound here"),
    ("lower precision, a sum", case(**LOW, reduction="sum"), "one_device", "on how many rows"),
    ("compiled", case(loop="fit", compiler="xla"), "mirrored(replicas=3)", ""),
    ("compiled, custom", case(compiler="xla"), "mirrored(replicas=3)", ""),
    ("compiled, synchronised", case(compiler="xla", layers=SYNC), "mirrored(replicas=2)", "not yet supported"),
    ("compiled, one copy", case(compiler="xla"), "central_storage(replicas=2)", "runs on exactly one device"),
    ("compiled on a server", case(compiler="xla"), "parameter_server(workers=1)", "runs on exactly one device"),
    ("compiled on a mesh", case(compiler="xla"), "dtensor(replicas=2)", "plain SGD"),
    ("a compiled loop", case(inputs=TOKENS, layers=LOOP, compiler="xla"), "one_device", "the XLA/TF boundary"),
    ("a compiled loop, fit", case(inputs=TOKENS, layers=LOOP, compiler="xla", loop="fit"), "one_device", ""),
    ("lower precision, custom", case(**LOW | {"loop": "custom"}), "parameter_server(workers=2)", ""),
    (
        "lower precision, custom, clipped",
        case(**LOW | {"loop": "custom"}, clip=Clip(limit=1.0)),
        "mirrored(replicas=2)",
        "no bound here",
    ),
    ("tf_keras", FIT, "tf_keras(replicas=3)", ""),
    ("tf_keras, custom, uneven", case(batch=7), "tf_keras(replicas=2, strategy=central_storage)", ""),
    ("tf_keras, uneven", case(batch=7, loop="train_on_batch"), "tf_keras(replicas=2)", "unequal shares of 7 rows"),
    ("tf_keras, accumulation", case(accumulate=2, loop="fit"), "tf_keras(replicas=2)", "gradient_accumulation_steps"),
    ("tf_keras, batch norm", case(layers=NORM, loop="fit"), "tf_keras(replicas=2)", ""),
    ("tf_keras, own statistics", case(layers=NORM), "tf_keras(replicas=2)", "statistics of its own"),
    (
        "tf_keras, one copy of a statistic",
        case(layers=NORM, loop="fit"),
        "tf_keras(replicas=2, strategy=central_storage)",
        "of which there is one copy",
    ),
    (
        "tf_keras, ops without a choice",
        FIT,
        "tf_keras(replicas=2, strategy=central_storage, ops=collective)",
        "no cross-device ops",
    ),
    ("tf_keras, r2 in float64", case(loop="fit", metrics=("r2",)), "tf_keras(replicas=2)", "float32 into float64"),
    (
        "tf_keras, float16",
        case(**LOW | {"loop": "custom", "mixed": "float16"}),
        "tf_keras(replicas=2)",
        "get_scaled_loss",
    ),
    ("accumulation", case(accumulate=2), "one_device", ""),
    ("accumulation, replicas", case(accumulate=2), "mirrored(replicas=2)", "keras-team/keras#20582"),
    ("accumulation, fit", case(accumulate=2, loop="fit"), "mirrored(replicas=2)", ""),
    ("accumulation, server", case(accumulate=2), "parameter_server(workers=1)", "keras-team/keras#20582"),
    ("accumulated sums", case(accumulate=2, reduction="sum"), "one_device", "which is not their sum"),
    ("accumulation, batch norm", case(accumulate=2, layers=NORM), "one_device", "one micro-batch at a time"),
    ("thawed", case(freeze=(Freeze(layer="hidden", until=1),)), "mirrored(replicas=2)", ""),
    ("one batch of the whole", case(loop="train_on_batch", batch=7), "mirrored(replicas=2)", ""),
    ("evaluated sums", case(loop="fit", evaluate=True, reduction="sum"), "mirrored(replicas=2)", "of unequal size"),
    ("two best in float64", case(loop="fit", **LABELS, metrics=("top_2",)), "mirrored(replicas=2)", "no kernel"),
    ("accuracy of numbers", case(loop="fit", metrics=("accuracy",)), "mirrored(replicas=2)", "needs the loss"),
    (
        "mean absolute error of labels",
        case(loop="fit", loss="cross_entropy", metrics=("mae",)),
        "mirrored(replicas=2)",
        "no meaning for class labels",
    ),
]


@pytest.mark.parametrize(("what", "one", "setting", "why"), TABLE, ids=[row[0] for row in TABLE])
def test_obstacles(what: str, one: Case, setting: str, why: str) -> None:
    found = obstacle(one, Setting.parse(setting))
    assert (why in found if found else False) if why else found is None


def test_the_standing_settings_are_canonical() -> None:
    assert [str(setting) for setting in standing_settings("tensorflow")] == [
        "one_device",
        "mirrored(replicas=2)",
        "mirrored(replicas=3)",
        "mirrored(replicas=2, ops=hierarchical)",
        "mirrored(replicas=2, ops=collective)",
        "parameter_server(workers=1)",
        "parameter_server(workers=2)",
    ]


@pytest.mark.parametrize(
    ("setting", "mend"),
    [
        ("mirrored", "replicas must be given"),
        ("mirrored(replicas=9)", "from 1 to 8"),
        ("mirrored(replicas=2, ops=ring)", "one_device, hierarchical, collective, nccl"),
        ("multi_worker(workers=1)", "from 2 to 4"),
        ("multi_worker(workers=2, shard=rows)", "auto, data, off, file, function"),
        ("parameter_server(workers=1, servers=0)", "from 1 to 4"),
    ],
)
def test_a_wrong_option_is_told_with_what_it_takes(setting: str, mend: str) -> None:
    with pytest.raises(SpecError, match=mend):
        canonical_setting("tensorflow", Setting.parse(setting))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_contract_quotes_a_document_and_its_version(family: object) -> None:
    source = FAMILIES[family.name].contract.source  # type: ignore[attr-defined]
    assert source.count('"') >= 2
    assert "2.21" in source
