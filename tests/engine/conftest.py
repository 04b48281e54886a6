"""One zygote on the real PyTorch serves all tests of the engine: that it can is one of the things they show."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_scripts import write_script

from d3bot.engine.jobs import Job, Limits
from d3bot.engine.zygote import Zygote
from d3bot.spec import Build, Observation

Run = Callable[..., Observation]


@pytest.fixture(scope="session")
def zygote(torch_build: Build) -> Iterator[Zygote]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_TOKEN", "ghs_secret")
        patch.setenv("ACTIONS_RUNTIME_TOKEN", "secret")
        running = Zygote(torch_build, {"OMP_NUM_THREADS": "1"})
    yield running
    running.close()


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Run:
    """Run `distributed(rank, store)` with the given body on two ranks, or on as many as it is told."""

    def go(body: str, processes: int = 2, seconds: float = 20.0, **limits: int) -> Observation:
        script = write_script(tmp_path, body)
        job = Job(script, "distributed", "torch", processes, limits=Limits(seconds=seconds, **limits))
        return zygote.run(job)

    return go
