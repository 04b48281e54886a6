import base64
import hashlib
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from d3bot.history.changes import compare
from d3bot.history.finding_folder import FindingFolder
from d3bot.report import render_html, summary_markdown
from d3bot.report.facts import SYMBOLS
from d3bot.report.html import MAX_CELLS, MAX_OF_KEY, Met, Tried, grids
from d3bot.spec import KINDS, TensorRow
from tests.findings.samples import KEY, finding, run, verdict

ROW = TensorRow(name="step 0 grad fc.weight", error=None, bound=0.0, wrong="shape")
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
    after = [
        verdict("diverged", "c1", key=KEY, error=0.2, bound=0.1),
        verdict("pass", "c2"),
        verdict("hung", "c3", detail="the stack"),
    ]
    page = Page(render_html(run(previous="r0"), after, compare(before, after), [folder()]))
    assert page.of("h1") == ["✗ 1 trial failing, unknown since when; 1 new failure under 1 key"]
    assert page.of("h2") == [
        "Findings (1)",
        "Failing, unknown since when (1)",
        "Regressed (1)",
        "Fixed (1)",
        "Failing trials (2)",
        "Cases \u00d7 settings: torch",
        "Settings",
        "How close to their bounds",
        "Time by family",
    ]
    assert page.of("pre") == ["print(1)\n", "it is bad", "it is good", "the stack"]
    assert "permuted: residual 0" in page.of("dd")
    assert "step 0 grad fc.weight, max |difference| 0.227, bound 0" in page.of("dd")


def test_every_verdict_has_colour_and_symbol():
    text = render_html(run(), [verdict(kind, f"c{i}") for i, kind in enumerate(KINDS)], [], [])
    for kind in KINDS:
        assert re.search(
            rf'<td class="k-{kind}"[^>]*>(<a href="#\w+" aria-label="{kind}">)?{re.escape(SYMBOLS[kind])}<', text
        )
        assert re.search(rf"\.k-{kind}\b[^{{]*{{[^}}]*color:", text)


def test_nothing_is_loaded_from_elsewhere_and_no_script_but_ours_may_run():
    text = render_html(run(), [verdict("hung")], [], [folder()])
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base"}
    assert not [attrs for _, attrs in page.tags if {"src", "onclick", "style"} & attrs.keys()]
    assert all(attrs["href"].startswith("#") for _, attrs in page.tags if "href" in attrs)
    (script,) = page.of("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == [f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"]
    assert "url(" not in text


def test_every_picture_says_in_words_what_it_shows():
    failing = verdict("diverged", key=KEY, error=0.2, bound=1e-15)
    page = Page(render_html(run(), [failing], [], [folder(tensors=(ROW,))]))
    told = [attrs.get("aria-label") for tag, attrs in page.tags if tag == "svg" and "aria-hidden" not in attrs]
    assert "difference 0.2, allowed 1e-15" in told
    assert "difference not comparable, allowed 0" in told
    assert all(told)


def test_a_link_leads_to_something_on_the_page():
    verdicts = [verdict("diverged", f"c{i}", key=KEY) for i in range(3)] + [verdict("hung", "c9", key="torch-other")]
    page = Page(render_html(run(), verdicts, compare([], verdicts), [folder()]))
    there = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    links = {attrs["href"][1:] for _, attrs in page.tags if "href" in attrs}
    assert {KEY, *(each.trial for each in verdicts)} <= links <= there
    assert "torch-other" in there, "the history leads to a key that no finding was made of"


def test_the_picture_of_what_was_tried_frames_what_failed():
    met = Tried("torch", ("ddp:world=2", "tp:world=2", "pp:world=2"), (("lstm", (Met(5, 1), Met(0), Met(0, 0, True))),))
    text = render_html(run(), [verdict()], [], [], [met])
    assert '<td class="c-2 c-bad" title="1 of 5 failed">5</td><td></td><td>\u2013</td>' in text


HOSTILE = "</pre></details><script>alert(1)</script>\"'><img src=x onerror=y>{{ 7 * 7 }}\x1b[31m"


def test_text_from_a_test_is_shown_as_text_everywhere():
    after = [verdict("hung", HOSTILE, HOSTILE, reason=HOSTILE, detail=HOSTILE, diagnosis=HOSTILE, seed=HOSTILE)]
    after.append(verdict("no-data", "c2", HOSTILE, reason=HOSTILE))
    bad = folder(title=HOSTILE, verified=False, unverified_reason=HOSTILE, agreeing=(HOSTILE,))
    bad = FindingFolder(Path(), bad.finding, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    page = Page(render_html(run(HOSTILE, previous=HOSTILE), after, compare([verdict("pass")], after), [bad]))
    assert "img" not in {tag for tag, _ in page.tags}
    assert len(page.of("script")) == 1
    assert [text for text in page.of("pre") if "alert(1)" in text and "{{ 7 * 7 }}" in text]
    assert "\x1b" not in "".join(text for _, text in page.texts)


def test_the_grid_puts_the_worst_cases_first_and_names_seeds():
    verdicts = [verdict("pass", "c1", "a"), verdict("pass", "c1", "b"), verdict("flaky", "c2", "b")]
    verdicts += [verdict("hung", "c3", "a", seed="tied"), verdict("refused", "c4", "a")]
    (grid,) = grids(verdicts)
    assert grid.settings == ["a", "b"]
    assert [row.name for row in grid.rows] == ["tied", "c2", "c1", "c4"]
    assert [[cell and cell.kind for cell in row.cells] for row in grid.rows] == [
        ["hung", None],
        [None, "flaky"],
        ["pass", "pass"],
        ["refused", None],
    ]
    assert grid.rows[0].cells[0].tip == "hung: it is hung"


def many_verdicts():
    """Return fifty thousand verdicts of ten thousand cases under forty settings, every twentieth failing."""
    settings = [f"{family}(world={size})" for family in ("ddp", "fsdp2", "tp", "pp") for size in range(10)]
    return [
        verdict("hung" if i % 20 == 0 else "pass", f"c{i}", settings[(i + j) % 40], key=KEY, detail="stack\n" * 50)
        for i in range(10_000)
        for j in range(5)
    ]


def test_fifty_thousand_verdicts_make_a_page_that_opens():
    verdicts = many_verdicts()
    began = time.process_time()
    text = render_html(run(), verdicts, [], [])
    assert time.process_time() - began < 30
    assert len(text) < 10_000_000
    assert f"{10_000 - MAX_CELLS // 40} more cases are added up" in text
    assert f"and {2500 - MAX_OF_KEY} more under this key" in text


@pytest.mark.parametrize(("kind", "mark"), [("pass", "✓ no failure"), ("hung", "✗ 1 failure")])
def test_the_title_says_good_or_bad_without_colour(kind, mark):
    assert Page(render_html(run(), [verdict(kind)], [], [])).of("h1")[0].startswith(mark)


@pytest.mark.parametrize(
    "written",
    [
        lambda made: render_html(made, [verdict("pass")], [], []),
        lambda made: summary_markdown(made, [verdict("pass")], [], []),
    ],
    ids=["report.html", "summary.md"],
)
def test_every_report_says_in_what_environment_the_run_was(written):
    text = written(run(environment={"cpu": "x86_64 avx512", "gpu": "H200", "nccl": "2.28.9"}))
    assert re.search(r"Environment: cpu x86_64 avx512, gpu H200, nccl 2\.28\.9", text.replace("\\", ""))
