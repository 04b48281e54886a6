"""From builds to the project's repository: which commit, in what order, and the link that compares two of them."""

import os
import re
from collections.abc import Callable, Mapping

import requests

from d3bot.spec import Build

REPOSITORIES: dict[str, str] = {
    "torch": "pytorch/pytorch",
    "tensorflow": "tensorflow/tensorflow",
    "tensorflow-cpu": "tensorflow/tensorflow",
    "tf-nightly": "tensorflow/tensorflow",
    "tf-nightly-cpu": "tensorflow/tensorflow",
    "keras": "keras-team/keras",
    "keras-nightly": "keras-team/keras",
}
"""Distributions whose commits can be looked up, and where."""

Resolves = Callable[[str, str], bool | None]
"""Whether a commit or tag exists in a repository; None if that cannot be found out."""

_DESCRIBED = re.compile(r"-(\d+)-g([0-9a-f]{7,40})$")
_SHA = re.compile(r"^[0-9a-f]{7,40}$")
_SECONDS = 10


def commit_hash(described: str) -> str:
    """Return the hash in what a library says of its source: a hash, or `git describe`'s tag-count-ghash; else empty."""
    match = _DESCRIBED.search(described)
    return match[2] if match else described if _SHA.match(described) else ""


def commit_count(described: str) -> int | None:
    """Return how many commits after its tag a described source is, which orders two nights of one tag."""
    match = _DESCRIBED.search(described)
    return int(match[1]) if match else None


def place_of_commit(described: str) -> tuple[str, int] | None:
    """Return the tag of a described source and how many commits after it it is; None where that is not told."""
    count = commit_count(described)
    return None if count is None else (_DESCRIBED.sub("", described), count)


def older_code(before: str, after: str) -> bool:
    """Return whether the later of two builds is known to be of older code: the same tag, fewer commits after it."""
    first, second = place_of_commit(before), place_of_commit(after)
    return first is not None and second is not None and first[0] == second[0] and second[1] < first[1]


def reference(name: str, version: str, commit: str) -> str:
    """Return the commit hash of a build, else the tag of a release, else empty (a nightly that names no commit)."""
    found = commit_hash(commit)
    if found or name not in REPOSITORIES or "dev" in version:
        return found
    return "v" + version.partition("+")[0]


def compare_link(name: str, older: str, newer: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the address that shows what changed between two references; empty where one is not known."""
    if not older or not newer or name not in REPOSITORIES:
        return ""
    server = environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
    return f"{server}/{REPOSITORIES[name]}/compare/{older}...{newer}"


def ask_github(repository: str, reference: str) -> bool | None:
    """Return whether GitHub knows a commit or tag; None if it does not answer.  Needs no token."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
    try:
        answer = requests.get(
            f"{api}/repos/{repository}/commits/{reference}",
            headers={"Accept": "application/vnd.github.sha"},
            timeout=_SECONDS,
        )
    except requests.RequestException:
        return None
    return {200: True, 404: False, 422: False}.get(answer.status_code)


def night_notes(before: Build | None, after: Build) -> tuple[str, ...]:
    """Return what is odd about a build after the one before it: older code than it had."""
    if before is None or before.name != after.name or not older_code(before.commit, after.commit):
        return ()
    return (
        f"older-code: {after.version} is of {after.commit}, older than {before.version} of {before.commit}: "
        "what it mends or breaks may be neither new nor gone",
    )
