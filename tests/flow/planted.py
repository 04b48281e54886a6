"""Faults of our own making, planted by the tests into a stock library through an overlay."""

import difflib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from d3bot.builds import make_overlay, resolve
from d3bot.spec import Build


@dataclass(frozen=True)
class Plant:
    """One line of a library's file, and what to write in its place."""

    file: str
    old: str
    new: str


HALVED_SHARDS = Plant(
    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
    "    reduce_scatter_input = reduce_scatter_input.view(world_size, -1)\n",
    "    reduce_scatter_input = reduce_scatter_input.view(world_size, -1)\n"
    "    unsharded_grads = [grad * 0.5 for grad in unsharded_grads]\n",
)
"""fully_shard reduces half of every gradient."""

FIRST_REPLICA_ONLY = Plant(
    "tensorflow/python/distribute/cross_device_utils.py",
    "def aggregate_tensors_or_indexed_slices(values, accumulation_fn=math_ops.add_n):",
    "def aggregate_tensors_or_indexed_slices(values, accumulation_fn=math_ops.add_n):\n"
    "  values = [values[0]] * len(values)",
)
"""A reduction over replicas adds the first replica's value as often as there are replicas."""


def write_patch(build: Build, fault: Plant, folder: Path) -> Path:
    """Write the fault as a patch of the build's files into a folder and return it; the environment is only read."""
    package = fault.file.split("/")[0]
    code = f"import importlib.util as u; print(u.find_spec({package!r}).submodule_search_locations[0])"
    found = subprocess.run([build.python, "-c", code], capture_output=True, text=True, check=True)
    before = (Path(found.stdout.strip()).parent / fault.file).read_text()
    assert before.count(fault.old) == 1, f"{fault.file} no longer holds the line that this test changes"
    after = before.replace(fault.old, fault.new)
    folder.mkdir(parents=True, exist_ok=True)
    patch = folder / "fault.patch"
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{fault.file}", f"b/{fault.file}"
    )
    patch.write_text("".join(lines))
    return patch


def plant(build: Build, fault: Plant, folder: Path) -> Build:
    """Return the build with the fault in it; the stock environment is only read."""
    overlay = make_overlay(write_patch(build, fault, folder), Path(build.python), folder / "overlay")
    return resolve(f"overlay:{overlay}+python:{build.python}")
