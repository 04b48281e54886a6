"""Which families a change of the library touches: what each names lies in the library, and is its own."""

import subprocess
from pathlib import Path

import pytest

from d3bot.frameworks import families, touched
from d3bot.spec import FRAMEWORKS, Build

TABLE = [
    ("torch", "torch/nn/parallel/distributed.py", {"ddp", "zero1", "sampler", "ddp_tp", "pp_ddp"}),
    ("torch", "torch/csrc/distributed/c10d/reducer.cpp", {"ddp", "zero1", "sampler", "ddp_tp", "pp_ddp"}),
    ("torch", "torch/distributed/optim/zero_redundancy_optimizer.py", {"zero1"}),
    ("torch", "torch/distributed/fsdp/_flat_param.py", {"fsdp1"}),
    ("torch", "torch/distributed/pipelining/schedules.py", {"pp", "pp_ddp", "pp_fsdp2"}),
    ("torch", "torch/distributed/tensor/_ops/_math_ops.py", {"tp", "dtensor", "fsdp2_tp", "hsdp_tp", "ddp_tp"}),
    ("torch", "torch/distributed/checkpoint/resharding.py", {"dcp"}),
    ("torch", "tensorflow/python/distribute/mirrored_run.py", set()),
    ("tensorflow", "tensorflow/python/distribute/cross_device_ops.py", {"mirrored", "restore", "multi_worker"}),
    ("tensorflow", "tensorflow/python/distribute/sharded_variable.py", {"parameter_server"}),
    ("tensorflow", "tensorflow/dtensor/cc/dtensor_device.cc", {"dtensor"}),
    # What all settings run is no family's own: everything is run alike.
    ("torch", "torch/distributed/distributed_c10d.py", set()),
    ("tensorflow", "tensorflow/python/distribute/distribute_lib.py", set()),
    ("tensorflow", "keras/src/backend/tensorflow/trainer.py", set()),
]


@pytest.mark.parametrize(("framework", "path", "names"), TABLE, ids=lambda value: str(value))
def test_a_change_touches_the_families_whose_code_it_is_in(framework, path, names):
    assert set(touched(framework, [path])) == names
    assert touched(framework, ["docs/index.md", path, path]) == touched(framework, [path])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_family_names_its_code_and_none_names_everything(framework):
    for family in families(framework).values():
        assert family.files, family.name
        assert not any(start in ("", "torch/", "tensorflow/", "torch/distributed/") for start in family.files)


def _there(build: Build, framework: str) -> None:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([build.python, "-I", "-c", code], capture_output=True, text=True, check=True)
    site = Path(done.stdout.strip())
    # A wheel holds the Python files, and of the C++ ones the headers.
    include = site / ("torch/include" if framework == "torch" else "tensorflow/include")
    for family in families(framework).values():
        for start in family.files:
            where = [path for root in (site, include) for path in root.glob(f"{start}*")]
            assert where or family.needs, f"{family.name}: {start}"


def test_what_torch_families_name_lies_in_the_library(torch_build):
    _there(torch_build, "torch")


def test_what_tensorflow_families_name_lies_in_the_library(tensorflow_build):
    _there(tensorflow_build, "tensorflow")
