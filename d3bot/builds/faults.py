"""Faults: known mistakes kept as patches, to be planted in a stock library so that d3bot can be measured on them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from d3bot.builds.patch import read_patch
from d3bot.spec import Framework, SpecError

MAX_BYTES = 1024 * 1024
_ID = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,79}$")


@dataclass(frozen=True)
class Fault:
    """One fault: a folder that holds `fault.patch` and `meta.json` with at least `id` and `title`."""

    id: str
    framework: Framework
    title: str
    patch: Path


def load_faults(folder: Path) -> list[Fault]:
    """Return the faults of a folder, sorted by framework and id.

    The faults are folders directly in it, or one level down (`torch/ID`, `tf/ID`).  Which library a fault belongs to
    is read from the paths of its patch.  SpecError names the file that is wrong.
    """
    if not folder.is_dir():
        raise SpecError(
            f"{folder}: not a folder; give a folder of faults, each a folder with fault.patch and meta.json"
        )
    patches = sorted([*folder.glob("*/fault.patch"), *folder.glob("*/*/fault.patch")])
    if not patches:
        raise SpecError(f"{folder}: holds no fault; a fault is a folder with fault.patch and meta.json")
    faults: dict[tuple[Framework, str], Fault] = {}
    for patch in patches:
        fault = _load(patch)
        other = faults.setdefault((fault.framework, fault.id), fault)
        if other is not fault:
            raise SpecError(f"{patch.parent}: has the id {fault.id!r} of {other.patch.parent}; rename one")
    return sorted(faults.values(), key=lambda fault: (fault.framework, fault.id))


def _load(patch: Path) -> Fault:
    meta = patch.with_name("meta.json")
    try:
        if meta.stat().st_size > MAX_BYTES:
            raise SpecError(f"{meta}: larger than {MAX_BYTES // 1024} KiB; a fault's meta.json is small")
        data = json.loads(meta.read_text())
    except OSError as error:
        raise SpecError(f"{meta}: cannot be read ({error.strerror}); a fault needs it beside fault.patch") from error
    except ValueError as error:
        raise SpecError(f"{meta}: not valid JSON ({error})") from error
    name, title = (data.get("id"), data.get("title")) if isinstance(data, dict) else (None, None)
    if not isinstance(name, str) or not _ID.match(name):
        raise SpecError(f'{meta}: "id" must be lower-case letters, digits and _ . -, not {name!r}')
    if not isinstance(title, str) or not title.strip():
        raise SpecError(f'{meta}: "title" must say on one line what is wrong')
    packages = {change.package for change in read_patch(patch)}
    if "torch" in packages and len(packages) > 1:
        raise SpecError(
            f"{patch}: changes both torch and {max(packages - {'torch'})}; a fault belongs to one framework"
        )
    return Fault(name, "torch" if "torch" in packages else "tensorflow", " ".join(title.split()), patch)
