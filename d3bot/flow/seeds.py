"""Seeds that fit the framework they are for: read, and checked against its layers and settings."""

from pathlib import Path

from d3bot.flow.known import KNOWN
from d3bot.frameworks import canonical_setting
from d3bot.frameworks.layers import infer_shapes
from d3bot.spec import FRAMEWORKS, Framework, Seed, SpecError, load_seed


def read_seed(path: Path) -> Seed:
    """Return a seed whose layers and settings exist; SpecError names the file and what is wrong."""
    seed = load_seed(path)
    try:
        infer_shapes(seed.case)
        settings = tuple(canonical_setting(seed.case.framework, setting) for setting in seed.settings)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
    return Seed(seed.name, seed.case, seed.comment, settings)


def load_seeds(folder: Path | None, framework: Framework) -> list[Seed]:
    """Return the seeds of a framework, by name; SpecError names the file that is wrong."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise SpecError(f"--seeds {folder}: no such folder; give a folder with torch/ and tensorflow/, or none")
    if stray := sorted(path for path in folder.glob("*.toml") if path.name != KNOWN):
        raise SpecError(f"{stray[0]}: nobody looks here; move it to {folder}/torch or {folder}/tensorflow")
    if not any((folder / name).is_dir() for name in FRAMEWORKS):
        raise SpecError(f"--seeds {folder}: has neither torch/ nor tensorflow/; put seeds there, or give none")
    seeds = [read_seed(path) for path in sorted((folder / framework).glob("*.toml"))]
    for seed in seeds:
        if seed.case.framework != framework:
            where = folder / framework / f"{seed.name}.toml"
            raise SpecError(f"{where}: is a case of {seed.case.framework}; move it to {folder / seed.case.framework}")
    return seeds
