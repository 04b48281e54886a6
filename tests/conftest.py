"""What tests of every room share: real builds of the libraries, installed once into the user's cache.

A developer who has an environment with the library already may point D3BOT_TEST_TORCH or D3BOT_TEST_TENSORFLOW at its
interpreter, and nothing is installed.
"""

import os
import sys

import pytest

from d3bot.builds import Index, resolve
from d3bot.spec import Build, Framework

PINNED: dict[Framework, str] = {"torch": "torch==2.13.0", "tensorflow": "tensorflow-cpu==2.21.0"}


def _build(framework: Framework) -> Build:
    python = os.environ.get(f"D3BOT_TEST_{framework.upper()}", "")
    spec = f"python:{python}" if python else PINNED[framework]
    # The tests of a machine take their libraries from where that machine is set up to take them.
    index = Index(pip_config="machine")
    return resolve(spec, log=lambda line: print(line, file=sys.stderr), framework=framework, index=index)


@pytest.fixture(scope="session")
def torch_build() -> Build:
    """PyTorch, the version that `make nightly` runs."""
    return _build("torch")


@pytest.fixture(scope="session")
def tensorflow_build() -> Build:
    """TensorFlow, the version that `make nightly` runs."""
    return _build("tensorflow")
