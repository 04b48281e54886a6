"""The finding folder, the unit of exchange: everything about one failure, written whole and read as hostile data."""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w
from pydantic import ValidationError

from d3bot.history.files import dump_json, read_object, read_text, write_atomic
from d3bot.spec import Finding, Seed, Setting, SpecError, dump_seed, load_seed, one_line, read_toml

FINDINGS = "findings"
MAX_FINDINGS = 1000
"""Folders read from one run; more than that is a broken build or a hostile artifact, not a list of bugs."""

_JSON_CAP = 4 * 1024**2
_TEXT_CAP = 1024**2
_REQUIRED = frozenset({"case.toml", "setting.toml", "repro.py", "finding.json", "output-bad.txt", "issue.md"})
_OPTIONAL = frozenset({"output-good.txt"})
_FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,119}")


@dataclass(frozen=True)
class FindingFolder:
    """A finding read back.  `output_good` is None where no build is known on which the script exits 0."""

    path: Path
    finding: Finding
    script: str
    output_bad: str
    output_good: str | None
    issue_md: str

    def with_finding(self, finding: Finding) -> "FindingFolder":
        """Return the folder as it reads with more known of its finding."""
        return replace(self, finding=finding)


def write_finding(
    run_dir: Path, finding: Finding, script: str, output_bad: str, output_good: str | None, issue_md: str
) -> Path:
    """Write findings/<key>/ whole or not at all, in place of an older one of that key; return its path.

    SpecError if the key is no file name or the folder cannot be written.
    """
    if not _FOLDER_NAME.fullmatch(finding.key):
        raise SpecError(f"finding {finding.key[:120]!r}: the key cannot name a folder; use d3bot.findings.failure_key")
    target = run_dir / FINDINGS / finding.key
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A name that begins with a dot: `list_findings` passes over what a kill may leave behind.
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=".draft-"))
    except OSError as error:
        raise SpecError(f"{target}: cannot be written ({error.strerror}); choose another --out") from error
    try:
        origin = f"Finding {finding.key} of {finding.build.label}: {finding.verdict.reason[:500]}"
        seed = Seed(finding.key, finding.case, origin, (finding.setting,))
        write_atomic(draft / "case.toml", dump_seed(seed))
        write_atomic(draft / "setting.toml", tomli_w.dumps({"setting": str(finding.setting)}))
        write_atomic(draft / "repro.py", script)
        write_atomic(draft / "finding.json", dump_json(finding.model_dump(mode="json", by_alias=True), indent=1) + "\n")
        write_atomic(draft / "output-bad.txt", _clip(output_bad))
        if output_good is not None:
            write_atomic(draft / "output-good.txt", _clip(output_good))
        write_atomic(draft / "issue.md", issue_md)
        draft.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def list_findings(run_dir: Path) -> list[Path]:
    """Return the finding folders of a run by name; SpecError for a link or for more than anybody would file."""
    root = run_dir / FINDINGS
    if not os.path.lexists(root):
        return []
    if root.is_symlink() or not root.is_dir():
        raise SpecError(f"{root}: is not a plain folder; remove it")
    found = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    if len(found) > MAX_FINDINGS:
        raise SpecError(f"{root}: holds {len(found)} findings, more than {MAX_FINDINGS}; look at the build first")
    return found


def read_finding(path: Path) -> FindingFolder:
    """Read a finding folder; SpecError unless it holds exactly the documented plain files, and they agree."""
    if path.is_symlink() or not path.is_dir():
        raise SpecError(f"{path}: is not a plain folder; give the path of a finding")
    names = {item.name for item in path.iterdir()}
    if missing := sorted(_REQUIRED - names):
        raise SpecError(f"{path}: {missing[0]} is missing; run again")
    if unknown := sorted(names - _REQUIRED - _OPTIONAL):
        raise SpecError(f"{path}: {unknown[0]!r} does not belong into a finding; remove it")
    for name in names:
        if (path / name).is_symlink() or not (path / name).is_file():
            raise SpecError(f"{path / name}: is not a regular file; remove it")
    try:
        finding = Finding.model_validate(read_object(path / "finding.json", _JSON_CAP))
    except ValidationError as error:
        raise SpecError(f"{path / 'finding.json'}: {one_line(error)}; run again") from error
    if finding.key != path.name:
        raise SpecError(f"{path}: the folder's name is not the finding's key {finding.key[:120]!r}; rename it")
    if load_seed(path / "case.toml").case != finding.case:
        raise SpecError(f"{path}: case.toml and finding.json hold different cases; run again")
    if _setting(path / "setting.toml") != finding.setting:
        raise SpecError(f"{path}: setting.toml and finding.json hold different settings; run again")
    good = path / "output-good.txt"
    return FindingFolder(
        path=path,
        finding=finding,
        script=read_text(path / "repro.py", _TEXT_CAP),
        output_bad=read_text(path / "output-bad.txt", _TEXT_CAP),
        output_good=read_text(good, _TEXT_CAP) if good.name in names else None,
        issue_md=read_text(path / "issue.md", _TEXT_CAP),
    )


def _setting(path: Path) -> Setting:
    text = read_toml(path).get("setting")
    if not isinstance(text, str):
        raise SpecError(f'{path}: holds no setting; write setting = "ddp(world=2)"')
    try:
        return Setting.parse(text)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def _clip(output: str) -> str:
    """Return the beginning and the end of an output too long to keep, so that what was written can be read back."""
    keep = _TEXT_CAP // 16  # a character takes up to four bytes, or six where it must be written as an escape
    if len(output) <= 2 * keep:
        return output
    return f"{output[:keep]}\n... {len(output) - 2 * keep:,} characters cut ...\n{output[-keep:]}"
