import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from d3bot.history.changes import compare
from d3bot.history.finding_folder import FindingFolder
from d3bot.report import render_html
from d3bot.report.facts import SYMBOLS
from d3bot.report.html import MAX_CASES, MAX_FAILURES, grids
from d3bot.spec import KINDS
from tests.findings.samples import KEY, finding, run, verdict

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page, and fails where a tag is not closed by its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag):
        return [text for inside, text in self.texts if inside == tag]


def folder(**facts):
    return FindingFolder(Path(), finding(**facts), "print(1)\n", "it is bad", "it is good", "")


def test_the_page_holds_headline_counts_and_the_finding_with_its_evidence():
    before = [verdict("pass", "c1"), verdict("hung", "c2"), verdict("no-data", "c3")]
    after = [verdict("diverged", "c1", key=KEY), verdict("pass", "c2"), verdict("hung", "c3", detail="the stack")]
    page = Page(render_html(run(previous="r0"), after, compare(before, after), [folder()]))
    assert page.of("h1") == ["✗ 1 trial failing, unknown since when; 1 new failure under 1 key"]
    assert page.of("h2") == [
        "Findings (1)",
        "Failing, unknown since when (1)",
        "Regressed (1)",
        "Fixed (1)",
        "Failing trials (2)",
        "Settings",
        "Cases \u00d7 settings: torch",
    ]
    assert page.of("pre") == ["print(1)\n", "it is bad", "it is good", "the stack"]
    assert "permuted: residual 0" in page.of("dd")
    assert "step 0 grad fc.weight, max |difference| 0.227, bound 0" in page.of("dd")


def test_every_verdict_has_colour_and_symbol():
    text = render_html(run(), [verdict(kind, f"c{i}") for i, kind in enumerate(KINDS)], [], [])
    for kind in KINDS:
        assert f'<td class="k-{kind}" title="{kind}' in text
        assert f">{SYMBOLS[kind]}</td>" in text
        assert re.search(rf"\.k-{kind}\b[^{{]*{{[^}}]*color:", text)


def test_nothing_is_loaded_from_elsewhere_and_no_script_may_run():
    page = Page(render_html(run(), [verdict("hung")], [], [folder()]))
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not [attrs for _, attrs in page.tags if {"src", "href", "onclick", "style"} & attrs.keys()]
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in render_html(run(), [verdict("hung")], [], [folder()])


HOSTILE = "</pre></details><script>alert(1)</script>\"'><img src=x onerror=y>{{ 7 * 7 }}\x1b[31m"


def test_text_from_a_test_is_shown_as_text_everywhere():
    after = [verdict("hung", HOSTILE, HOSTILE, reason=HOSTILE, detail=HOSTILE, diagnosis=HOSTILE, seed=HOSTILE)]
    after.append(verdict("no-data", "c2", HOSTILE, reason=HOSTILE))
    bad = folder(title=HOSTILE, verified=False, unverified_reason=HOSTILE, agreeing=(HOSTILE,))
    bad = FindingFolder(Path(), bad.finding, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    page = Page(render_html(run(HOSTILE, previous=HOSTILE), after, compare([verdict("pass")], after), [bad]))
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert [text for text in page.of("pre") if "alert(1)" in text and "{{ 7 * 7 }}" in text]
    assert "\x1b" not in "".join(text for _, text in page.texts)


def test_the_grid_puts_the_worst_cases_first_and_names_seeds():
    verdicts = [verdict("pass", "c1", "a"), verdict("pass", "c1", "b"), verdict("flaky", "c2", "b")]
    verdicts += [verdict("hung", "c3", "a", seed="tied"), verdict("refused", "c4", "a")]
    (grid,) = grids(verdicts)
    assert grid.settings == ["a", "b"]
    assert grid.rows == [
        ("tied", [("hung", "hung: it is hung"), None]),
        ("c2", [None, ("flaky", "flaky: it is flaky")]),
        ("c1", [("pass", "pass"), ("pass", "pass")]),
        ("c4", [("refused", "refused: it is refused"), None]),
    ]


def test_thousands_of_verdicts_make_a_page_that_opens():
    verdicts = [
        verdict("hung" if i % 3 == 0 else "pass", f"c{i}", f"s(world={j})", detail="stack\n" * 50)
        for i in range(900)
        for j in range(10)
    ]
    began = time.process_time()
    text = render_html(run(), verdicts, [], [])
    assert time.process_time() - began < 20
    assert len(text) < 10_000_000
    assert f"{900 - MAX_CASES} more cases are not shown" in text
    assert f"and {3000 - MAX_FAILURES} more in verdicts.jsonl" in text


@pytest.mark.parametrize(("kind", "mark"), [("pass", "✓ no failure"), ("hung", "✗ 1 failure")])
def test_the_title_says_good_or_bad_without_colour(kind, mark):
    assert Page(render_html(run(), [verdict(kind)], [], [])).of("h1")[0].startswith(mark)
