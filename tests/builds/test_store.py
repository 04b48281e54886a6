"""The cache: equal files once, what is in use stays, the last two nights stay, the rest goes by age and size."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from d3bot.builds.store import hold, kept_environments, prune, release, remove, share

DAY = 86400.0
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Put an environment into the cache that was last used so many days ago."""

    def one(name: str, days: float = 0.0, library: str = "torch", data: bytes = b"") -> Path:
        home = tmp_path / "envs" / name
        packages = home / "lib" / "python3.11" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "big.so").write_bytes(data or name.encode() * 2**15)
        (packages / "small.py").write_text("")
        marker = home / "ready.json"
        marker.write_text(json.dumps({"spec": name, "name": library, "requirements": []}))
        os.utime(marker, (time.time() - days * DAY,) * 2)
        return home

    return one


def names(cache: Path) -> list[str]:
    return [item.home.name for item in kept_environments(cache)]


def test_equal_files_are_one_file_and_each_can_go_by_itself(make: Make, tmp_path: Path) -> None:
    homes = [make(name, data=b"x" * 2**20) for name in ("a", "b", "c")]
    assert [share(home, tmp_path) for home in homes] == [0, 2**20, 2**20]
    files = [next(home.glob("lib/*/*/big.so")) for home in homes]
    assert len({file.stat().st_ino for file in files}) == 1
    assert len({next(home.glob("lib/*/*/small.py")).stat().st_ino for home in homes}) == 3
    assert remove(homes[0])
    assert files[1].read_bytes() == b"x" * 2**20
    assert remove(homes[1])
    assert remove(homes[2])
    prune(tmp_path, 1, 1)
    assert not list((tmp_path / "files").iterdir()), "content that nothing links to is gone"


def test_a_file_of_another_mode_is_another_file(make: Make, tmp_path: Path) -> None:
    homes = [make(name, data=b"x" * 2**20) for name in ("a", "b")]
    next(homes[0].glob("lib/*/*/big.so")).chmod(0o755)
    assert [share(home, tmp_path) for home in homes] == [0, 0]


def test_pruned_by_age_but_never_the_last_two_of_a_library(make: Make, tmp_path: Path) -> None:
    for days in (50, 51, 52, 53):
        make(f"torch-{days}", days)
    make("tf-60", 60, "tf-nightly")
    removed = prune(tmp_path, max_gib=100, max_days=45)
    assert {path.name for path in removed} == {"torch-53", "torch-52"}
    assert names(tmp_path) == ["tf-60", "torch-51", "torch-50"]


def test_pruned_by_size_the_longest_unused_first(make: Make, tmp_path: Path) -> None:
    for days in range(6):
        make(f"torch-{days}", days, data=bytes([days]) * 2**20)
    removed = prune(tmp_path, max_gib=4.1 / 1024, max_days=45)
    assert [path.name for path in removed] == ["torch-5", "torch-4"]


def test_what_is_protected_or_used_by_another_process_stays(make: Make, tmp_path: Path) -> None:
    homes = {days: make(f"torch-{days}", days) for days in (90, 91, 92, 93)}
    code = f"""
import sys
from pathlib import Path
from d3bot.builds.store import hold
hold(Path({str(homes[93])!r}))
print("held", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    os.utime(homes[93] / "ready.json", (time.time() - 93 * DAY,) * 2)
    assert prune(tmp_path, 100, 45, protect=[homes[92]]) == []
    process.kill()
    process.communicate()
    assert prune(tmp_path, 100, 45, protect=[homes[92]]) == [homes[93]], "a killed process holds nothing"


def test_holding_an_environment_counts_as_using_it(make: Make, tmp_path: Path) -> None:
    old = make("old", 30)
    make("new", 1)
    assert names(tmp_path) == ["old", "new"]
    hold(old)
    hold(old)
    try:
        assert names(tmp_path) == ["new", "old"]
    finally:
        release(old)
    assert remove(old)
    assert names(tmp_path) == ["new"]
