"""A rendered script: valid Python with the interface that the engine calls, its reference shared where it may be."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras_cases import TOKENS, case, layer

from d3bot.frameworks import View, obstacle, render, script_env, standing_settings
from d3bot.generate import fresh_cases
from d3bot.spec import Case, Clip, Freeze, Optimizer, Setting

SETTINGS = standing_settings("tensorflow")
FUNCTIONS = {"build", "data", "reference", "distributed", "main"}


@given(index=st.integers(0, 300), setting=st.sampled_from(SETTINGS))
@settings(deadline=None)  # the first script compiles the templates
def test_every_fresh_case_becomes_a_script_with_the_interface(index: int, setting: Setting) -> None:
    one = fresh_cases("tensorflow", 5, index + 1)[index] if index < 40 else fresh_cases("tensorflow", index, 1)[0]
    if obstacle(one, setting):
        return
    tree = ast.parse(render(one, setting, "doc").text)
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} >= FUNCTIONS
    env = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ENV"
    )
    assert ast.literal_eval(env) == script_env("tensorflow")


@pytest.mark.parametrize(
    ("one", "first", "second", "shared"),
    [
        (case(), "mirrored(replicas=2)", "mirrored(replicas=3, ops=hierarchical)", True),
        (case(), "mirrored(replicas=2)", "parameter_server(workers=2)", True),
        (case(loop="fit"), "mirrored(replicas=2)", "mirrored(replicas=3)", True),
        (case(layers=(layer("n", "batch_norm", "x"),)), "mirrored(replicas=2)", "mirrored(replicas=3)", False),
        (case(layers=(layer("n", "batch_norm", "x"),)), "mirrored(replicas=2)", "parameter_server(workers=1)", False),
        (
            case(layers=(layer("n", "batch_norm", "x"),), loop="fit"),
            "mirrored(replicas=2)",
            "mirrored(replicas=3)",
            True,
        ),
    ],
)
def test_settings_share_a_reference_unless_replicas_keep_statistics(
    one: Case, first: str, second: str, shared: bool
) -> None:
    keys = [render(one, Setting.parse(text), "doc").reference_key for text in (first, second)]
    assert (keys[0] == keys[1]) is shared


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("mirrored(replicas=2)", "tf.distribute.ReductionToOneDevice()"),
        ("mirrored(replicas=2, ops=hierarchical)", "tf.distribute.HierarchicalCopyAllReduce()"),
        ("mirrored(replicas=2, ops=collective)", 'MirroredStrategy(["CPU:0", "CPU:1"])\n'),
        ("multi_worker(workers=3)", "WORKERS = 3"),
        ("multi_worker(workers=2, shard=data)", "AutoShardPolicy.DATA"),
        ("multi_worker(workers=2, shard=file)", "tf.data.TextLineDataset(files)"),
        ("multi_worker(workers=2, shard=off)", "np.split(array, WORKERS)[rank]"),
        ("multi_worker(workers=2, shard=off)", ".batch(BATCH)\n"),  # a worker has fewer rows than a batch
        ("multi_worker(workers=2, shard=function)", "strategy.distribute_datasets_from_function(own_rows)"),
        ("parameter_server(workers=1, servers=2, partitioner=min_size)", "MinSizePartitioner(64, max_shards=2)"),
        ("mirrored(replicas=2, ops=nccl)", "tf.distribute.NcclAllReduce()"),
        ("mirrored(replicas=2, input=function)", "strategy.distribute_datasets_from_function(batches)"),
        ("mirrored(replicas=4, input=tail)", ".batch(4)  # the last replica gets no batch"),
        ("one_device", 'tf.distribute.OneDeviceStrategy("CPU:0")'),
        ("central_storage(replicas=2)", 'parameter_device="CPU:0"'),
        ("dtensor(replicas=3, model=2)", 'MESH = {"batch": 3, "model": 2}'),
        ("restore(replicas=2, into=3)", "checkpoint.read(path).assert_consumed()"),
        ("restore(replicas=2, by=values)", "v.assign(value)"),
        ("tf_keras(replicas=2)", "import tf_keras as keras"),
        ("tf_keras(replicas=2)", "tf.distribute.ReductionToOneDevice()"),
        ("tf_keras(replicas=2, strategy=central_storage)", 'parameter_device="CPU:0"'),
        ("parameter_server(workers=2, servers=3)", 'JOBS = {"worker": 2, "ps": 3}'),
    ],
)
def test_options_of_a_setting(setting: str, written: str) -> None:
    assert written in render(case(), Setting.parse(setting), "doc").text


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"optimizer": Optimizer(lr=0.2, momentum=0.9, nesterov=True)}, "SGD(0.2, momentum=0.9, nesterov=True)"),
        ({"optimizer": Optimizer(name="adamw", lr=0.1)}, "AdamW(0.1, weight_decay=0.0)"),  # its own default is not 0
        (
            {"optimizer": Optimizer(lr=0.1, decay_rate=0.5)},
            "SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5))",
        ),
        ({"clip": Clip(limit=0.5)}, "SGD(0.1, global_clipnorm=0.5)"),
        ({"clip": Clip(kind="value", limit=0.5)}, "SGD(0.1, clipvalue=0.5)"),
        ({"dtype": "float64"}, 'set_floatx("float64")'),
        ({"dtype": "float32"}, '.astype("float32")'),
        ({"batch": 7}, "tf.nn.compute_average_loss(losses_of(model, *rows), global_batch_size=BATCH)"),
        ({"batch": 8}, "tf.nn.compute_average_loss(losses_of(model, *rows))"),
        ({"freeze": (Freeze(layer="hidden", at=1),)}, 'if step == 1: model.get_layer("hidden").trainable = False'),
        ({"loss": "cross_entropy"}, "keras.losses.sparse_categorical_crossentropy"),
        ({"loop": "fit", "metrics": ("mae",)}, "metrics=[keras.metrics.MeanAbsoluteError(name='mae')]"),
        ({"l2": 0.1}, "+ tf.nn.scale_regularization_loss(penalty(model))"),
        ({"l2": 0.1, "loop": "fit"}, "kernel_regularizer=keras.regularizers.L2(0.1)"),
        ({"reduction": "sum"}, "lambda: tf.reduce_sum(losses_of(model, *rows))"),
        ({"reduction": "sum", "loop": "fit"}, 'keras.losses.MeanSquaredError(reduction="sum")'),
        ({"weights": "sample"}, "tf.nn.compute_average_loss(losses_of(model, x, target), weight)"),
        ({"weights": "sample"}, "tf.reduce_mean(weight * losses_of(model, x, target))"),
        ({"weights": "sample", "loop": "fit"}, "model.fit(x, target, sample_weight=weight, "),
        ({"weights": "class", "loss": "cross_entropy"}, "weight = np.take([0.5, 1.25, 0.75], target)"),
        ({"weights": "class", "loss": "cross_entropy", "loop": "fit"}, "class_weight={0: 0.5, 1: 1.25, 2: 0.75}"),
        ({"ignored": 2, "loss": "cross_entropy"}, "from_logits=True, ignore_class=-1)"),
        ({"ema": 0.5}, "average = tf.train.ExponentialMovingAverage(0.5)"),
        ({"ema": 0.5, "loop": "fit"}, "SGD(0.1, use_ema=True, ema_momentum=0.5)"),
        ({"running_mean": True}, "aggregation=tf.VariableAggregation.MEAN"),
        ({"slope": 2.0}, "x = rng.standard_normal((12, 6)) + np.linspace(0, 2.0, 12).reshape((-1, 1))"),
        ({"loop": "fit", "steps_per_execution": 2}, "steps_per_execution=1 if plain else 2)"),
        ({"loop": "fit", "compiler": "xla"}, "run_eagerly=plain, jit_compile=not plain)"),
        ({"loop": "fit", "mixed": "float16", "dtype": "float32"}, 'keras.config.set_dtype_policy("mixed_float16")'),
        (
            {"loop": "fit", "mixed": "bfloat16", "dtype": "float32"},
            'keras.layers.Activation("linear", dtype="float32")], name="model")',
        ),
        ({"compiler": "xla"}, "compiled = tf.function(losses_of, jit_compile=True)"),
        ({"compiler": "xla"}, "tf.nn.compute_average_loss(compiled(model, *rows))"),
        (
            {"mixed": "float16", "dtype": "float32"},
            "keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=256.0)",
        ),
        ({"mixed": "float16", "dtype": "float32"}, "scaled = optimizer.scale_loss(loss)"),
        ({"loop": "train_on_batch"}, "logs = model.train_on_batch(x, target, return_dict=True)"),
        ({"loop": "fit", "evaluate": True}, "model.evaluate(x, target, batch_size=BATCH, verbose=0, return_dict=True)"),
        ({"freeze": (Freeze(layer="hidden", until=1),)}, 'if step == 1: model.get_layer("hidden").trainable = True'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_case_says_stands_in_the_script(changes: dict[str, object], written: str) -> None:
    assert written in render(case(**changes), Setting.parse("mirrored(replicas=2)"), "doc").text


def test_a_script_for_tf_keras_says_nothing_that_keras_3_alone_has() -> None:
    layers = (
        *(layer("embed", "embedding", "words", dim=4), layer("pool", "mean", "embed")),
        *(layer("one", "linear", "pool", units=4), layer("act", "gelu", "one"), layer("gate", "sigmoid", "pool")),
        *(layer("gated", "mul", "act gate"), layer("all", "concat", "gated pool")),
    )
    one = case(inputs=TOKENS, layers=layers, ema=0.5)
    for loop in ("custom", "fit"):
        text = render(one.model_copy(update={"loop": loop}), Setting.parse("tf_keras(replicas=2)"), "doc").text
        assert not [word for word in ("keras.ops", "keras.config", ".path", "v.value") if word in text]
        assert "tf.nn.gelu(" in text


@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_the_reference_of_lower_precision_scales_no_loss(loop: str) -> None:
    one = case(loop=loop, mixed="float16", dtype="float32")
    half = render(one, Setting.parse("mirrored(replicas=2)"), "doc").text.split("def distributed")[0]
    assert "LossScaleOptimizer" not in half


def test_what_xla_compiles_is_no_part_of_the_reference() -> None:
    half, distributed = render(case(compiler="xla"), Setting.parse("mirrored(replicas=2)"), "doc").text.split(
        "def distributed"
    )
    assert "jit_compile" in distributed
    assert "jit_compile" not in half


def test_a_table_in_shards_is_looked_up_in_its_shards() -> None:
    one = case(inputs=TOKENS, layers=(layer("embed", "embedding", "words", dim=3),))
    text = render(one, Setting.parse("parameter_server(workers=1, servers=2, partitioner=fixed)"), "doc").text
    assert "Lookup(9, 3" in text
    assert "keras.layers.Embedding(9" not in text
    assert "class Lookup" not in render(one, Setting.parse("parameter_server(workers=1, servers=2)"), "doc").text


def test_gradients_are_accumulated_by_the_optimizer_and_by_no_reference() -> None:
    one = case(accumulate=2, optimizer=Optimizer(lr=0.1, decay_rate=0.5))
    half, distributed = render(one, Setting.parse("one_device"), "doc").text.split("def distributed")
    assert "gradient_accumulation_steps=2" in distributed
    assert "gradient_accumulation_steps" not in half
    assert "ExponentialDecay(0.1 * 0.5 ** 1, 1, 0.5 ** 2)" in half  # the schedule counts micro-batches


def test_a_script_of_one_step_has_no_loop() -> None:
    text = render(case(steps=1), Setting.parse("mirrored(replicas=2)"), "doc", View(frozenset({"grad"}))).text
    assert "STEPS" not in text
    assert "for step" not in text
    assert len(text.splitlines()) <= 86


def test_losses_of_a_sequence_are_averaged_to_one_an_example() -> None:
    layers = (layer("embed", "embedding", "words", dim=3),)
    text = render(case(inputs=TOKENS, layers=layers), Setting.parse("mirrored(replicas=2)"), "doc").text
    assert "tf.reduce_mean(keras.losses.mean_squared_error(target, model(words, training=True)), axis=1)" in text
