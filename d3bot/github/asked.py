"""What a comment asks of d3bot.  Pure."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"/d3bot(?:[ \t]+(.*?))?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


@dataclass(frozen=True)
class Command:
    """A command and what stands behind it."""

    name: str
    argument: str = ""


def parse(text: str) -> list[Command]:
    """Return the commands of a comment: whole lines outside of quotes, code and hidden text."""
    commands, fence, hidden = [], "", False
    for row in text.replace("\r\n", "\n").split("\n"):
        match = _FENCE.fullmatch(row)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            continue
        if hidden or "<!--" in row:
            hidden = "-->" not in row.rpartition("<!--")[2]
            continue
        if match:
            fence = match[1]
            continue
        found = _LINE.fullmatch(row)
        if found:
            name, _, argument = (found[1] or "").strip().partition(" ")
            commands.append(Command(name.rstrip(":").lower(), argument.strip()[:300]))
    return commands


def is_request(text: str) -> bool:
    """Return whether a comment asks d3bot for something and says nothing else."""
    rows = [row for row in text.replace("\r\n", "\n").split("\n") if row.strip()]
    return bool(rows) and len(parse(text)) == len(rows)
