"""The doctor: what each fact of a machine means, and what to do about it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from d3bot.builds import NoDataError
from d3bot.doctor import Check, Environment, Facts, Folder, diagnose, judge, preflight

ROOM = Folder("/cache", 50.0)
MADE = Environment("torch-2.13.0", "torch 2.13.0+cu130, Python 3.11.7", "", "13.0", "2.28.9")
HEALTHY = Facts(
    system="Linux",
    python=(3, 12),
    cache=ROOM,
    out=Folder("runs/x", 50.0),
    memory_gib=16.0,
    cores=8,
    loopback="",
    hostname="",
    ports=28232,
    files=1024,
    shm_mib=8000.0,
    uv=False,
    venv=True,
    gpus=("H200", "H200"),
    gpu_error="",
    environments=(MADE,),
)


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    checks = judge(HEALTHY)
    assert all(check.ok for check in checks)
    assert not any(check.mend for check in checks)


@pytest.mark.parametrize(
    ("facts", "name", "ok", "words"),
    [
        ({"system": "Darwin"}, "system", False, "run it on Linux"),
        ({"python": (3, 10)}, "python", False, "Python 3.11 or newer"),
        ({"venv": False}, "installer", False, "python3-venv"),
        ({"venv": False, "uv": True}, "installer", True, "uv"),
        ({"cache": Folder("/c", 0.4)}, "disk for environments", False, "needs about 0.5 GiB: free some space"),
        ({"cache": Folder("/c", 1.9), "environments": ()}, "disk for environments", False, "needs about 2 GiB"),
        ({"cache": Folder("/c", 1.9)}, "disk for environments", True, "1.9 GiB free"),
        ({"cache": Folder("/c", 9, "Permission denied")}, "disk for environments", False, "cannot be written"),
        ({"out": Folder("/o", 0.1)}, "disk for the run", False, "choose another --out"),
        ({"out": Folder("/o", 9, "Read-only file system")}, "disk for the run", False, "mend its permissions"),
        ({"memory_gib": 1.0}, "memory", False, "close other programs"),
        ({"cores": 1}, "cores", None, "expect slow runs"),
        ({"loopback": "Cannot assign"}, "loopback", False, "ip link set lo up"),
        ({"hostname": "Name or service not known"}, "host name", None, "/etc/hosts"),
        ({"ports": 100}, "ports", None, "net.ipv4.ip_local_port_range"),
        ({"files": 256}, "open files", None, "ulimit -n 1024"),
        ({"files": 0}, "open files", True, "any number"),
        ({}, "NCCL", True, "CUDA 13.0, NCCL 2.28.9"),
        ({"gpus": ("H200",)}, "NCCL", None, "there are not two GPUs"),
        ({"environments": (replace(MADE, nccl=""),)}, "NCCL", None, "no environment made so far holds it"),
        ({"shm_mib": 64.0}, "shared memory", None, "--shm-size"),
        ({"shm_mib": None}, "shared memory", None, "mount a tmpfs"),
        ({"gpus": ()}, "GPUs", None, "NCCL and CUDA kernels are not"),
        ({"gpus": ("H200",)}, "GPUs", None, "one GPU cannot hold two NCCL ranks"),
        ({"gpus": ("A", "B", "C", "D")}, "GPUs", True, "up to 4 ranks"),
        ({"gpus": (), "gpu_error": "no driver"}, "GPUs", False, "nvidia-smi fails: no driver"),
        ({"environments": ()}, "environments", None, "the first run installs"),
        ({"environments": (replace(MADE, error="gone"),)}, "environment torch-2.13.0", False, "makes it anew"),
    ],
)  # fmt: skip
def test_what_a_fact_means(facts: dict[str, Any], name: str, ok: bool | None, words: str) -> None:
    (check,) = [check for check in judge(replace(HEALTHY, **facts)) if check.name == name]
    assert check.ok is ok
    assert words in f"{check.detail} {check.mend}"


@pytest.mark.parametrize("facts", [{"system": "Darwin"}, {"memory_gib": 1.0}, {"loopback": "x"}, {"gpu_error": "x"}])
def test_a_failure_always_has_a_mend(facts: dict[str, Any]) -> None:
    failed = [check for check in judge(replace(HEALTHY, **facts)) if check.ok is False]
    assert len(failed) == 1
    assert failed[0].mend


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name.startswith(name)]
    return found


def test_this_machine_is_looked_at_and_nothing_is_left(tmp_path: Path) -> None:
    checks = diagnose(tmp_path / "cache", tmp_path / "runs" / "x")
    assert named(checks, "loopback").ok
    assert "GiB free" in named(checks, "disk for environments").detail
    assert named(checks, "environments").ok is None
    assert list(tmp_path.iterdir()) == []


def test_j5_a_run_that_cannot_begin_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight(tmp_path / "cache", tmp_path / "run")
    (tmp_path / "leftover").write_text("")
    with pytest.raises(NoDataError, match=r"disk for the run: .* cannot be written"):
        preflight(tmp_path / "cache", tmp_path / "leftover" / "run")
    full = shutil._ntuple_diskusage(10**9, 10**9, 0)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(NoDataError, match=r"disk for the run: .* 0.0 GiB free; needs about 0.5 GiB: free some space"):
        preflight(tmp_path / "cache", tmp_path / "run")


def test_a_folder_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert named(diagnose(tmp_path / "cache", tmp_path), "disk for environments").ok is False


def test_an_environment_made_earlier_is_imported(tmp_path: Path) -> None:
    home = tmp_path / "envs" / "torch-2.13.0-cp311"
    home.mkdir(parents=True)
    (home / "ready.json").write_text('{"spec": "torch==2.13.0"}')
    check = named(diagnose(tmp_path, tmp_path), "environment torch")
    assert check.ok is False
    assert "is not a program" in check.detail
