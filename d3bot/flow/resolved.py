"""The one place where a build is resolved with what the configuration says of indexes, cache and staleness."""

from collections.abc import Callable

from d3bot.builds import resolve
from d3bot.config import Config
from d3bot.spec import Build, Framework


def resolved(
    spec: str, config: Config, log: Callable[[str], None] = lambda line: None, framework: Framework | None = None
) -> Build:
    """Return the Build of a spec, installed first if need be; `framework` where the spec does not say (`python:`).

    SpecError for a wrong spec, NoDataError for a build that cannot be had.
    """
    return resolve(spec, config.cache, log, framework, config.index, config.stale_days)
