"""Every kind of verdict that the judge can give, from plain observations."""

import math
import signal
from dataclasses import replace

import numpy as np
import pytest

from d3bot.judge import Judgement, judge
from d3bot.spec import KINDS, Arrays, ErrorReport, Kind, Observation, RankObservation

GRAD, PARAM, PREDICT = "step 0 grad fc.weight", "param fc.weight", "predict"


def arrays(**changed: np.ndarray) -> Arrays:
    names = {"grad": GRAD, "param": PARAM, "predict": PREDICT}
    plain = {GRAD: np.arange(1.0, 7), PARAM: np.arange(2.0, 8), PREDICT: np.array([1.0, 1.0, 0.5])}
    return plain | {names[name]: array for name, array in changed.items()}


def fine(seen: Arrays | None = None) -> RankObservation:
    return RankObservation(0, arrays=arrays() if seen is None else seen)


def raised(kind: str = "RuntimeError", message: str = "shapes do not match", at: float = 100.0) -> RankObservation:
    report = ErrorReport(kind, message, ("torch.nn:f",), f"Traceback ...\n{kind}: {message}", at)
    return RankObservation(1, error=report)


def killed(why: str, output: str = "") -> RankObservation:
    return RankObservation(-signal.SIGKILL, why=why, seconds=30.2, output=output)


def verdict(*ranks: RankObservation, reference: RankObservation | None = None) -> Judgement:
    one = Observation((reference or fine(),))
    return judge(one, Observation(ranks), lambda name: True, world=2, parts=2, packages=("torch",))


LOST = raised(message="[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4321", at=99.0)
NODE = "{{function_node __wrapped__AddN_N_2_device_}} Inputs to AddN must have the same shape. [Op:AddN] name: "
GRAPH = """Graph execution error:

Detected at node while/cond/Placeholder defined at (most recent call last):
  File "/tmp/t1.py", line 70, in distributed

2 root error(s) found.
  (0) INVALID_ARGUMENT:  You must feed a value for placeholder 'x'
\t [[{{node while/cond/Placeholder}}]]
  (1) INVALID_ARGUMENT:  You must feed a value for placeholder 'x'
\t [[{{node while/cond/Placeholder}}]]
0 derived errors ignored. [Op:__inference_step_1526]"""
SEGFAULT = RankObservation(-signal.SIGSEGV, output="Fatal Python error: Segmentation fault")
STACKS = """said before
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f2 (most recent call first):
  File "/e/torch/lib/python3.11/site-packages/torch/distributed/c10d.py", line 4 in barrier
  File "/e/torch/lib/python3.11/site-packages/numpy/core.py", line 4 in take
  File "/e/torch/lib/python3.11/contextlib.py", line 4 in inner
  File "/e/torch/lib/python3.11/site-packages/torch/nn/modules/module.py", line 4 in _call_impl
  File "/tmp/t1.py", line 70 in distributed

Thread 0x00007f3 (most recent call first):
  File "/e/torch/lib/python3.11/site-packages/torch/other.py", line 4 in idle
"""

