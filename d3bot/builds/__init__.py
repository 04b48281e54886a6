"""Builds: from what a person asked for to an interpreter that imports exactly that library.

`resolve` is the way in.  A build that cannot be had is a `NoDataError`, a wrong request a `SpecError`.
"""

from collections.abc import Callable
from pathlib import Path

from d3bot.builds import identify, install
from d3bot.builds.errors import NoDataError
from d3bot.builds.faults import Fault, load_faults
from d3bot.builds.install import default_cache
from d3bot.builds.overlay import make_overlay
from d3bot.builds.spec import Exact, parse
from d3bot.spec import Build, Framework

__all__ = ["Fault", "NoDataError", "default_cache", "load_faults", "make_overlay", "resolve"]


def resolve(
    spec: str,
    cache: Path | None = None,
    log: Callable[[str], None] = lambda line: None,
    framework: Framework | None = None,
) -> Build:
    """Return the Build of a spec such as `torch==2.13.0`, installed first if need be, and checked to be what it says.

    `cache` is the folder for all that d3bot keeps (default: `default_cache()`); `log` is given progress a line at a
    time; `framework` says which library is meant where the spec does not (`python:`).
    """
    request = parse(spec)
    if isinstance(request, Exact):
        made = install.install(request, cache or default_cache(), log)
        return identify.identify(
            made.python,
            None,
            request,
            source=made.source,
            wheel_hash=made.wheel_hash,
            cache=made.home / "identity.json",
        )
    overlay = Path(request.overlay) if request.overlay else None
    return identify.identify(Path(request.python), overlay, request, framework=framework)
