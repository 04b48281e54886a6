"""What comes back from forked ranks, whatever they do; and nothing of them stays."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from engine_scripts import alive, write_script

from d3bot.engine.jobs import Job
from d3bot.engine.zygote import Zygote
from d3bot.judge.verdict import stack_frames
from d3bot.spec import Observation

Run = Callable[..., Observation]
PACKAGES = ("torch",)
CLAIM = "open('rank-0.json', 'w').write('{\"ok\": true}')"
"""A script that says by itself that all went well."""


def arrays(observation: Observation, rank: int = 0) -> dict[str, np.ndarray]:
    found = observation.ranks[rank].arrays
    assert found is not None, observation.ranks[rank]
    return found


def below(pid: int) -> list[int]:
    """Every descendant of a process."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return children + [deeper for child in children for deeper in below(child)]


def test_every_rank_is_given_an_address_that_it_alone_can_listen_at(run: Run) -> None:
    seen = run("""
        import socket
        host, port = addresses[rank].split(":")
        with socket.socket() as thief:
            try:
                thief.bind((host, int(port)))
                return {"predict": np.zeros(1)}
            except OSError:
                pass
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
            server.bind((host, int(port)))
            server.listen()
            return {"predict": np.array([len(set(addresses)), int(port)])}
    """)
    ports = {int(arrays(seen, rank)["predict"][1]) for rank in range(2)}
    assert arrays(seen, 0)["predict"][0] == 2
    assert len(ports) == 2


def test_arrays_come_back_from_every_rank(run: Run) -> None:
    seen = run("""
        together(rank, store)
        total = torch.full((2, 3), 1.0 + rank, dtype=torch.float64)
        dist.all_reduce(total)
        return {"step 0 loss 0": np.float32(rank), "param w": total.numpy()}
    """)
    assert seen.ok
    for rank in range(2):
        assert arrays(seen, rank)["param w"].dtype == np.float64
        assert (arrays(seen, rank)["param w"] == np.full((2, 3), 3.0)).all()
        assert arrays(seen, rank)["step 0 loss 0"] == np.float32(rank)


def test_reference_comes_back_with_its_noise(zygote: Zygote, tmp_path: Path) -> None:
    script = write_script(tmp_path, "return {}")
    text = script.read_text().replace(
        'return {"predict": np.ones(2)}',
        'torch.manual_seed(0); return {"predict": build().weight.detach().numpy(), "param d": data(0)[0].numpy()}',
    )
    script.write_text(text)
    seen = zygote.run(Job(script, "reference", "torch", parts=2, noise=("order", "move")))
    assert seen.ok
    order, move = seen.noise
    assert (order["predict"] == arrays(seen)["predict"]).all()
    apart = np.abs(move["predict"] - arrays(seen)["predict"]) / np.spacing(np.abs(arrays(seen)["predict"]))
    assert (apart > 0.4).all()
    assert (apart <= 1).all(), "every parameter is moved by one unit in the last place"


def test_reference_comes_back_on_each_share_of_the_rows(zygote: Zygote, tmp_path: Path) -> None:
    script = write_script(tmp_path, "return {}")
    body = """
rows = data(0)[0].numpy()
    if len(rows) == 4 and (rows == rows[0]).all():
        raise ValueError("one row alone is too few")
    return {"step 0 grad rows": rows, "predict": data(1)[0].numpy()}
"""
    text = script.read_text().replace("torch.ones(4, 2)", "torch.arange(8.0).reshape(4, 2)")
    script.write_text(text.replace('return {"predict": np.ones(2)}', body.strip()))
    seen = zygote.run(Job(script, "reference", "torch", parts=2, shares=(0, 1), pieces=2, start=True))
    assert seen.ok
    first, second = seen.shares
    assert first is not None
    assert second is not None
    assert first["step 0 grad rows"].tolist() == [[0, 1], [2, 3], [0, 1], [2, 3]], "once for each part"
    assert second["step 0 grad rows"].tolist() == [[4, 5], [6, 7], [4, 5], [6, 7]]
    assert len(second["predict"]) == 4, "the probe stays whole"
    assert seen.start.keys() == {"param weight", "param bias"}
    less = zygote.run(Job(script, "reference", "torch", parts=2, without=(1,), pieces=4)).without
    assert [run["step 0 grad rows"].tolist() for run in less if run] == [[[0, 1], [4, 5], [6, 7]] * 2]
    alone = zygote.run(Job(script, "reference", "torch", parts=4, shares=(3,), pieces=4))
    assert alone.ok
    assert alone.shares == (None,), "what cannot be run on a share alone is left out"


def test_exception_on_one_rank_is_told_with_its_library_frames(run: Run) -> None:
    seen = run("""
        together(rank, store)
        if rank == 1:
            torch.nn.functional.linear(torch.ones(2), torch.nn.Linear(3, 3)("not a tensor"))
        dist.barrier()
    """)
    error = seen.ranks[1].error
    assert error is not None
    assert error.type == "TypeError"
    assert "linear()" in error.message
    assert error.frames[-1] == "torch.nn.modules.linear:forward"
    assert all(frame.startswith("torch.nn.") for frame in error.frames), "frames of the script are not the library's"
    assert "not a tensor" in error.text
    assert "d3bot_child" not in error.text
    assert seen.ranks[0].arrays is None
    assert seen.seconds < 6, "the peer gets the grace time, not the deadline"


