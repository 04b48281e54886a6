"""Tiny scripts with the interface of a rendered one, for what the engine does with their processes."""

from pathlib import Path
from textwrap import dedent

HEAD = """
import os, signal, sys, time
ENV = {"OMP_NUM_THREADS": "1"}
os.environ.update(ENV)
import numpy as np
import torch
import torch.distributed as dist
STEPS = 1


def build():
    return torch.nn.Linear(2, 1)


def data(step):
    return torch.ones(4, 2), torch.ones(4, 1)


def reference():
    return {"predict": np.ones(2)}


def together(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)

"""

BARE = "import os, signal, time\nimport numpy as np\n"
"""A head without the library, for zygotes that have not imported it."""

DISTRIBUTED = "def distributed(rank, store, addresses):\n"


def write_script(folder: Path, body: str, name: str = "trial.py", head: str = HEAD) -> Path:
    """Write a script whose `distributed(rank, store)` has this body; return its path."""
    indented = "".join(f"    {line}\n" if line.strip() else "\n" for line in dedent(body).strip().splitlines())
    path = folder / name
    path.write_text(f"{head}\n{DISTRIBUTED}{indented}")
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
