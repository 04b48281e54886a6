"""What stands around the text of an issue: a status that people read and a state that d3bot reads.  Pure.

    <!-- d3bot:v1 key=... -->        how the issue is found again
    the text, written once; people may edit it
    <!-- d3bot:status -->            written anew with every sighting
    ...
    <!-- d3bot:end -->
    <!-- d3bot:state {...} -->       the record, as JSON

Whatever is read back was perhaps edited by somebody: what does not parse is left out, never trusted.
"""

import json
import re
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from d3bot.findings.key import is_key
from d3bot.findings.lifecycle import Record
from d3bot.findings.markdown import code, open_fence, plain
from d3bot.templates import environment, render_page

LIMIT = 65_000
"""Bytes of a whole body; GitHub refuses more than 65,536 characters, and creates nothing."""

_STATE_LIMIT = 5_000
_STATUS_LIMIT = 3_500

# Any version: keys of older rules must still find their issue.
_MARKER = re.compile(r"<!-- d3bot:v\d{1,4} key=([a-z0-9_-]{1,120}) -->")
_STATE = re.compile(r"<!-- d3bot:state (\{.*\}) -->")
_STATUS, _END, _OURS = "<!-- d3bot:status -->", "<!-- d3bot:end -->", "<!-- d3bot:"
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "@": "\\u0040", "#": "\\u0023"}


def key_in(body: str) -> str:
    """Return the key in the marker of a body; empty if there is none."""
    match = _MARKER.search(body)
    return match[1] if match and is_key(match[1]) else ""


def record_in(body: str) -> Record | None:
    """Return the record in the state of a body; None if it is missing or no longer one."""
    found = _STATE.findall(body)
    try:
        return Record.model_validate(json.loads(found[-1])) if found else None
    except (ValidationError, ValueError, RecursionError):
        return None


def harmless(text: str) -> str:
    """Return the text of a new issue with no marker but the one in its first line: a test may print ours."""
    first, end, rest = text.partition("\n")
    return first + end + rest.replace(_OURS, "<!-- d3bot :")


def compose(text: str, record: Record, templates: Path | None = None) -> str:
    """Return the body of an issue: its text with status and state in place of older ones, within GitHub's limit."""
    # What a server sends may hold half a character, which nothing can encode again.
    text = _own(text.encode(errors="replace").decode()).rstrip()
    tail = f"\n\n{_status(record, templates)}\n{_state(record)}\n"
    room = LIMIT - len(tail.encode())
    if len(text.encode()) > room:
        # d3bot's own texts are smaller; this one grew by hand.  Fences may end open here, so the tail starts afresh.
        cut = text.encode()[: room - 200].decode(errors="ignore")
        text = f"{cut}\n\n{open_fence(cut)}\n\n*The text was too long for one issue and is cut here.*"
    return text + tail


def _own(body: str) -> str:
    """Return a body without status and state; what a person wrote below them stays."""
    states = list(_STATE.finditer(body))
    if states:
        body = body[: states[-1].start()] + body[states[-1].end() :]
    start = body.rfind(_STATUS)
    end = body.find(_END, start) if start >= 0 else -1
    return body[:start] + body[end + len(_END) :] if end >= 0 else body


def _status(record: Record, templates: Path | None) -> str:
    page = environment("issue", own=templates)
    page.filters.update(plain=plain, code=code, day=_day)
    for lines in (12, 4, 0):
        text = render_page(
            page, "status.md.j2", {"record": record, "history": record.history[-lines:] if lines else ()}
        )
        if len(text.encode()) <= _STATUS_LIMIT:
            break
    return f"{_STATUS}\n{text.strip()}\n{_END}"


def _state(record: Record) -> str:
    """Return the record as a hidden line; the oldest runs and history go first where it would be too long."""
    keep = 40
    while True:
        small = record.model_copy(update={"seen_runs": record.seen_runs[-keep:], "history": record.history[-keep:]})
        data = small.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"schema": record.schema_}
        text = json.dumps(data, separators=(",", ":"))
        for mark, escape in _ESCAPES.items():
            text = text.replace(mark, escape)
        if len(text) <= _STATE_LIMIT or keep <= 5:
            return f"<!-- d3bot:state {text} -->"
        keep //= 2


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment else "never"
