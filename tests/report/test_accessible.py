"""The pages for everybody: contrast in both modes, tables that say what a cell is of, the keyboard, no motion."""

import re
from pathlib import Path

import pytest

from d3bot.history.changes import compare
from d3bot.history.finding_folder import FindingFolder
from d3bot.report import render_html
from d3bot.report.history import render_history
from d3bot.report.html import Met, Tried
from d3bot.spec import KINDS, TensorRow
from d3bot.templates import data_folder
from tests.findings.samples import KEY, finding, run, verdict
from tests.history.test_timeline import FAILS, PASSES, history
from tests.report.test_html import Page

CSS = (data_folder("templates") / "report" / "page.css").read_text()
ROWS = (
    TensorRow(name="step 0 loss 0", error=0.0, bound=1e-8, wrong=""),
    TensorRow(name="step 0 grad fc.weight", error=0.3, bound=1e-8, wrong="permuted"),
)


def report() -> str:
    """Return a report with every section that the page can have."""
    before = [verdict(kind, f"c{i}") for i, kind in enumerate(KINDS)]
    after = [verdict(kind, f"c{i}", key=KEY, error=0.2, bound=1e-9) for i, kind in enumerate(reversed(KINDS))]
    folder = FindingFolder(Path(), finding(tensors=ROWS, agreeing=("ddp(world=2)",)), "print(1)", "bad", "good", "")
    tried = Tried("torch", ("ddp:world=2",), (("lstm", (Met(5, 1),)), ("gru", (Met(0, 0, True),))))
    return render_html(run(previous="r0"), after, compare(before, after), [folder], [tried])


PAGES = pytest.mark.parametrize(
    "text", [report(), render_history(history(PASSES, FAILS))], ids=["report.html", "history.html"]
)


def colours(mode: str) -> dict[str, tuple[float, ...]]:
    """Return the page's colours by name, each as red, green and blue from 0 to 1."""
    light, dark = CSS.split("@media screen and (prefers-color-scheme: dark)", 1)
    text = light + dark.split("\n* {")[0] if mode == "dark" else light
    found = re.findall(r"--([\w-]+): #([0-9a-f]+)", text)
    long = {name: value if len(value) == 6 else "".join(2 * digit for digit in value) for name, value in found}
    return {name: tuple(int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, value in long.items()}


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the contrast ratio of two colours as WCAG 2.2 defines it, from 1 to 21."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


TEXT = ["ink paper", "ink soft", "faint paper", "link paper", "good paper", "bad paper"]
TEXT += ["good good-fill", "bad bad-fill", "odd odd-fill"]
SHAPES = ["link paper", "faint paper", "faint soft", "good paper", "bad paper", "odd paper"]
"""Focus rings, the edges of fields, axes, and the marks of charts."""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast(mode: str) -> None:
    named = colours(mode)
    for least, pairs in ((4.5, TEXT), (3.0, SHAPES)):
        for pair in pairs:
            ratio = contrast(*(named[name] for name in pair.split()))
            assert ratio >= least, f"{pair}: {ratio:.2f}"
    for share in map(int, re.findall(r"\.c-\d \{ background: color-mix\(in srgb, var\(--good\) (\d+)%", CSS)):
        mixed = tuple(
            share / 100 * a + (1 - share / 100) * b for a, b in zip(named["good"], named["paper"], strict=True)
        )
        assert contrast(named["ink"], mixed) >= 4.5, f"{share}%"


@PAGES
def test_every_table_has_a_head_and_every_head_says_what_it_is_of(text: str) -> None:
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert "<thead>" in table
        for attributes, inside in re.findall(r"<th\b([^>]*)>(.*?)</th>", table, re.DOTALL):
            assert re.search(r'scope="(col|row)"', attributes), inside
            assert re.sub(r"<[^>]*>", "", inside).strip(), "a head without a word"


@PAGES
def test_a_sign_is_told_by_its_name_unless_the_word_stands_beside_it(text: str) -> None:
    for tag, attributes in Page(text).tags:
        if "mark" in (attributes.get("class") or "").split() and tag == "span":
            assert attributes.get("aria-label") in KINDS or attributes.get("aria-hidden") == "true", attributes
    for label in re.findall(r'<td class="k-[\w-]+"[^>]*><a [^>]*aria-label="([^"]*)"', text):
        assert label in KINDS


@PAGES
def test_the_keyboard_reaches_what_scrolls_and_every_field_has_a_label(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.tags:
        if tag == "pre" or attributes.get("class") == "wide":
            assert attributes.get("tabindex") == "0", attributes
        if attributes.get("role") == "region":
            assert attributes.get("aria-label")
        if "tabindex" in attributes:
            assert attributes["tabindex"] == "0", "the order of the page is the order of the keyboard"
    fields = re.findall(r"<(?:select|input)\b", text)
    assert len(fields) == len(re.findall(r"<label>[^<]+<(?:select|input)\b", text)) > 0
    assert 'class="skip"' in text
    assert ":focus-visible { outline: 3px" in CSS
    assert "outline: none" not in CSS


def test_nothing_moves_and_paper_is_white() -> None:
    script = (data_folder("templates") / "report" / "page.js").read_text()
    assert not re.search(r"animation|transition|@keyframes|smooth", CSS + script)
    assert "prefers-color-scheme: dark" not in CSS.replace("@media screen and (prefers-color-scheme: dark)", "")
    assert "@media print { :root { color-scheme: light; }" in CSS
