"""A stand-in for a library: a torch of a few lines, enough to be identified and patched."""

from collections.abc import Callable
from pathlib import Path

TORCH = {
    "torch/__init__.py": "from torch import version\nfrom torch import nn\n__version__ = '9.9.9+cpu'\n",
    "torch/version.py": "git_version = 'cafe'\ncuda = None\n",
    "torch/nn/__init__.py": "from torch.nn.clip import LIMIT\n",
    "torch/nn/clip.py": "# one\n# two\nLIMIT = 1\n# four\n",
    "torch-9.9.9+cpu.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9+cpu\n",
    "numpy-2.4.6.dist-info/METADATA": "Metadata-Version: 2.1\nName: numpy\nVersion: 2.4.6\n",
}

Environment = Callable[[dict[str, str]], Path]
"""Make an environment that holds the given files in its site-packages; return its interpreter."""
