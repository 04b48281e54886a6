"""Where the Jinja templates and the seeds lie, and the one way in which templates are loaded."""

from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

_PACKAGE = Path(__file__).parent


def data_folder(name: str) -> Path:
    """Return the folder `templates` or `seeds`: beside the package in a checkout, inside it in a wheel."""
    beside = _PACKAGE.parent / name
    return beside if beside.is_dir() else _PACKAGE / "_data" / name


def environment(folder: str, autoescape: bool = False) -> SandboxedEnvironment:
    """Return a sandboxed environment on one sub-folder of `templates/`; an undefined name is an error."""
    return SandboxedEnvironment(
        loader=FileSystemLoader(data_folder("templates") / folder),
        undefined=StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
