"""What the engine is asked, and what it answers: plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


class EngineError(RuntimeError):
    """Infrastructure: the zygote could not start or was lost.  Never a verdict on the library."""


@dataclass(frozen=True)
class Limits:
    """Limits of one job.  A rank over one of them is killed with its whole set."""

    seconds: float = 60.0
    memory: int = 6 * 2**30
    """Resident bytes of a rank."""
    output: int = 4 * 2**20
    """Bytes that a rank may print."""
    file: int = 256 * 2**20
    """Bytes of any file that a rank writes."""


@dataclass(frozen=True)
class Job:
    """Call one function of a script in fresh processes."""

    script: Path
    call: Literal["reference", "distributed"]
    framework: str
    processes: int = 1
    parts: int = 1
    steps: int = 1
    """Steps of the training; the batch after the last one is the probe, whose rows keep their order."""
    noise: Sequence[Literal["move", "order"]] = ()
    shares: Sequence[int] = ()
    """Pieces of the batch, of `pieces`, on which the reference is run alone as well."""
    without: Sequence[int] = ()
    """Pieces of the batch, of `pieces`, that the reference is run without as well."""
    pieces: int = 1
    start: bool = False
    """Whether the parameters before the first step are returned."""
    trace: bool = False
    """Whether the output of every layer and every collective is recorded on the way."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Preload:
    """What a framework's zygote imports before it forks; a `?` marks a module that may be missing."""

    modules: tuple[str, ...]
    packages: tuple[str, ...]
    """Top-level packages whose frames count as the library's."""
    env: Mapping[str, str] = field(default_factory=dict)


PRELOADS: dict[str, Preload] = {
    "torch": Preload(
        modules=(
            "numpy",
            "torch",
            "?torch._dynamo",
            "?torch.distributed.fsdp",
            "?torch.distributed.tensor.parallel",
            "?torch.distributed.pipelining",
            "?torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
            "?torch.multiprocessing",
            "?torchrec.distributed",
        ),
        packages=("torch", "torchrec", "fbgemm_gpu"),
    ),
    "tensorflow": Preload(
        modules=("numpy", "?numpy.random", "tensorflow", "?keras", "?tf_keras"),
        packages=("tensorflow", "keras", "tf_keras"),
    ),
}
