"""Every kind of verdict from real processes: scripts of our own in place of rendered ones, all else as in a run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from d3bot.engine.pace import Pace
from d3bot.engine.pool import Pool
from d3bot.flow import harness as harnesses
from d3bot.flow.confirm import again
from d3bot.flow.harness import Harness, Judged
from d3bot.frameworks import Script, script_env
from d3bot.spec import KINDS, Build, Case, Input, Kind, Layer, Setting, Trial

HEAD = """
import os, signal, time
import numpy as np
import torch
import torch.distributed as dist

STEPS = 1


def build():
    return torch.nn.Linear(3, 2)


def data(step):
    return torch.arange(12.0).reshape(4, 3) + step, torch.ones(4, 2)


def arrays():
    gradient = data(0)[0].mean(dim=0).numpy()
    return {"step 0 loss 0": np.float32(2), "step 0 grad weight": gradient, "predict": data(1)[0].numpy()}
"""
REFERENCE = "return arrays()"
TOGETHER = """
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
"""
FINE = TOGETHER + "dist.barrier()\nreturn arrays()"

TABLE: list[tuple[str, Kind, str, str, str]] = [
    ("equal", "pass", FINE, REFERENCE, "3 arrays bit-equal"),
    (
        "one part in 1e7 on one rank",
        "diverged",
        "seen = arrays()\nseen['step 0 grad weight'] *= np.float32(1 + 2e-7 * rank)\nreturn seen",
        REFERENCE,
        "step 0 grad weight: off by",
    ),
    (
        "NaN on one side",
        "nonfinite",
        "seen = arrays()\nseen['predict'][0] = np.nan\nreturn seen",
        REFERENCE,
        "predict: NaN or infinity",
    ),
    (
        "an exception on one rank",
        "crashed",
        TOGETHER + "if rank:\n    raise ValueError('lost')\ndist.barrier()",
        REFERENCE,
        "ValueError: lost",
    ),
    (
        "SIGKILL",
        "died",
        "if rank:\n    os.kill(os.getpid(), 9)\ntime.sleep(9)",
        REFERENCE,
        "rank 1 was ended by SIGKILL",
    ),
    ("a segfault", "died", "import ctypes\nctypes.string_at(0)", REFERENCE, "rank 0 was ended by SIGSEGV"),
    ("a hang in Python", "hung", "while rank:\n    pass\nreturn arrays()", REFERENCE, "rank 1 did not end within 3 s"),
    (
        "a hang in a collective",
        "hung",
        TOGETHER + "while rank:\n    time.sleep(1)\ndist.all_reduce(torch.ones(2))",
        REFERENCE,
        "rank 0, 1 did not end within 3 s in torch.distributed.distributed_c10d:all_reduce",
    ),
    (
        "a refusal",
        "refused",
        "raise NotImplementedError('no float8 shards')",
        REFERENCE,
        "NotImplementedError: no float8",
    ),
    ("the reference raises", "reference-failed", FINE, "raise IndexError('out of range')", "one process itself fails"),
    ("the reference dies", "reference-failed", FINE, "os.abort()", "one process itself fails: was ended by SIGABRT"),
    (
        "the reference is not finite",
        "reference-failed",
        FINE,
        "return arrays() | {'predict': np.full(3, np.inf)}",
        "one process itself is not finite",
    ),
    (
        "nothing could differ",
        "not-applicable",
        "return arrays() | {'step 0 grad weight': np.zeros(3)}",
        "return arrays() | {'step 0 grad weight': np.zeros(3)}",
        "vacuous: every gradient is zero",
    ),
    (
        "predictions that do not look at the input",
        "not-applicable",
        "return arrays() | {'predict': np.ones((4, 2))}",
        "return arrays() | {'predict': np.ones((4, 2))}",
        "vacuous: the predictions are the same for every row",
    ),
    (
        "a part of the rows trains as the whole",
        "not-applicable",
        "return {'step 0 grad weight': np.arange(3.0)}",
        "return {'step 0 grad weight': np.arange(3.0)}",
        "vacuous: training on a part of the rows gives the same",
    ),
    ("a full disk", "no-data", "raise OSError(28, 'No space left on device')", REFERENCE, "OSError: [Errno 28]"),
    (
        "a trial that is merely slow",
        "pass",
        "time.sleep(4)\nreturn arrays()",
        REFERENCE,
        "3 arrays bit-equal",
    ),
    (
        "a slow trial that fails",
        "crashed",
        "time.sleep(4)\nraise ValueError('late')",
        REFERENCE,
        "ValueError: late",
    ),
    ("a race", "flaky", "RACE", REFERENCE, "did not repeat: crashed (RuntimeError: only sometimes), then pass"),
]

Try = Callable[[str, str], Judged]


@pytest.fixture(scope="module")
def pool(torch_build: Build) -> Iterator[Pool]:
    with Pool(torch_build, script_env("torch"), 1) as running:
        yield running


class Hasty(Pace):
    """Deadlines of three seconds, and of eight before a hang is believed."""

    def deadline(self, framework: str, family: str) -> float:
        """Return 3."""
        return 3.0

    def patient(self, framework: str, family: str) -> float:
        """Return 8."""
        return 8.0


@pytest.fixture
def attempt(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Run a trial whose script has these bodies, and a failure once more, as a night does."""

    def go(distributed: str, reference: str) -> Judged:
        def indented(body: str) -> str:
            return "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())

        text = f"{HEAD}\n\ndef reference():\n{indented(reference)}\n\n\ndef distributed(rank, store):\n"
        text += indented(distributed)
        script = Script(text, text, {}, processes=2, world=2, parts=2, steps=1)
        monkeypatch.setattr(harnesses, "render", lambda case, setting, docstring: script)
        harness = Harness(pool, tmp_path / "scripts", Hasty())
        inputs, layers = (
            (Input(name="x", shape=(3,)),),
            (Layer(name="fc", op="linear", inputs=("x",), options={"units": 2}),),
        )
        case = Case(framework="torch", inputs=inputs, layers=layers, dtype="float32")
        judged = harness.run(Trial(case=case, setting=Setting.parse("ddp(world=2)")))
        return again(harness, judged) if judged.verdict.failing else judged

    return go


@pytest.mark.parametrize(
    ("kind", "distributed", "reference", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_kind(attempt: Try, tmp_path: Path, kind: Kind, distributed: str, reference: str, reason: str) -> None:
    if distributed == "RACE":
        note = tmp_path / "seen"
        distributed = f"""
if rank == 0 and not os.path.exists({str(note)!r}):
    open({str(note)!r}, "w").close()
    raise RuntimeError("only sometimes")
return arrays()
"""
    verdict = attempt(distributed, reference).verdict
    assert (verdict.kind, verdict.reason[: len(reason)]) == (kind, reason)
    assert verdict.vacuous == (kind == "not-applicable")
    assert bool(verdict.key) == (verdict.failing or kind == "refused")


def test_every_kind_is_reached() -> None:
    assert {row[1] for row in TABLE} == set(KINDS)