TABLE: list[tuple[str, Judgement, Kind, str]] = [
    ("equal", verdict(fine(), fine()), "pass", "3 arrays bit-equal, 0 within their noise bound"),
    (
        "one rank differs in its last bit",
        verdict(fine(), fine(arrays(grad=np.nextafter(np.arange(1.0, 7), 9)))),
        "diverged",
        f"{GRAD}: off by 8.88e-16, allowed 0; ",
    ),
    ("NaN", verdict(fine(arrays(param=np.full(6, np.nan)))), "nonfinite", f"{PARAM}: NaN or infinity where one"),
    ("infinity", verdict(fine(arrays(param=np.full(6, -np.inf)))), "nonfinite", f"{PARAM}: NaN or infinity where one"),
    ("exception", verdict(raised(), fine()), "crashed", "RuntimeError: shapes do not match"),
    (
        "TensorFlow error with its place",
        verdict(raised("InvalidArgumentError", NODE), fine()),
        "crashed",
        "InvalidArgumentError: Inputs to AddN must have the same shape.",
    ),
    (
        "TensorFlow error in a graph",
        verdict(raised("InvalidArgumentError", GRAPH), fine()),
        "crashed",
        "InvalidArgumentError: You must feed a value for placeholder 'x'",
    ),
    ("exception, then the peers' echo", verdict(LOST, raised()), "crashed", "RuntimeError: shapes do not match"),
    ("exception, then the peer killed", verdict(killed("peer"), raised()), "crashed", "RuntimeError: shapes"),
    ("exception that reads like an echo alone", verdict(fine(), LOST), "crashed", "RuntimeError: [gloo"),
    ("signal", verdict(fine(), SEGFAULT), "died", "rank 1 was ended by SIGSEGV"),
    ("signal, then the peers' echo", verdict(LOST, SEGFAULT), "died", "rank 1 was ended by SIGSEGV"),
    ("signal without a name", verdict(RankObservation(-40)), "died", "rank 0 was ended by SIG40"),
    ("killed from outside", verdict(RankObservation(-9), fine()), "died", "rank 0 was ended by SIGKILL"),
    ("exit code", verdict(RankObservation(3), fine()), "died", "rank 0 ended with exit code 3 and without a result"),
    ("left in silence", verdict(fine(), RankObservation(0)), "died", "rank 1 ended with exit code 0 and without"),
    (
        "left in silence while its peer waits",
        verdict(killed("deadline"), RankObservation(0)),
        "died",
        "rank 1 ended with exit code 0 and without a result",
    ),
    ("memory", verdict(killed("peer"), killed("memory")), "died", "rank 1 was killed: it went over its memory limit"),
    ("output", verdict(killed("output"), killed("peer")), "died", "rank 0 was killed: it printed more than its limit"),
    (
        "hang",
        verdict(killed("deadline", STACKS), killed("deadline", STACKS)),
        "hung",
        "rank 0, 1 did not end within 30 s in torch.distributed.c10d:barrier",
    ),
    ("hang of one rank", verdict(fine(), killed("deadline")), "hung", "rank 1 did not end within 30 s"),
    (
        "refusal by type",
        verdict(raised("NotImplementedError", "no sharded clipping")),
        "refused",
        "NotImplementedError: no sharded clipping",
    ),
    (
        "refusal by words",
        verdict(raised("ValueError", "\nDDP does not support sparse gradients with find_unused\nsee")),
        "refused",
        "ValueError: DDP does not support sparse gradients with find_unused",
    ),
    (
        "refusal of uneven shards",
        verdict(raised("RuntimeError", "The intermediate results of nll_loss cannot be evenly sharded, see")),
        "refused",
        "RuntimeError: The intermediate results of nll_loss cannot be evenly sharded",
    ),
    (
        "refusal for want of a compiler",
        verdict(
            raised("InvalidCxxCompiler", "No working C++ compiler found in torch._inductor.config.cpp.cxx: (None,)")
        ),
        "refused",
        "InvalidCxxCompiler: No working C++ compiler found",
    ),
    (
        "the reference raises",
        verdict(reference=raised("IndexError", "out of range")),
        "reference-failed",
        "one process itself fails: IndexError: out of range",
    ),
    (
        "the reference hangs",
        verdict(reference=killed("deadline")),
        "reference-failed",
        "one process itself fails: did not end within 30 s",
    ),
    (
        "the reference dies",
        verdict(reference=SEGFAULT),
        "reference-failed",
        "one process itself fails: was ended by SIGSEGV",
    ),
    (
        "the reference is not finite",
        verdict(fine(), reference=fine(arrays(param=np.full(6, np.inf), predict=np.full(3, np.nan)))),
        "reference-failed",
        f"one process itself is not finite: {PARAM}",
    ),
    (
        "no gradient anywhere",
        verdict(fine(arrays(grad=np.zeros(6))), reference=fine(arrays(grad=np.zeros(6)))),
        "not-applicable",
        "vacuous: every gradient is zero",
    ),
    (
        "a gradient where there is none",
        verdict(fine(), reference=fine(arrays(grad=np.zeros(6)))),
        "diverged",
        f"{GRAD}: off by 6, allowed 0",
    ),
    ("a crash of a vacuous case", verdict(raised(), reference=fine(arrays(grad=np.zeros(6)))), "crashed", "Runtime"),
    ("nothing is observed", verdict(fine({}), reference=fine({})), "not-applicable", "vacuous: one process returned"),
    ("an unknown name", verdict(fine(arrays() | {"weights": np.ones(1)})), "no-data", "the script returned an array"),
    ("disk full", verdict(fine(), raised("OSError", "[Errno 28] No space left on device")), "no-data", "OSError: [Err"),
    (
        "disk full in the reference",
        verdict(reference=raised("OSError", "[Errno 28] No space left on device")),
        "no-data",
        "OSError: [Errno 28] No space left on device",
    ),
    ("nobody is to blame", verdict(killed("peer"), killed("peer")), "no-data", "every rank was killed because of"),
]


