"""Artifacts of workflow runs: found, downloaded without handing the token on, and unpacked as hostile data."""

import io
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import requests

from d3bot.github.client import Client, RefusedError
from d3bot.history.run_files import MAX_BYTES, MAX_FILES, allowed
from d3bot.spec import SpecError
from d3bot.tracker.base import TrackerError

_MAX_ZIP = 256 * 1024**2
_LOOKS = 4
"""An artifact may be listed late, or be listed and not be there yet."""
_PAUSE_S = 5.0
_RUNS = 10
"""Runs that are looked through for one that still has its artifact."""
_OWN_EVENTS = frozenset({"schedule", "workflow_dispatch", "repository_dispatch", "push"})
"""What starts a run that only people who may write to the repository can start."""


@dataclass(frozen=True)
class Fetched:
    """A run folder from an artifact, or why there is none."""

    folder: Path | None
    reason: str


def fetch_of_run(client: Client, run_id: int, name: str, out: Path) -> Fetched:
    """Download an artifact of one workflow run into a new folder.

    An artifact that expired or never appears gives a reason, as "no baseline" is an answer.  SpecError if what is
    inside is not a run folder of d3bot.
    """
    for look in range(_LOOKS):
        if look:
            client.sleep(_PAUSE_S * 2 ** (look - 1))
        found = _listed(client, run_id, name)
        if found is None:
            reason = f"run {run_id} has no artifact {name}"
            continue
        if found.get("expired"):
            return Fetched(None, f"the artifact {name} of run {run_id} has expired")
        try:
            data = _download(client, int(found["id"]))
        except RefusedError as error:
            if error.status == 410:
                return Fetched(None, f"the artifact {name} of run {run_id} has expired")
            if error.status != 404:
                raise
            reason = f"the artifact {name} of run {run_id} is listed but not there"
            continue
        unpack(data, out)
        return Fetched(out, f"from run {run_id}")
    return Fetched(None, reason)


def fetch_latest(client: Client, workflow: str, branch: str, name: str, out: Path) -> Fetched:
    """Download the artifact of the newest successful run of a workflow that still has it."""
    reason = f"{workflow} has no successful run on {branch}"
    for run in runs_of(client, workflow, branch)[:_RUNS]:
        fetched = fetch_of_run(client, int(run["id"]), name, out)
        if fetched.folder is not None:
            return fetched
        reason = fetched.reason
    return Fetched(None, reason)


def runs_of(client: Client, workflow: str, branch: str, event: str = "") -> list[dict[str, Any]]:
    """Return the newest successful runs of a workflow on a branch of this repository, of one event if given.

    Never those of a pull request: a fork may bring a workflow file of this very name, on a branch of this very name,
    and what it leaves would be run as a finding of ours.
    """
    query = f"/actions/workflows/{workflow}/runs?branch={branch}&status=success&per_page=100"
    rows = client.get(query + (f"&event={event}" if event else "")).get("workflow_runs")
    own = [row for row in rows if _is_own(row, client.repo_name)] if isinstance(rows, list) else []
    return own[:_RUNS]


def _is_own(run: Mapping[str, Any], repo_name: str) -> bool:
    home = str((run.get("head_repository") or {}).get("full_name", ""))
    return run.get("event") in _OWN_EVENTS and home.lower() == repo_name.lower()


def heartbeat(client: Client, workflow: str, branch: str, now: datetime) -> str:
    """Return one line on when the schedule of a workflow last succeeded.

    A schedule that GitHub switched off says nothing itself, and a run that somebody started by hand would hide it.
    """
    runs = runs_of(client, workflow, branch, "schedule")
    if not runs:
        return f"{workflow} never succeeded on its schedule on {branch}"
    days = (now - datetime.fromisoformat(runs[0]["created_at"])).days
    return f"{workflow} last succeeded on its schedule {days} day{'s' if days != 1 else ''} ago"


def unpack(data: bytes, out: Path) -> None:
    """Unpack a zip of a run folder; SpecError, with nothing left, unless every entry is a file that belongs there."""
    _check_directory(data)
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise SpecError(f"{out}: cannot be made ({error.strerror}); choose another --out") from error
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check(entries)
            _write(archive, entries, out)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        shutil.rmtree(out, ignore_errors=True)
        raise SpecError(f"artifact: cannot be unpacked ({' '.join(str(error).split())[:200]}); refused") from error
    except SpecError:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _check_directory(data: bytes) -> None:
    """SpecError if the list of entries is too long to be read at all: a million names take a gigabyte of memory."""
    start = data.rfind(b"PK\x05\x06")
    if start < 0 or len(data) - start < 22:
        raise SpecError("artifact: is no zip file; refused")
    count, size = struct.unpack_from("<HI", data, start + 10)
    if count > MAX_FILES or size > 400 * MAX_FILES:
        raise SpecError(f"artifact: holds more than {MAX_FILES:,} entries; refused")


def _check(entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MAX_FILES:
        raise SpecError(f"artifact: holds {len(entries):,} entries, more than {MAX_FILES:,}; refused")
    names = set()
    for entry in entries:
        name, kind = entry.filename, entry.external_attr >> 16
        shown = name[:120]
        if name.endswith("/") and not entry.file_size:
            continue
        if kind and not stat.S_ISREG(kind) and stat.S_IFMT(kind):
            raise SpecError(f"artifact: {shown!r} is a link or a device; refused")
        if "\\" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise SpecError(f"artifact: {shown!r} leaves the folder; refused")
        if not allowed(name):
            raise SpecError(f"artifact: {shown!r} does not belong into a run folder; refused")
        if name in names:
            raise SpecError(f"artifact: {shown!r} is there twice; refused")
        names.add(name)
    if sum(entry.file_size for entry in entries) > MAX_BYTES:
        raise SpecError(f"artifact: unpacks to more than {MAX_BYTES:,} bytes; refused")


def _write(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], out: Path) -> None:
    left = MAX_BYTES
    for entry in entries:
        if entry.filename.endswith("/"):
            continue
        target = out / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, target.open("xb") as file:
            while block := source.read(1024**2):
                left -= len(block)  # the sizes that the archive states are claims
                if left < 0:
                    raise SpecError(f"artifact: unpacks to more than {MAX_BYTES:,} bytes; refused")
                file.write(block)


def _listed(client: Client, run_id: int, name: str) -> Mapping[str, Any] | None:
    rows = client.get(f"/actions/runs/{run_id}/artifacts?name={name}&per_page=100").get("artifacts")
    found = [row for row in rows if row.get("name") == name] if isinstance(rows, list) else []
    return max(found, key=lambda row: int(row["id"]), default=None)


def _download(client: Client, number: int) -> bytes:
    """Return the bytes of an artifact: the first host gets the token, the one that it points to does not."""
    url = f"{client.place.api_url}/repos/{client.repo_name}/actions/artifacts/{number}/zip"

    def ask() -> bytes:
        head = {"Authorization": f"token {client.place.token}", "Accept": "application/vnd.github+json"}
        first = requests.get(url, headers=head, allow_redirects=False, timeout=client.timeout_s)
        if first.status_code != 302:
            raise client.repo.requester.createException(
                first.status_code, dict(first.headers), {"message": first.reason}
            )
        with requests.get(first.headers["Location"], timeout=client.timeout_s, stream=True) as answer:
            answer.raise_for_status()
            data = answer.raw.read(_MAX_ZIP + 1, decode_content=True)
        if len(data) > _MAX_ZIP:
            raise TrackerError(f"artifact: larger than {_MAX_ZIP:,} bytes; refused")
        return bytes(data)

    return client.read(f"downloading artifact {number}", ask)
