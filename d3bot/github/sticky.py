"""One comment on a pull request, edited in place: a mail for every push is how bots get muted."""

import re
from dataclasses import dataclass

from d3bot.findings.markdown import open_fence, strip_control
from d3bot.github.client import Client, RefusedError

MAX_COMMENT = 60_000
"""Bytes of a comment or a check run's summary; GitHub refuses more than 65,535 characters, and posts nothing then."""

_MARK = re.compile(r"<!-- d3bot:sticky v1 run=(\d{1,20}) attempt=(\d{1,6}) sha=([0-9a-f]{7,40}) -->")
_CUT = "\n\n*Cut here: GitHub refuses longer texts. The step summary and the run's artifact hold everything.*"


@dataclass(frozen=True)
class Posted:
    """What became of a comment: created, edited, unchanged, superseded or refused, with the reason."""

    what: str
    reason: str = ""


def post_sticky(client: Client, pull: int, text: str, login: str) -> Posted:
    """Post the result of a check to a pull request, or edit the comment that is there.

    An older run that ends late does not overwrite a newer one's result; a comment that would not change is left alone.
    A refusal is returned, not raised: a result must not be hidden behind a comment that could not be written.
    """
    place = client.place
    mark = f"<!-- d3bot:sticky v1 run={place.run_id} attempt={place.attempt} sha={place.sha} -->"
    body = f"{mark}\n{fitting(text)}"
    try:
        found = _find(client, pull, login)
        if found is None:
            client.create("commenting", lambda: _post(client, pull, body), lambda: _number(client, pull, login))
            return Posted("created")
        number, old = found
        match = _MARK.search(old)
        if match and (int(match[1]), int(match[2])) > (place.run_id, place.attempt):
            return Posted("superseded", f"run {match[1]} is newer than {place.run_id} and has reported already")
        if match and _text(old) == _text(body) and match[3] == place.sha:
            return Posted("unchanged")
        url = f"{client.repo.url}/issues/comments/{number}"
        client.write(
            "editing the comment",
            lambda: client.repo.requester.requestJsonAndCheck("PATCH", url, input={"body": body}),
        )
        return Posted("edited")
    except RefusedError as error:
        return Posted("refused", str(error))


def fitting(text: str) -> str:
    """Return a text of at most 60,000 bytes; what is cut is said, and no fence stays open."""
    text = strip_control(text).strip()
    if len(text.encode()) <= MAX_COMMENT:
        return text
    head = text.encode()[: MAX_COMMENT - 500].decode(errors="ignore")
    # Cut between lines, so that no table row and no link ends half way.
    head = head.rsplit("\n", 1)[0] if "\n" in head else head
    fence = open_fence(head)
    return head + (f"\n{fence}" if fence else "") + _CUT


def _text(body: str) -> str:
    return _MARK.sub("", body).replace("\r\n", "\n").strip()


def _find(client: Client, pull: int, login: str) -> tuple[int, str] | None:
    """Return our comment; a stranger's that copies our marker is not ours."""
    for page in client.pages(f"/issues/{pull}/comments", {}):
        for row in page:
            if (row.get("user") or {}).get("login") == login and _MARK.search(row.get("body") or ""):
                return int(row["id"]), str(row["body"])
    return None


def _number(client: Client, pull: int, login: str) -> bool | None:
    return True if _find(client, pull, login) else None


def _post(client: Client, pull: int, body: str) -> bool:
    client.repo.requester.requestJsonAndCheck("POST", f"{client.repo.url}/issues/{pull}/comments", input={"body": body})
    return True
