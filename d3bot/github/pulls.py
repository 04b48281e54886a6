"""Which pull request a workflow run belongs to, and whether a maintainer let its code run.  Never from an artifact."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from d3bot.github.client import Client, RefusedError
from d3bot.history.files import read_text
from d3bot.spec import SpecError

_EVENT_CAP = 8 * 1024**2
_WRITERS = frozenset({"admin", "maintain", "write", "push"})


@dataclass(frozen=True)
class Pull:
    """A pull request and the commit at its head."""

    number: int
    sha: str


def load_event(path: Path | None) -> dict[str, Any]:
    """Return the event's payload that Actions left; SpecError if there is none."""
    if path is None:
        raise SpecError("GITHUB_EVENT_PATH: not given; pass the event's file")
    try:
        data = json.loads(read_text(path, _EVENT_CAP))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is no JSON ({' '.join(str(error).split())[:200]}); pass the event's file") from error
    if not isinstance(data, dict):
        raise SpecError(f"{path}: holds no event; pass the event's file")
    return data


def pull_of(client: Client, event: Mapping[str, Any], claimed: int = 0) -> Pull:
    """Return the pull request whose head commit and head repository a `workflow_run` event names.

    The event's own list is empty for forks, so the open pull requests of the head's branch are asked for.  `claimed` is
    a number that an artifact states: it counts for nothing but to be found out.  SpecError if none fits.
    """
    run = event.get("workflow_run") or {}
    sha, branch = run.get("head_sha"), run.get("head_branch")
    owner = ((run.get("head_repository") or {}).get("owner") or {}).get("login")
    name = (run.get("head_repository") or {}).get("full_name")
    if run.get("event") not in ("pull_request", "pull_request_target") or not (sha and branch and owner):
        raise SpecError("the event is no workflow_run of a pull request; there is nothing to report to")
    found = []
    for page in client.pages("/pulls", {"state": "open", "head": f"{owner}:{branch}"}):
        found += [
            Pull(int(row["number"]), sha)
            for row in page
            if row["head"]["sha"] == sha and ((row["head"].get("repo") or {}).get("full_name") == name)
        ]
    if len(found) != 1:
        raise SpecError(
            f"no single open pull request has {sha[:12]} of {owner}:{branch} at its head; it was pushed to since"
        )
    if claimed and claimed != found[0].number:
        raise SpecError(
            f"the artifact says that it is of pull request #{claimed}, but the run is of #{found[0].number}; refused"
        )
    return found[0]


def may_write(client: Client, login: str) -> bool:
    """Return whether somebody may write to the repository: asked of GitHub, not read from the event."""
    try:
        answer = client.get(f"/collaborators/{quote(login)}/permission")
    except RefusedError as error:
        if error.status == 404:
            return False
        raise
    return answer.get("permission") in _WRITERS or answer.get("role_name") in _WRITERS


def approved(client: Client, event: Mapping[str, Any], label: str) -> tuple[bool, str]:
    """Return whether the head commit of a labelled pull request may run on our runners, and why.

    True only if somebody who may write put the label on and the head is still the commit that they saw.
    """
    pull = event.get("pull_request") or {}
    sender = str((event.get("sender") or {}).get("login", ""))
    number, sha = pull.get("number"), (pull.get("head") or {}).get("sha")
    if not isinstance(number, int) or not isinstance(sha, str):
        return False, "the event is of no pull request"
    if event.get("action") != "labeled" or (event.get("label") or {}).get("name") != label:
        return False, f"only putting on the label {label!r} lets this commit run; a push takes the permission away"
    if not may_write(client, sender):
        return False, f"{sender} may not write to this repository"
    now = client.get(f"/pulls/{number}")
    if (now.get("head") or {}).get("sha") != sha:
        return False, "the pull request was pushed to after it was labelled; look at it again"
    if label not in {each.get("name") for each in now.get("labels", [])}:
        return False, f"the label {label!r} was taken off again"
    return True, f"{sender} approved {sha[:12]}"
