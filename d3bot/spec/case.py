"""Case: what is trained, and everything that one process could do as well."""

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from d3bot.spec.base import Name, Noun, Scalar, short_hash
from d3bot.spec.reserved import RESERVED

Framework = Literal["torch", "tensorflow"]
FRAMEWORKS: tuple[Framework, ...] = ("torch", "tensorflow")
Dtype = Literal["float64", "float32"]
Metric = Literal["accuracy", "top_2", "cross_entropy", "iou", "mae", "mse", "rmse", "r2"]

_VALUE = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


class Input(Noun):
    """One model input.  `shape` is per example, without the batch dimension."""

    name: Name
    shape: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(min_length=1, max_length=4)
    vocab: int = Field(default=0, ge=0, le=100_000)
    """0 for real-valued inputs, else inputs are integer tokens in [0, vocab)."""


class Layer(Noun):
    """A node of the model's DAG: an operation of the layer catalogue on earlier nodes or inputs."""

    name: Name
    op: Name
    inputs: tuple[Name, ...] = Field(min_length=1, max_length=8)
    options: dict[Name, Scalar] = {}

    @field_validator("options")
    @classmethod
    def _plain(cls, options: dict[str, Scalar]) -> dict[str, Scalar]:
        for key, value in options.items():
            if isinstance(value, str) and not _VALUE.fullmatch(value):
                raise ValueError(f"option {key}: text may hold letters, digits and _ . + - only, not {value[:80]!r}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"option {key}: {value} is not a finite number")
        return dict(sorted(options.items()))


class Optimizer(Noun):
    """The optimizer, in the field's common vocabulary; each framework renders it with its own class."""

    name: Literal["sgd", "adam", "adamw", "adagrad", "rmsprop"] = "sgd"
    lr: float = Field(default=0.1, gt=0, le=10, allow_inf_nan=False)
    momentum: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    decay_rate: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    """Exponential schedule: the learning rate is multiplied by this after every step; 1 means constant."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name != "sgd" and (self.momentum or self.nesterov):
            raise ValueError(f"momentum and nesterov belong to sgd, not to {self.name}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class Clip(Noun):
    """Gradient clipping between backward and the optimizer step."""

    kind: Literal["norm", "value"] = "norm"
    limit: float = Field(gt=0, le=1e6, allow_inf_nan=False)
    order: Literal["1", "2", "inf"] = "2"
    """Which norm is limited (kind = "norm" only)."""

    @model_validator(mode="after")
    def _of_a_norm(self) -> Self:
        if self.order != "2" and self.kind != "norm":
            raise ValueError('order says which norm is limited and needs kind = "norm"')
        return self


class Freeze(Noun):
    """All parameters of one layer stop training at the start of step `at`, counted from 0, and train again at `until`.

    Without `until` they stay as they are.
    """

    layer: Name
    at: int = Field(default=0, ge=0, le=8)
    until: int | None = Field(default=None, ge=1, le=8)

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.until is not None and self.until <= self.at:
            raise ValueError(f"until = {self.until} must come after at = {self.at}")
        return self


class Tie(Noun):
    """`layer` uses the weight object of `to`: embedding with linear, or two linears of one shape."""

    layer: Name
    to: Name


class Cast(Noun):
    """The parameters of one layer are stored in another type than the case's; it computes in that type."""

    layer: Name
    dtype: Literal["float64", "float32", "bfloat16"]


class Group(Noun):
    """A parameter group of the optimizer with options of its own; layers in no group are in the first, plain one.

    `layers` may be empty: a group without parameters.  With `at` the group is added at the start of that step, and its
    layers train from then on.
    """

    layers: tuple[Name, ...] = ()
    lr: float | None = Field(default=None, gt=0, le=10, allow_inf_nan=False)
    weight_decay: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    at: int = Field(default=0, ge=0, le=8)


class Skip(Noun):
    """One layer is left out of the forward pass of step `at`, or of every step: its input passes by it."""

    layer: Name
    at: int | None = Field(default=None, ge=0, le=8)


_WHERE: dict[str, tuple[Framework, ...]] = {
    "freeze.until": ("torch", "tensorflow"),
    "clip.order": ("torch",),
    "reduction": ("torch", "tensorflow"),
    "ignored": ("torch", "tensorflow"),
    "class weights": ("torch", "tensorflow"),
    "sample weights": ("tensorflow",),
    "l2": ("tensorflow",),
    "accumulate": ("torch", "tensorflow"),
    "groups": ("torch",),
    "ema": ("torch", "tensorflow"),
    "swa": ("torch",),
    "average_buffers": ("torch",),
    "in_backward": ("torch",),
    "mixed": ("torch", "tensorflow"),
    "casts": ("torch",),
    "recompute": ("torch",),
    "reentrant": ("torch",),
    "skips": ("torch",),
    "optimizer.name = adagrad": ("torch",),
    "optimizer.name = rmsprop": ("torch",),
    "compiler = eager": ("torch",),
    "compiler = aot_eager": ("torch",),
    "compiler = inductor": ("torch",),
    "compiler = xla": ("tensorflow",),
    "steps_per_execution": ("tensorflow",),
    "slope": ("tensorflow",),
    "running_mean": ("tensorflow",),
}
"""Fields that not every framework has, and which of them do."""


class Case(Noun):
    """Plain data with a canonical text; `id` is its hash.  The model's output is the last layer."""

    framework: Framework
    inputs: tuple[Input, ...] = Field(min_length=1, max_length=8)
    layers: tuple[Layer, ...] = Field(min_length=1, max_length=64)
    loss: Literal["mse", "cross_entropy"] = "mse"
    loop: Literal["custom", "fit", "train_on_batch"] = "custom"
    """Training interface: a hand-written loop, or a Keras method (tensorflow only)."""
    batch: int = Field(default=8, ge=1, le=4096)
    """Rows of the global batch of one step."""
    steps: int = Field(default=2, ge=1, le=8)
    optimizer: Optimizer = Optimizer()
    clip: Clip | None = None
    freeze: tuple[Freeze, ...] = ()
    tie: tuple[Tie, ...] = ()
    metrics: tuple[Metric, ...] = ()
    """Metrics compiled into the Keras model (not in a custom loop)."""
    evaluate: bool = False
    """After training Keras evaluates and predicts a batch in two pieces of unequal size (not in a custom loop)."""
    reduction: Literal["mean", "sum"] = "mean"
    """How the losses of the rows become one."""
    ignored: int = Field(default=0, ge=0, le=4096)
    """How many rows of each batch, from the first on, have a target that the loss ignores (cross_entropy only)."""
    weights: Literal["none", "sample", "class"] = "none"
    """Weights of the loss: one a row, or one a class (cross_entropy only)."""
    l2: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    """Factor of the squared weights of every linear and convolution layer, added to the loss."""
    accumulate: int = Field(default=1, ge=1, le=8)
    """Into how many micro-batches a step's batch is split, whose gradients add up to those of the whole."""
    groups: tuple[Group, ...] = ()
    ema: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Decay of an exponential moving average of the parameters, updated after every step; 0 keeps none."""
    swa: bool = False
    """An average of the parameters in which every step counts the same, updated after each of them."""
    average_buffers: bool = False
    """Whether the average is one of batch norm's statistics too."""
    in_backward: bool = False
    """Each parameter takes its step as soon as its gradient is there, by an optimizer of its own."""
    mixed: Literal["none", "bfloat16", "float16"] = "none"
    """Lower precision of the computation over parameters of `dtype`; float16 comes with loss scaling."""
    casts: tuple[Cast, ...] = ()
    recompute: tuple[Name, ...] = ()
    """Layers whose activations are computed again in backward (activation checkpointing)."""
    reentrant: bool = False
    """Whether `recompute` takes the older way: a backward of its own inside the backward."""
    skips: tuple[Skip, ...] = ()
    compiler: Literal["none", "eager", "aot_eager", "inductor", "xla"] = "none"
    """What compiles the model: a backend of `torch.compile`, or XLA for tensorflow."""
    steps_per_execution: int = Field(default=1, ge=1, le=8)
    """How many of the batches of one `fit` over all steps Keras runs at a time (loop = "fit" only)."""
    slope: float = Field(default=0.0, ge=0, le=10, allow_inf_nan=False)
    """By how much real-valued inputs rise from the first row of a batch to the last: shards differ in their mean."""
    running_mean: bool = False
    """A running mean of the targets, kept in a variable that the training step itself updates (custom loop only)."""
    dtype: Dtype = "float64"
    seed: int = Field(default=0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _dag(self) -> Self:
        known = {item.name for item in self.inputs}
        if len(known) != len(self.inputs):
            raise ValueError("inputs: two inputs share a name")
        for name in (*(item.name for item in self.inputs), *(item.name for item in self.layers)):
            if name in RESERVED:
                raise ValueError(f"the name {name!r} means something else in a script; choose another, such as {name}1")
        used: set[str] = set()
        for layer in self.layers:
            if layer.name in known:
                raise ValueError(f"layers: the name {layer.name!r} is used twice")
            for source in layer.inputs:
                if source not in known:
                    raise ValueError(f"layer {layer.name}: input {source!r} is neither an input nor an earlier layer")
            used.update(layer.inputs)
            known.add(layer.name)
        for layer in self.layers[:-1]:
            if layer.name not in used:
                raise ValueError(f"layer {layer.name}: its output is used by nobody and it is not the last layer")
        names = {layer.name for layer in self.layers}
        for freeze in self.freeze:
            if freeze.layer not in names:
                raise ValueError(f"freeze: there is no layer {freeze.layer!r}")
            if freeze.at >= self.steps:
                raise ValueError(f"freeze: at = {freeze.at} never comes in {self.steps} steps")
        order = {layer.name: i for i, layer in enumerate(self.layers)}
        for tie in self.tie:
            if tie.layer not in order or tie.to not in order or order[tie.to] >= order[tie.layer]:
                raise ValueError(f"tie: {tie.layer!r} must come after {tie.to!r} among the layers")
        return self

    @model_validator(mode="after")
    def _recipe(self) -> Self:
        for field in self._special():
            if self.framework not in _WHERE[field]:
                where = " and ".join(_WHERE[field]) or "no framework"
                raise ValueError(f"{field} exists for {where} only; leave it out of a {self.framework} case")
        if self.loop != "custom" and self.framework != "tensorflow":
            raise ValueError(f'loop = "{self.loop}" exists for tensorflow only')
        if self.loop == "custom" and (self.metrics or self.evaluate):
            raise ValueError('metrics and evaluate are Keras\'s and need loop = "fit" or "train_on_batch"')
        if self.steps_per_execution > 1 and (self.loop != "fit" or self.accumulate > 1):
            raise ValueError('steps_per_execution needs loop = "fit", and no accumulate')
        if self.loop != "custom" and self.running_mean:
            raise ValueError('running_mean needs loop = "custom"')
        if self.loss != "cross_entropy" and (self.ignored or self.weights == "class"):
            raise ValueError('ignored rows and class weights need loss = "cross_entropy"')
        if self.ignored >= self.batch:
            raise ValueError(f"ignored: a batch of {self.batch} rows with {self.ignored} ignored has nothing to learn")
        if self.mixed != "none" and self.dtype != "float32":
            raise ValueError(f"mixed = {self.mixed} lowers float32 and leaves {self.dtype} as it is; use float32")
        if self.ema and self.swa:
            raise ValueError("ema and swa are two averages of the same parameters; keep one of them")
        if self.average_buffers and not self.averages:
            raise ValueError("average_buffers says what is averaged and needs ema or swa")
        if self.in_backward:
            self._steps_in_backward()
        if self.reentrant and not self.recompute:
            raise ValueError("reentrant says how layers are recomputed and needs some in recompute")
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate: {self.batch} rows do not divide into {self.accumulate} micro-batches")
        names = {layer.name for layer in self.layers}
        listed = [name for group in self.groups for name in group.layers]
        if len(set(listed)) != len(listed):
            raise ValueError("groups: a layer is in two groups")
        for field, chosen in (
            ("groups", listed),
            ("casts", [cast.layer for cast in self.casts]),
            ("recompute", self.recompute),
            ("skips", [skip.layer for skip in self.skips]),
        ):
            for name in chosen:
                if name not in names:
                    raise ValueError(f"{field}: there is no layer {name!r}")
        if self.layers[-1].name in {skip.layer for skip in self.skips}:
            raise ValueError(f"skips: {self.layers[-1].name} is the model's output and cannot be left out")
        cast = {item.layer: item.dtype for item in self.casts}
        for tie in self.tie:
            if cast.get(tie.layer) != cast.get(tie.to):
                raise ValueError(f"casts: {tie.layer} and {tie.to} share a weight; cast both to one type, or neither")
        times = [("freeze", item.until) for item in self.freeze] + [("groups", item.at) for item in self.groups]
        for field, at in times + [("skips", item.at) for item in self.skips]:
            if at is not None and at >= self.steps:
                raise ValueError(f"{field}: step {at} never comes in {self.steps} steps")
        return self

    def _steps_in_backward(self) -> None:
        """Raise ValueError if something needs the gradients of all parameters, or comes between them and the step."""
        later = {
            "clip": self.clip is not None,
            "accumulate": self.accumulate > 1,
            "groups": bool(self.groups),
            "optimizer.decay_rate": self.optimizer.decay_rate < 1,
            "mixed = float16": self.mixed == "float16",
            "reentrant": self.reentrant,
            "freeze.until": any(item.until is not None for item in self.freeze),
        }
        for field, used in later.items():
            if used:
                raise ValueError(f"in_backward leaves {field} no place: each parameter steps within the backward pass")

    def _special(self) -> list[str]:
        """Return the fields that this case uses and that not every framework has."""
        nested = {
            "freeze.until": any(item.until is not None for item in self.freeze),
            "clip.order": self.clip is not None and self.clip.order != "2",
            f"optimizer.name = {self.optimizer.name}": True,
            f"compiler = {self.compiler}": self.compiler != "none",
            "class weights": self.weights == "class",
            "sample weights": self.weights == "sample",
        }
        plain = {name: getattr(self, name) != info.default for name, info in type(self).model_fields.items()}
        return [name for name, used in (nested | plain).items() if used and name in _WHERE]

    @property
    def averages(self) -> bool:
        """Whether an average of the parameters is kept."""
        return self.ema > 0 or self.swa

    @property
    def id(self) -> str:
        """Hash of the canonical text, prefixed with c."""
        return "c" + short_hash(self.canonical())

    def layer(self, name: str) -> Layer:
        """Return the layer of that name; KeyError if there is none."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def ops(self) -> set[str]:
        """Return the operations this model uses."""
        return {layer.op for layer in self.layers}
