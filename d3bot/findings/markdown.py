"""Text that came from a test, made harmless for Markdown, titles and terminals.  Pure.

Such text may hold anything: a fence, an @mention of a stranger, `fixes #1`, terminal codes, HTML.  Everything that
d3bot writes around text goes through one of the functions here.
"""

import re

_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # window title, links
    r"|\x1b[ -/]*[0-Z\\^_`-~]"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # invisible, or turning the direction of reading
    r"\ud800-\udfff]"  # half of a character: cannot be encoded
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPACE = "&#8203;"
"""A space without width: breaks a reference apart and shows nothing."""

_ESCAPES = {
    **{mark: f"\\{mark}" for mark in "\\`*_{}[]!~"},
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "$": "&#36;",
    "@": f"@{_SPACE}",
    "#": f"#{_SPACE}",
}
# An underscore within a word is no markup, and names read better without the backslash.
_SPECIAL = re.compile(r"[\\`*{}\[\]!~&<>|$@#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_REFERENCE = re.compile(r"\bGH-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)
# Not of an issue, a pull request or a commit: GitHub would tell everybody there that it was mentioned.
_DOCUMENT = re.compile(r"(?!.*/(?:issues|pull|discussions|commit)/)https://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._/#?=&%-]*)?")


def strip_control(text: str) -> str:
    """Return the text without terminal codes, control and invisible characters; line ends become plain ones."""
    text = _TERMINAL.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def clip(text: str, limit: int) -> str:
    """Return the beginning and the end of a text longer than `limit` characters, and how much is missing."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    return f"{head}\n... {len(text) - len(head) - len(tail):,} characters cut ...\n{tail}"


def line(text: str, limit: int = 500) -> str:
    """Return the text on one line of at most `limit` characters, harmless in a terminal and in a log of Actions."""
    # `##[` anywhere in a line, and `::` at its beginning, are commands to the runner that prints it.
    text = " ".join(strip_control(text).split()).replace("##[", "# #[").lstrip(": ")
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plain(text: str, limit: int = 500) -> str:
    """Return one line of Markdown that shows the text and does nothing else: no mention, reference, link or markup.

    `limit` counts the characters shown.  The result is meant for the middle of a line or a cell of a table.
    """
    text = line(text, limit)
    text = _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)
    return _REFERENCE.sub(lambda match: f"{match[0]}{_SPACE}", text)


def link(text: str, limit: int = 300) -> str:
    """Return a documentation address of d3bot's own as a link; any other text as `plain` does."""
    return f"<{text}>" if len(text) <= limit and _DOCUMENT.fullmatch(text) else plain(text, limit)


def code(text: str, limit: int = 200) -> str:
    """Return the text as code within a line, delimited by more backticks than it holds in a row."""
    text = line(text, limit)
    if not text:
        return "(none)"
    marks = "`" * (_longest_run(text) + 1)
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{edge}{text}{edge}{marks}"


def fence(text: str, language: str = "", limit: int = 1_000_000) -> str:
    """Return the text as a block of code whose fence is longer than any run of backticks inside."""
    text = clip(strip_control(text).strip("\n"), limit)
    marks = "`" * max(3, _longest_run(text) + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def open_fence(text: str) -> str:
    """Return the line that ends a code block which a text, cut somewhere, leaves open; empty if none is."""
    opened = ""
    for row in text.splitlines():
        match = _FENCE.match(row)
        if match and not opened:
            opened = match[1]
        elif match and match[1].startswith(opened) and not match[2].strip():
            opened = ""
    return opened


def title_text(text: str, limit: int) -> str:
    """Return a title: one line of at most `limit` characters in which no @name and no #123 is a reference."""
    text = line(text, 4 * limit)
    text = re.sub(r"@(?=\w)|#(?=\w)|\bGH-(?=\d)", lambda match: f"{match[0]}\u200b", text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, the strictest way in which a limit in characters may be counted."""
    return len(text) + sum(mark > "\uffff" for mark in text)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