def test_the_message_of_autograph_is_what_was_raised_in_the_users_code(run: Run) -> None:
    seen = run("""
        raise ValueError("in user code:\\n\\n    File 'x.py', line 1, in step\\n\\n    ValueError: not like this\\n")
    """)
    assert seen.ranks[0].error is not None
    assert seen.ranks[0].error.message.strip() == "not like this"


def test_a_peer_that_never_notices_is_killed_after_the_grace_time(run: Run) -> None:
    seen = run("""
        if rank == 1:
            raise ValueError("lost")
        time.sleep(60)
    """)
    assert (seen.ranks[0].why, seen.ranks[0].code) == ("peer", -signal.SIGKILL)
    assert seen.ranks[1].error is not None
    assert 2.5 < seen.seconds < 8


@pytest.mark.parametrize(
    ("death", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), 40)", -40),
        ("os.abort()", -signal.SIGABRT),
        ("os._exit(3)", 3),
        ("os._exit(0)", 0),
    ],
)
def test_death_of_a_rank(run: Run, death: str, code: int) -> None:
    """J2: a signal is an outcome, with what the rank printed before it."""
    seen = run(death, processes=1)
    rank = seen.ranks[0]
    assert (rank.code, rank.why, rank.arrays, rank.error) == (code, "", None, None)
    assert not seen.ok


def test_a_rank_that_leaves_without_a_word_does_not_cost_its_peers_the_deadline(run: Run) -> None:
    seen = run("""
        if rank == 1:
            os._exit(0)
        time.sleep(60)
    """)
    assert (seen.ranks[0].why, seen.ranks[1].code) == ("peer", 0)
    assert seen.seconds < 8


@pytest.mark.parametrize(
    ("body", "frame"),
    [
        ("while True:\n    pass", None),
        (
            """
            together(rank, store)
            dist.barrier()
            if rank == 0:
                dist.all_reduce(torch.ones(2))
            else:
                time.sleep(60)
            """,
            "torch.distributed.distributed_c10d:all_reduce",
        ),
    ],
)
def test_a_hang_ends_at_the_deadline_with_stacks(run: Run, body: str, frame: str | None) -> None:
    seen = run(body, seconds=3)
    assert [rank.why for rank in seen.ranks] == ["deadline", "deadline"]
    assert 3 <= seen.seconds < 8
    for rank in seen.ranks:
        assert " in distributed" in rank.output, "the stack of the script"
    frames = stack_frames(seen.ranks[0].output, PACKAGES)
    assert (frames[-1] if frames else None) == frame


def test_a_rank_that_finished_is_not_blamed_for_the_hang_of_another(run: Run) -> None:
    seen = run(
        """
        if rank == 1:
            time.sleep(60)
        return {"predict": np.ones(1)}
        """,
        seconds=2,
    )
    assert [rank.why for rank in seen.ranks] == ["", "deadline"]
    assert seen.ranks[0].code == 0


def test_memory_limit_names_the_rank_that_went_over_it(run: Run) -> None:
    seen = run(
        """
        if rank == 1:
            kept = np.ones(2**29 // 8)
        time.sleep(60)
        """,
        memory=2**29,
    )
    assert [rank.why for rank in seen.ranks] == ["peer", "memory"]


def test_a_flood_of_output_is_stopped(run: Run) -> None:
    seen = run("while True: print('x' * 1000)", processes=1, output=2**20)
    assert seen.ranks[0].why == "output"
    assert 0 < len(seen.ranks[0].output) <= 8000


def test_a_file_cannot_fill_the_disk(run: Run) -> None:
    seen = run("open('big', 'wb').write(bytes(2**21))", processes=1, file=2**20)
    assert seen.ranks[0].error is not None
    assert "File too large" in seen.ranks[0].error.message


@pytest.mark.parametrize(
    ("ending", "why"),
    [("return {'predict': np.ones(1)}", ""), ("os._exit(3)", ""), ("time.sleep(60)", "deadline")],
)
def test_a_grandchild_that_detached_itself_is_dead_afterwards(
    run: Run, tmp_path: Path, zygote: Zygote, ending: str, why: str
) -> None:
    note = tmp_path / "pids"
    seen = run(
        f"""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.closerange(0, 100)
            with open("{note}", "a") as file:
                file.write(f"{{os.getpid()}} ")
            time.sleep(600)
        while not os.path.exists("{note}") or len(open("{note}").read().split()) < 2:
            time.sleep(0.01)
        {ending}
        """,
        processes=1,
        seconds=2,
    )
    assert seen.ranks[0].why == why
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    assert below(zygote._process.pid) == []


