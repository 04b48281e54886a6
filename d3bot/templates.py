"""Where the Jinja templates and the seeds lie, and the one way in which templates are loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader, StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from d3bot.spec import SpecError

_PACKAGE = Path(__file__).parent


def data_folder(name: str) -> Path:
    """Return the folder `templates` or `seeds`: beside the package in a checkout, inside it in a wheel."""
    beside = _PACKAGE.parent / name
    return beside if beside.is_dir() else _PACKAGE / "_data" / name


def environment(folder: str, autoescape: bool = False, own: Path | None = None) -> SandboxedEnvironment:
    """Return a sandboxed environment on one sub-folder of `templates/`; an undefined name is an error.

    `own` is a person's folder laid out like `templates/`: a file there takes the place of ours of the same name.
    """
    folders = [own / folder] if own else []
    return ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(path) for path in (*folders, data_folder("templates") / folder)]),
        undefined=StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_page(page: SandboxedEnvironment, name: str, facts: Mapping[str, Any]) -> str:
    """Return the text of a template; SpecError if it cannot be rendered, as one that a person wrote may be wrong."""
    try:
        return page.get_template(name).render(facts)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        number = getattr(error, "lineno", None)
        where = f"{name}, line {number}" if number else name
        raise SpecError(f"template {where}: {' '.join(str(error).split())}; mend it or remove it") from error
