"""Trials in random order, every tenth of them hostile: no verdict is lost or wrong, and nothing of it stays.

Sixty here, so that each attack comes once; `make attack` runs 500, D3BOT_TEST_ATTACK=N as many as one likes.
"""

import concurrent.futures
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_scripts import DISTRIBUTED, write_script

from d3bot.engine import zygote as zygotes
from d3bot.engine.jobs import Job, Limits
from d3bot.engine.pool import Pool
from d3bot.judge import judge
from d3bot.spec import Build, Kind, Observation, RankObservation

TRIALS = int(os.environ.get("D3BOT_TEST_ATTACK", "60"))
LIMITS = Limits(seconds=20, output=2**20, memory=2**30)
FORK = """
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
"""
ATTACKS: dict[str, tuple[str, Kind, str]] = {
    "killed": ("if rank == 1:\n    os.kill(os.getpid(), 9)\ntime.sleep(60)", "died", "rank 1 was ended by SIGKILL"),
    "hung": ("while True:\n    pass", "hung", "rank 0, 1 did not end within"),
    "flooding": ("while True:\n    print('x' * 10000)", "died", "was killed: it printed more than its limit"),
    "eating memory": ("kept = [np.ones(2**20) for _ in range(400)]\ntime.sleep(60)", "died", "over its memory limit"),
    "forking and gone": (f"{FORK}\nos._exit(0)", "died", "ended with exit code 0 and without a result"),
    "forking and right": (f"{FORK}\nreturn result(together, rank, store)", "pass", "1 arrays bit-equal"),
}
HONEST = "return result(together, rank, store)"
RESULT = """
def result(together, rank, store):
    together(rank, store)
    total = torch.full((3,), SEED + rank, dtype=torch.float64)
    dist.all_reduce(total)
    return {"step 0 loss 0": np.float64(torch.rand(1)), "predict": np.arange(6.0).reshape(2, 3) * total.numpy()}


"""


def script(folder: Path, number: int, body: str, name: str) -> Path:
    path = write_script(folder, body, name)
    head = f"SEED = {number + 1}\ntorch.manual_seed(SEED)\n"
    path.write_text(path.read_text().replace(DISTRIBUTED, head + RESULT + DISTRIBUTED))
    return path


def expected(number: int) -> Observation:
    """What one process says: the same numbers, made without a library."""
    total = np.full(3, 2.0 * (number + 1) + 1)
    return Observation((RankObservation(0, arrays={"predict": np.arange(6.0).reshape(2, 3) * total}),))


def verdict(number: int, seen: Observation) -> tuple[Kind, str]:
    one = expected(number)
    ranks = tuple(
        replace(rank, arrays={"predict": rank.arrays["predict"]}) if rank.arrays else rank for rank in seen.ranks
    )
    found = judge(one, replace(seen, ranks=ranks), lambda name: True, world=2, parts=2, packages=("torch",))
    return found.kind, found.reason


def descendants() -> set[int]:
    """Every living process below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                state, parent = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(name)] = int(parent)
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid()}


def test_nothing_is_lost_wrong_or_left(torch_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    order = list(range(TRIALS))
    chance.shuffle(order)
    names = list(ATTACKS)
    attacks = {number: names[i % len(names)] for i, number in enumerate(order[::10])}
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(zygotes.tempfile, "tempdir", str(temporary))
    descriptors, processes = len(os.listdir("/proc/self/fd")), descendants()

    def one(pool: Pool, number: int, attacked: bool) -> Observation:
        attack = attacks.get(number) if attacked else None
        body = ATTACKS[attack][0] if attack else HONEST
        limits = replace(LIMITS, seconds=2) if attack == "hung" else LIMITS
        path = script(tmp_path, number, body, f"{attacked}-{number}.py")
        return pool.run(Job(path, "distributed", "torch", 2, limits=limits))

    seen: dict[bool, list[Observation]] = {}
    for attacked in (True, False):
        with (
            Pool(torch_build, {"OMP_NUM_THREADS": "1"}, 2) as pool,
            concurrent.futures.ThreadPoolExecutor(2) as threads,
        ):
            futures = {number: threads.submit(one, pool, number, attacked) for number in order}
            seen[attacked] = [futures[number].result() for number in range(TRIALS)]
            assert list(temporary.iterdir()), "else nobody would see what is left"
        assert descendants() <= processes, "no process, and with it no port, is left"
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert not list(temporary.iterdir()), "no file is left"

    for number in range(TRIALS):
        kind, reason = verdict(number, seen[True][number])
        quiet = seen[False][number]
        assert verdict(number, quiet)[0] == "pass", verdict(number, quiet)[1]
        if number in attacks:
            _, wanted, words = ATTACKS[attacks[number]]
            assert (kind, words in reason) == (wanted, True), (attacks[number], reason)
            continue
        assert kind == "pass", reason
        for rank, same in zip(seen[True][number].ranks, quiet.ranks, strict=True):
            assert rank.arrays is not None
            assert same.arrays is not None
            assert {name: array.tobytes() for name, array in rank.arrays.items()} == {
                name: array.tobytes() for name, array in same.arrays.items()
            }, "a trial gives the same to the last bit, whatever ran beside it"