def test_nothing_is_left_behind(run: Run, zygote: Zygote) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def files() -> set[str]:
        return {str(path) for path in zygote._home.rglob("*")}

    before = descriptors(), files()
    run("""
        import tempfile
        tempfile.mkstemp(); tempfile.mkdtemp()
        open(os.path.expanduser("~/.cache"), "w").close()
        return {"predict": np.ones(1)}
    """)
    run("raise ValueError(rank)")
    run("time.sleep(60)", seconds=0.5)
    assert (descriptors(), files()) == before
    assert below(zygote._process.pid) == []


def test_one_trial_does_not_reach_the_next(run: Run) -> None:
    honest = """
        x = torch.rand(3, requires_grad=True)
        return {"predict": (x * np.random.rand()).detach().numpy(), "param d": np.ones(1) * torch.get_num_threads(),
                "buffer home": np.array(os.listdir(os.path.expanduser("~")) == ["rank-0.out"])}
    """
    before = arrays(run(honest, processes=1))
    run(
        """
        torch.set_default_dtype(torch.float16); torch.manual_seed(5); np.random.seed(7); torch.rand(3)
        torch.set_num_threads(2); torch.set_grad_enabled(False); torch.use_deterministic_algorithms(True)
        torch.nn.Linear.forward = None; os.environ["HOME"] = "/nowhere"; sys.path.clear(); sys.modules["json"] = None
        open(os.path.expanduser("~/left"), "w").close(); os.chdir("/"); os.umask(0o777)
        return {"predict": np.ones(1)}
        """,
        processes=1,
    )
    after = arrays(run(honest, processes=1))
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.dtype == after[name].dtype
        assert array.tobytes() == after[name].tobytes(), name
    assert before["buffer home"]


def test_a_worker_sees_no_secret(run: Run) -> None:
    seen = run("print(sorted(os.environ)); return {'predict': np.ones(1)}", processes=1)
    names = seen.ranks[0].output
    assert "HOME" in names
    assert not any(word in names for word in ("GITHUB", "ACTIONS", "TOKEN"))


def test_a_rank_does_not_hold_the_channel_to_the_driver(run: Run) -> None:
    seen = run(
        """
        for name in os.listdir("/proc/self/fd"):
            try:
                print(os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                pass
        return {"predict": np.ones(1)}
        """,
        processes=1,
    )
    assert "rank-0.out" in seen.ranks[0].output
    assert "socket" not in seen.ranks[0].output


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return {'predict': np.array([object()])}", "TypeError"),
        ("return {'predict': np.array(['a'])}", "TypeError"),
        ("return {'predict': np.ones(1, complex)}", "TypeError"),
        ("return 3", "AttributeError"),
        ("sys.exit(4)", "SystemExit"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "Odd"),
        ("raise ValueError('\\ud800')", "ValueError"),
        ("sys.stdout.close(); sys.stderr = None; raise ValueError", "ValueError"),
    ],
)
def test_odd_endings_are_errors_with_a_name(run: Run, body: str, kind: str) -> None:
    error = run(body, processes=1).ranks[0].error
    assert error is not None
    assert error.type == kind
    error.message.encode()


def test_closed_standard_streams_do_not_lose_a_result(run: Run) -> None:
    assert run("sys.stdout.close(); sys.stderr = None; return {'predict': np.ones(1)}", processes=1).ok


@pytest.mark.parametrize(
    "garbage",
    [
        "open('rank-0.npz', 'w').write('PK no zip')",
        "os.mkfifo('rank-0.npz')",
        "os.mkdir('rank-0.npz')",
        "np.savez(open('rank-0.npz', 'wb'), predict=np.array([{}], dtype=object))",
    ],
)
def test_a_garbled_result_is_no_result(run: Run, garbage: str) -> None:
    seen = run(f"{garbage}; {CLAIM}; os._exit(0)", processes=1)
    assert (seen.ranks[0].code, seen.ranks[0].arrays) == (0, None)


def test_a_result_counts_only_with_its_outcome(run: Run) -> None:
    result = "np.savez('rank-0.npz', predict=np.zeros(2))"
    assert run(f"{result}; {CLAIM}; os._exit(0)", processes=1).ok, "else the tests around this one would show nothing"
    assert not run(f"{result}; os._exit(0)", processes=1).ok


@pytest.mark.parametrize("garbage", ["{", "[]", '{"ok": false, "type": 3}', "[" * 100_000])
def test_a_garbled_outcome_is_no_error(run: Run, garbage: str) -> None:
    seen = run(f"open('rank-0.json', 'w').write({garbage!r}); os._exit(1)", processes=1)
    assert (seen.ranks[0].code, seen.ranks[0].error) == (1, None)


def test_a_result_that_swells_when_it_is_unpacked_is_no_result(run: Run) -> None:
    seen = run(f"np.savez_compressed('rank-0.npz', predict=np.zeros(2**26)); {CLAIM}; os._exit(0)", processes=1)
    assert (seen.ranks[0].code, seen.ranks[0].arrays) == (0, None)


def test_ranks_are_up_quickly(run: Run) -> None:
    began = time.monotonic()
    for _ in range(3):
        assert run("together(rank, store); dist.barrier(); return {'predict': np.ones(1)}").ok
    assert time.monotonic() - began < 10, "forked ranks, not new interpreters that import the library"