@pytest.mark.parametrize(("found", "kind", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_kind_and_reason(found: Judgement, kind: Kind, reason: str) -> None:
    assert (found.kind, found.reason[: len(reason)]) == (kind, reason)
    assert "\n" not in found.reason


def test_every_kind_but_flaky_comes_from_the_judge() -> None:
    assert {row[2] for row in TABLE} == set(KINDS) - {"flaky"}


def test_a_divergence_is_told_where_it_is_earliest() -> None:
    found = verdict(fine(arrays(grad=np.arange(1.0, 7) * 2, param=np.full(6, np.nan))))
    assert found.kind == "diverged"
    assert found.first is not None
    assert (found.first.step, found.first.role, found.first.tensor) == (0, "grad", "fc.weight")
    assert (found.error, found.bound) == (6.0, 0.0)
    assert found.pattern == "scaled"
    assert found.reason.endswith("2 of 3 arrays are wrong")


def test_no_number_that_json_cannot_hold() -> None:
    found = verdict(fine(arrays(grad=np.ones(5))))
    assert (found.kind, found.pattern, found.error) == ("diverged", "shape", None)
    assert found.bound is not None
    assert math.isfinite(found.bound)


def test_the_tightest_bounded_array_is_told_in_a_pass() -> None:
    moved = arrays(predict=np.array([1.0, 1.0, 0.5]) + 2e-16)
    found = judge(
        Observation((fine(),)), Observation((fine(moved),)), lambda name: name.role != "predict", 2, 2, ("torch",)
    )
    assert found.kind == "pass"
    assert found.first is not None
    assert found.first.role == "predict"
    assert 0 < found.tightest <= 1


@pytest.mark.parametrize(("apart", "rank"), [(0.0, 0), (0.004, 0), (0.4, 0), (-0.004, 0), (-0.4, 0), (-0.6, 1)])
def test_of_ranks_that_fail_together_the_lowest_is_told(apart: float, rank: int) -> None:
    """Which of two ranks fails a few milliseconds earlier is chance; only well before the others it is the cause."""
    found = verdict(raised(message="isend to 1"), raised(message="irecv from 0", at=100.0 + apart))
    assert found.report is not None
    assert found.report.message == ("isend to 1", "irecv from 0")[rank]


def test_an_echo_that_came_first_is_not_the_cause() -> None:
    later = replace(raised().error or ErrorReport("", ""), at=103.0)
    found = verdict(LOST, replace(raised(), error=later))
    assert found.report == later


def test_the_frames_of_a_hang_are_the_librarys_own() -> None:
    report = verdict(killed("deadline", STACKS)).report
    assert report is not None
    assert report.frames == ("torch.nn.modules.module:_call_impl", "torch.distributed.c10d:barrier")


@pytest.mark.parametrize(
    ("path", "frame"),
    [
        ("/e/lib/python3.12/site-packages/torch/nn/a.py", "torch.nn.a:f"),
        ("/usr/lib/python3/dist-packages/torch/nn/a.py", "torch.nn.a:f"),
        ("/torch/overlays/b12/torch/nn/a.py", "torch.nn.a:f"),
        ("/e/torch/lib/python3.12/site-packages/numpy/a.py", None),
        ("/e/torch/lib/python3.12/threading.py", None),
        ("/e/lib/python3.12/site-packages/torchvision/a.py", None),
        ("/tmp/trial.py", None),
    ],
)
def test_a_frame_belongs_to_the_library_by_where_its_file_lies(path: str, frame: str | None) -> None:
    stack = f'Current thread 0x1 (most recent call first):\n  File "{path}", line 3 in f\n'
    report = verdict(killed("deadline", stack)).report
    assert (report.frames if report else ()) == ((frame,) if frame else ())


def test_a_dump_of_the_c_stack_does_not_hide_the_python_one() -> None:
    """Python 3.14 writes one behind it."""
    report = verdict(killed("deadline", f"{STACKS}\nCurrent thread's C stack trace (most recent call first):\n")).report
    assert report is not None
    assert report.frames[-1] == "torch.distributed.c10d:barrier"
