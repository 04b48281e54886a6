"""Escaping, judged by an independent reader of Markdown: what it finds must be text, and nothing but text."""

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from d3bot.findings.markdown import (
    clip,
    code,
    fence,
    line,
    link,
    open_fence,
    plain,
    strip_control,
    title_text,
    utf16_length,
)

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
REFERENCE = re.compile(r"@\w|#\w|\bGH-\d|://|\bwww\.", re.IGNORECASE)

# Random text alone would hardly ever close a fence or mention somebody.
PIECES = [
    *("```", "````", "~~~", "`", "@octocat", "@org/team", "#123", "fixes #1", "GH-7", "closes org/repo#9", "\n", " "),
    *("<!--", "-->", "<img src=x>", "</details>", "<script>", "![i](http://x/y.png)", "[a](javascript:1)", "|"),
    *("https://github.com/o/r/issues/1", "www.example.org", "*b*", "__b__", "a_b", "\\", "&lt;", "$x$", "~~s~~"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1b[", "\r", "\x00", "\u202e", "\u200b", "\ud800", "::error::x", "##[error]"),
]
HOSTILE = st.lists(
    st.sampled_from(PIECES) | st.text(max_size=5),
    max_size=12,
).map("".join)


def tokens(text):
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or ()


def shown(text):
    return "".join(token.content for token in tokens(text) if token.type in ("text", "text_special", "code_inline"))


@given(HOSTILE)
@example("@octocat fixes #1 https://github.com/o/r/issues/1 GH-2")
def test_plain_text_is_shown_and_does_nothing(text):
    body = f"Before {plain(text)} after"
    kinds = {token.type for token in tokens(body)}
    assert kinds <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert not REFERENCE.search(shown(body))
    assert shown(body).replace("\u200b", "") == " ".join(f"Before {line(text)} after".split(" "))


@given(HOSTILE)
def test_plain_text_stays_in_its_cell(text):
    table = f"| a | b |\n|---|---|\n| {plain(text)} | end |\n"
    cells = [token for token in MARKDOWN.parse(table) if token.type == "td_open"]
    assert len(cells) == 2
    assert not any(token.type.startswith("html") for token in tokens(table))


@given(HOSTILE)
def test_code_in_a_line_holds_the_whole_text(text):
    found = [token for token in tokens(f"Before {code(text)} after") if token.type == "code_inline"]
    if line(text):
        assert [token.content for token in found] == [line(text, 200)]
    else:
        assert found == []


@given(HOSTILE)
def test_a_fence_holds_the_whole_text_and_ends_with_it(text):
    body = f"before\n\n{fence(text, 'text')}\n\nafter"
    kinds = [token.type for token in MARKDOWN.parse(body)]
    assert kinds == ["paragraph_open", "inline", "paragraph_close", "fence", *kinds[:3]]
    (block,) = [token for token in MARKDOWN.parse(body) if token.type == "fence"]
    assert block.content.strip("\n") == strip_control(text).strip("\n")


@given(HOSTILE, st.integers(10, 80))
def test_a_title_is_one_line_without_references(text, limit):
    title = title_text(text, limit)
    assert len(title) <= limit
    assert len(title.splitlines()) <= 1
    assert not re.search(r"@\w|#\w|\bGH-\d", title)


@given(HOSTILE)
def test_no_control_character_survives(text):
    clean = strip_control(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", clean)
    assert strip_control(clean) == clean
    clean.encode()


@given(HOSTILE)
@example(": ::error::x")  # the runner looks behind leading spaces
def test_a_line_is_no_command_to_whoever_prints_it(text):
    printed = line(text)
    assert len(printed.splitlines()) <= 1
    assert not printed.lstrip().startswith("::")
    assert "##[" not in printed


def test_terminal_codes_go_and_the_words_stay():
    assert strip_control("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]0;never ended") == (
        "red link ]0;never ended"
    )


def test_words_with_underscores_read_as_written():
    assert plain("shard_placement_fn") == "shard_placement_fn"


@pytest.mark.parametrize("text", ["https://docs.pytorch.org/docs/stable/fsdp.html#a", "https://keras.io"])
def test_an_address_of_documentation_is_a_link(text):
    assert link(text) == f"<{text}>"


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/o/r/pull/1",
        "http://x",
        "https://x/ y",
        "https://u@x",
        "https://x/<b>",
        "torch 2.13 documentation",
    ],
)
def test_anything_else_is_plain(text):
    assert link(text) == plain(text, 300)


@given(st.text(max_size=300), st.integers(2, 100))
def test_clipping_keeps_both_ends_and_says_how_much_is_missing(text, limit):
    kept = clip(text, limit)
    if len(text) <= limit:
        assert kept == text
    else:
        half = limit // 2
        assert kept.startswith(text[:half])
        assert kept.endswith(text[-half:])
        assert f"{len(text) - 2 * half:,} characters cut" in kept


@given(st.text())
def test_length_is_counted_in_units_of_utf16(text):
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2


@given(HOSTILE)
def test_entities_of_the_text_itself_are_shown_as_written(text):
    assert html.unescape(re.sub(r"\\(\W|_)", r"\1", plain(text))).replace("\u200b", "") == line(text)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", ""),
        ("```diff\n+ a", "```"),
        ("```diff\n+ a\n```\nb", ""),
        ("````\n```\n", "````"),
        ("~~~\n```\n", "~~~"),
        ("```\n``` not an end", "```"),
    ],
)
def test_a_block_that_a_cut_leaves_open_is_named(text, ends):
    assert open_fence(text) == ends
