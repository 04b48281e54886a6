"""What a step of GitHub Actions says to its runner: outputs, summary, annotations, and text that commands nothing."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from d3bot.findings.markdown import line, strip_control
from d3bot.spec import SpecError

MAX_SUMMARY = 900 * 1024
"""Bytes; GitHub drops the whole summary of a step above 1 MiB."""

MAX_NOTES = 10
"""Annotations of one level that a step may write; the runner drops what is beyond."""


def write_outputs(path: Path | None, values: Mapping[str, str]) -> None:
    """Append outputs of the step; nothing outside Actions.  No value can end early or begin another output."""
    if path is None:
        return
    rows = []
    for name, value in values.items():
        mark = f"d3bot-{secrets.token_hex(12)}"
        rows.append(f"{name}<<{mark}\n{value}\n{mark}\n")
    _append(path, "".join(rows))


def write_summary(path: Path | None, text: str) -> None:
    """Append Markdown to the step summary; nothing outside Actions.  What would be too long is left out."""
    if path is None:
        return
    used = path.stat().st_size if path.exists() else 0
    data = text.encode(errors="backslashreplace")
    note = b"\n\n*The rest is left out: GitHub would drop the whole summary. The run's artifact holds everything.*\n"
    room = MAX_SUMMARY - used - 1
    if len(data) > room:
        data = data[: max(0, room - len(note))] + note if room > len(note) else b""
    _append(path, data.decode(errors="ignore") + ("\n" if data else ""))


@contextmanager
def quiet_commands(stream: TextIO, active: bool) -> Iterator[None]:
    """Let nothing that is printed inside be a command to the runner."""
    token = f"d3bot-{secrets.token_hex(16)}"
    if active:
        print(f"::stop-commands::{token}", file=stream, flush=True)
    try:
        yield
    finally:
        if active:
            print(f"::{token}::", file=stream, flush=True)


@contextmanager
def group(stream: TextIO, title: str, active: bool) -> Iterator[None]:
    """Fold what is printed inside under a title."""
    if active:
        print(f"::group::{line(title, 200)}", file=stream, flush=True)
    try:
        yield
    finally:
        if active:
            print("::endgroup::", file=stream, flush=True)


def notes(level: str, texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return workflow commands of one level for (title, message): at most ten, the last telling how many more."""
    shown = texts if len(texts) <= MAX_NOTES else texts[: MAX_NOTES - 1]
    rows = [f"::{level} title={_property(title)}::{_data(message)}" for title, message in shown]
    if len(shown) < len(texts):
        rows.append(f"::{level}::and {len(texts) - len(shown)} more; see the summary")
    return rows


def _data(text: str) -> str:
    text = strip_control(text)[:2000]
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(line(text, 200)).replace(":", "%3A").replace(",", "%2C")


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); it is named by the runner") from error
