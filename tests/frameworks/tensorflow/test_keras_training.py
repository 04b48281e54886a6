"""Scripts on the real library: both sides train, see the same arrays, and agree as far as the noise allows."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from keras_cases import IMAGE, TOKENS, case, layer

from d3bot.engine.jobs import Job
from d3bot.engine.pool import Pool
from d3bot.frameworks import View, render, script_env
from d3bot.frameworks.tensorflow.families import FAMILIES
from d3bot.judge.bounds import K, floors
from d3bot.spec import Build, Case, Freeze, Optimizer, Role, Setting, Tie, parse_name

SEQUENCE = case(
    inputs=TOKENS,
    layers=(
        layer("embed", "embedding", "words", dim=4),
        layer("rnn", "lstm", "embed", units=4),
        layer("att", "attention", "rnn"),
        layer("skip", "add", "att embed"),
        layer("norm", "layer_norm", "skip"),
        layer("conv", "conv1d", "norm", channels=4, kernel=2),
        layer("end", "last", "conv"),
        layer("one", "linear", "end", units=4),
        layer("act", "gelu", "one"),
        layer("two", "linear", "act", units=4),
        layer("gate", "sigmoid", "end"),
        layer("gated", "mul", "two gate"),
        layer("all", "concat", "gated end"),
        layer("out", "linear", "all", units=3),
    ),
    tie=(Tie(layer="two", to="one"),),
    loss="cross_entropy",
    optimizer=Optimizer(name="adam", lr=0.01, decay_rate=0.9),
)
PICTURE = (
    layer("conv", "conv2d", "x", channels=3),
    layer("norm", "batch_norm", "conv"),
    layer("act", "relu", "norm"),
    layer("flat", "flatten", "act"),
    layer("out", "linear", "flat", units=2),
)
GROUPED = (layer("conv", "conv2d", "x", channels=4), layer("norm", "group_norm", "conv"), *PICTURE[2:])
GATED = (
    layer("embed", "embedding", "words", dim=4),
    layer("rnn", "gru", "embed", units=3),
    layer("end", "last", "rnn"),
)
HEALTHY: list[tuple[Case, str]] = [
    (SEQUENCE, "mirrored(replicas=2)"),
    (SEQUENCE, "parameter_server(workers=2)"),
    (SEQUENCE, "parameter_server(workers=1, servers=2, partitioner=fixed)"),
    (case(batch=7), "mirrored(replicas=3)"),
    (case(batch=7), "multi_worker(workers=2)"),
    (case(batch=7), "mirrored(replicas=3, input=tail)"),
    (case(), "mirrored(replicas=2, input=function)"),
    (case(), "one_device"),
    (case(batch=7), "central_storage(replicas=2)"),
    (case(), "dtensor(replicas=2, model=2)"),
    (case(), "dtensor(replicas=3)"),
    (case(optimizer=Optimizer(name="adam", lr=0.01)), "restore(replicas=3, into=2)"),
    (case(batch=7, optimizer=Optimizer(lr=0.1, momentum=0.5)), "restore(replicas=1, into=3, by=values)"),
    (case(freeze=(Freeze(layer="hidden", at=1),)), "multi_worker(workers=2, shard=file)"),
    (case(steps=1), "multi_worker(workers=2, shard=off)"),
    (case(freeze=(Freeze(layer="hidden", at=1),)), "mirrored(replicas=2, ops=collective)"),
    (case(inputs=IMAGE, layers=PICTURE), "parameter_server(workers=1)"),
    (case(inputs=IMAGE, layers=PICTURE, loop="fit", metrics=("mae",)), "mirrored(replicas=2)"),
    (
        case(loop="fit", dtype="float32", optimizer=Optimizer(name="adamw", lr=0.01, weight_decay=0.1)),
        "mirrored(replicas=3)",
    ),
]


@pytest.fixture(scope="module")
def pool(tensorflow_build: Build) -> Iterator[Pool]:
    with Pool(tensorflow_build, script_env("tensorflow"), 1) as running:
        yield running


@pytest.mark.parametrize(("one", "text"), HEALTHY, ids=lambda value: value if isinstance(value, str) else value.id)
def test_both_sides_see_the_same_arrays_and_agree(one: Case, text: str, pool: Pool, tmp_path: Path) -> None:
    setting = Setting.parse(text)
    script = render(one, setting, "doc")
    path = tmp_path / "trial.py"
    path.write_text(script.text)
    common = {"parts": script.parts, "steps": script.steps}
    reference = pool.run(Job(path, "reference", "tensorflow", noise=("order", "move"), **common))
    distributed = pool.run(Job(path, "distributed", "tensorflow", processes=script.processes, **common))
    expected, seen = reference.ranks[0].arrays, distributed.ranks[0].arrays
    assert expected is not None, reference.ranks[0].error
    assert seen is not None, distributed.ranks[0].error
    assert set(seen) == set(expected)
    floor = floors(expected, reference.noise, FAMILIES[setting.family].rounding(one, setting))
    for name, array in expected.items():
        assert array.dtype == seen[name].dtype
        assert parse_name(name).role == "rows" or array.dtype == one.dtype
        assert np.abs(seen[name] - array).max() <= K * floor[name], name


EXTRAS: list[tuple[Case, str]] = [
    (case(l2=0.05, weights="sample", dtype="float32", batch=7), "mirrored(replicas=2)"),
    (case(l2=0.05, loop="fit", loss="cross_entropy", weights="class"), "mirrored(replicas=2)"),
    (case(loss="cross_entropy", ignored=3, reduction="sum", optimizer=Optimizer(lr=0.01)), "mirrored(replicas=3)"),
    (case(ema=0.75, running_mean=True, freeze=(Freeze(layer="hidden", at=1),)), "mirrored(replicas=2)"),
    (case(ema=0.75, running_mean=True, loss="cross_entropy"), "parameter_server(workers=1)"),
    (
        case(freeze=(Freeze(layer="hidden", until=1),), optimizer=Optimizer(name="adam", lr=0.01)),
        "mirrored(replicas=2)",
    ),
    (case(accumulate=3, optimizer=Optimizer(lr=0.1, weight_decay=0.1, decay_rate=0.5)), "one_device"),
    (case(loop="train_on_batch", batch=7, metrics=("r2",)), "mirrored(replicas=2)"),
    (case(inputs=IMAGE, layers=GROUPED), "mirrored(replicas=2)"),
    (case(inputs=TOKENS, layers=GATED), "parameter_server(workers=1)"),
    (case(loop="fit", compiler="xla"), "mirrored(replicas=2)"),
    (case(loop="fit", dtype="float32", mixed="float16"), "mirrored(replicas=2, ops=collective)"),
    (case(loop="train_on_batch", dtype="float32", mixed="bfloat16"), "one_device"),
    (case(compiler="xla", batch=7), "mirrored(replicas=2)"),
    (case(dtype="float32", mixed="float16"), "mirrored(replicas=2, ops=collective)"),
    (case(dtype="float32", mixed="bfloat16"), "parameter_server(workers=1)"),
    (case(loop="fit", evaluate=True, metrics=("mae", "rmse"), weights="sample"), "mirrored(replicas=2)"),
]


@pytest.mark.parametrize(("one", "text"), EXTRAS, ids=lambda value: value if isinstance(value, str) else value.id)
def test_what_else_a_case_does_agrees_too(one: Case, text: str, pool: Pool, tmp_path: Path) -> None:
    test_both_sides_see_the_same_arrays_and_agree(one, text, pool, tmp_path)


VIEWS: list[tuple[Case, str, tuple[Role, ...]]] = [
    (case(inputs=IMAGE, layers=PICTURE), "mirrored(replicas=2)", ("buffer",)),
    (case(inputs=IMAGE, layers=PICTURE), "parameter_server(workers=1)", ("loss", "buffer")),
    (case(inputs=IMAGE, layers=PICTURE), "parameter_server(workers=1)", ("param",)),
    (case(inputs=IMAGE, layers=PICTURE, loop="fit", metrics=("mae",)), "mirrored(replicas=2)", ("metric",)),
    (case(), "mirrored(replicas=2)", ("grad",)),
    (case(), "multi_worker(workers=2)", ("rows",)),
    (case(), "restore(replicas=2)", ("metric",)),
    (case(), "mirrored(replicas=2)", ("predict",)),
    (case(steps=1), "mirrored(replicas=2)", ("grad", "loss")),
    (case(steps=1, batch=7), "mirrored(replicas=2)", ("loss",)),
    (case(steps=1), "parameter_server(workers=1)", ("grad",)),
    (case(steps=1, ema=0.5), "one_device", ("buffer",)),
]


@pytest.mark.parametrize(("one", "text", "roles"), VIEWS)
def test_a_view_sees_arrays_of_its_roles_alone(
    one: Case, text: str, roles: tuple[Role, ...], pool: Pool, tmp_path: Path
) -> None:
    script = render(one, Setting.parse(text), "doc", View(frozenset(roles)))
    path = tmp_path / "trial.py"
    path.write_text(script.text)
    common = {"parts": script.parts, "steps": script.steps}
    sides = [
        pool.run(Job(path, "reference", "tensorflow", **common)).ranks[0],
        pool.run(Job(path, "distributed", "tensorflow", processes=script.processes, **common)).ranks[0],
    ]
    for side in sides:
        assert side.arrays is not None, side.error
        assert {parse_name(name).role for name in side.arrays} == set(roles)
    assert set(sides[0].arrays or ()) == set(sides[1].arrays or ())


def test_the_replicas_keep_statistics_of_their_own_rows_in_the_reference(pool: Pool, tmp_path: Path) -> None:
    """Moving statistics: momentum 0.99 on the mean over the replicas of what each saw, the definition in numpy."""
    one = case(layers=(layer("norm", "batch_norm", "x"), layer("out", "linear", "norm", units=2)), steps=1, batch=6)
    script = render(one, Setting.parse("mirrored(replicas=3)"), "doc")
    path = tmp_path / "trial.py"
    path.write_text(script.text)
    arrays = pool.run(Job(path, "reference", "tensorflow", parts=script.parts, steps=script.steps)).ranks[0].arrays
    assert arrays is not None
    rows = np.random.default_rng(1).standard_normal((6, 6))
    variances = [part.var(axis=0) for part in np.split(rows, 3)]
    for replica in range(3):
        mean = arrays[f"buffer model/norm/moving_mean {replica}"]
        variance = arrays[f"buffer model/norm/moving_variance {replica}"]
        np.testing.assert_allclose(mean, 0.01 * rows.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(variance, 0.99 + 0.01 * np.mean(variances, axis=0), rtol=1e-12)


@pytest.mark.parametrize("text", ["parameter_server(workers=2)", "mirrored(replicas=2)", "multi_worker(workers=2)"])
def test_the_file_by_itself_prints_a_table_and_says_in_its_exit_code_whether_the_sides_agree(
    text: str, tensorflow_build: Build, tmp_path: Path
) -> None:
    wide = tmp_path / "wide.py"
    script = render(case(), Setting.parse(text), "doc").text
    wide.write_text(script.replace("BOUND = 0.0", "BOUND = 1e-12"))
    assert wide.read_text() != script
    done = subprocess.run([tensorflow_build.python, wide], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WRONG" not in done.stdout
    assert "step 0 grad model/hidden/kernel" in done.stdout
    broken = tmp_path / "broken.py"
    broken.write_text(wide.read_text().replace("tf.nn.compute_average_loss(", "2 * tf.nn.compute_average_loss("))
    done = subprocess.run([tensorflow_build.python, broken], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "WRONG" in done.stdout
