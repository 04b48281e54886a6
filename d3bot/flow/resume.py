"""What a run was told when it began, so that it goes on in the same way."""

from pathlib import Path
from typing import Any

from d3bot.history.folder import load_run
from d3bot.spec import SpecError


def told_before(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run that was begun, as `load_config` takes it; SpecError if there is no run."""
    if not folder.exists():
        raise SpecError(f"--resume: {folder} is not there; give the run folder with --out")
    told = dict(load_run(folder).run.config)
    if told.get("seeds", "") is None:
        told["seeds"] = "none"
    return told
