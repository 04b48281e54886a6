"""The named features of a case, by which coverage is counted and findings are keyed."""

from dataclasses import dataclass
from functools import lru_cache

from d3bot.frameworks.layers import CONVOLUTIONS, filled_options
from d3bot.spec import Case

_STRUCTURE = {"add": "skip", "concat": "branch", "mul": "gate"}
_SIZES = ("units", "channels", "dim")


def features(case: Case) -> frozenset[str]:
    """Return what a case has that a library may stumble over, as short words.

    Operations (`lstm`, `weighted-bag`, `grouped-conv`), structure (`skip`, `branch`, `gate`, `tied`,
    `several-inputs`), sizes (`odd-size`, `odd-linear`, `uneven-batch`: it does not divide into 2 or into 3 shards,
    `uneven-micro-batch`: not into 4), recipe (`momentum`, `clip-norm`, `frozen`, `late-freeze`, `schedule`, ...),
    dtype, loss and loop.  `skips` give `unused` (a layer left out of every step) or `conditional` (of one), `groups`
    also `empty-group` and `late-group` (added in mid-training), `mixed` also which type.
    """
    return _features(_Same(case))


@dataclass(frozen=True, eq=False)
class _Same:
    """A case by identity: planning asks for the features of one object thousands of times."""

    case: Case

    def __hash__(self) -> int:
        return id(self.case)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.case is other.case


@lru_cache(maxsize=4096)
def _features(held: _Same) -> frozenset[str]:
    case = held.case
    words = {_STRUCTURE.get(op, op.replace("_", "-")) for op in case.ops()}
    words |= {case.dtype, case.loss.replace("_", "-"), case.loop.replace("_", "-"), _optimizer(case)}
    sizes = [
        (layer.op, size)
        for layer in case.layers
        for name, size in filled_options(case, layer.name).items()
        if name in _SIZES
    ]
    flags = {
        "weight-decay": case.optimizer.weight_decay > 0,
        "schedule": case.optimizer.decay_rate < 1,
        "clip-norm": case.clip is not None and case.clip.kind == "norm",
        "clip-value": case.clip is not None and case.clip.kind == "value",
        "tied": bool(case.tie),
        "frozen": any(freeze.at == 0 for freeze in case.freeze),
        "late-freeze": any(freeze.at > 0 for freeze in case.freeze),
        "thaw": any(freeze.until is not None for freeze in case.freeze),
        "several-inputs": len(case.inputs) > 1,
        "several-steps": case.steps > 1,
        "uneven-batch": case.batch % 2 > 0 or case.batch % 3 > 0,
        "uneven-micro-batch": case.batch % 4 > 0,
        "odd-size": any(int(size) % 2 for _, size in sizes),
        "odd-linear": any(op == "linear" and int(size) % 2 for op, size in sizes),
        "grouped-conv": any(
            layer.op in CONVOLUTIONS and filled_options(case, layer.name)["groups"] != 1 for layer in case.layers
        ),
        "cross-attention": any(layer.op == "attention" and len(layer.inputs) > 1 for layer in case.layers),
        "weighted-bag": any(layer.op == "embedding_bag" and len(layer.inputs) > 1 for layer in case.layers),
        "metrics": bool(case.metrics),
        "evaluate": case.evaluate,
        "several-steps-at-once": case.steps_per_execution > 1,
        "slope": case.slope > 0,
        "running-mean": case.running_mean,
        "clip-l1": case.clip is not None and case.clip.order == "1",
        "clip-max": case.clip is not None and case.clip.order == "inf",
        "sum-loss": case.reduction == "sum",
        "ignored-rows": case.ignored > 0,
        f"{case.weights}-weights": case.weights != "none",
        "l2": case.l2 > 0,
        "accumulate": case.accumulate > 1,
        "groups": bool(case.groups),
        "empty-group": any(not group.layers for group in case.groups),
        "late-group": any(group.at > 0 for group in case.groups),
        "average": case.averages,
        "equal-average": case.swa,
        "average-buffers": case.average_buffers,
        "in-backward": case.in_backward,
        "mixed": case.mixed != "none",
        f"mixed-{case.mixed}": case.mixed != "none",
        "cast": bool(case.casts),
        "recompute": bool(case.recompute),
        "reentrant": case.reentrant,
        "unused": any(skip.at is None for skip in case.skips),
        "conditional": any(skip.at is not None for skip in case.skips),
        "compiled": case.compiler != "none",
        f"compiled-{case.compiler}": case.compiler != "none",
    }
    return frozenset(words | {word for word, holds in flags.items() if holds})


def _optimizer(case: Case) -> str:
    if case.optimizer.nesterov:
        return "nesterov"
    return "momentum" if case.optimizer.momentum else case.optimizer.name
