"""The page in a real browser, as a person uses it: links, filters, keyboard, dark, paper, fifty thousand verdicts."""

import re
import time

import pytest

from d3bot.history.finding_folder import FindingFolder
from d3bot.report import render_html
from d3bot.report.history import render_history
from d3bot.spec import TensorRow
from tests.findings.samples import KEY, finding, run, verdict
from tests.history.test_timeline import FAILS, PASSES, history
from tests.report.browser import CHROMIUM, Browser
from tests.report.test_html import many_verdicts

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

ROWS = (TensorRow(name="step 0 grad fc.weight", error=0.3, bound=1e-8, wrong="permuted"),)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def opened(browser, tmp_path):
    """Return a function that opens a report at a fragment and returns the browser."""
    folder = FindingFolder(tmp_path, finding(tensors=ROWS), "print(1)\n", "it is bad", "it is good", "")
    failing = [verdict("diverged", f"c{i}", key=KEY, error=0.2, bound=0.0) for i in range(3)]
    seen = [*failing, verdict("hung", "c9", "ddp(world=2)", key="torch-x"), verdict("pass", "c9", "ddp(world=3)")]
    page = tmp_path / "report.html"

    def look(fragment="", extra=""):
        page.write_text(render_html(run(), seen, [], [folder]).replace("</main>", f"{extra}</main>"))
        browser.complaints.clear()
        browser.look()
        browser.open(f"file://{page}{fragment}")
        return browser

    return look


def test_the_script_runs_and_a_link_opens_its_finding(opened):
    page = opened(f"#{KEY}")
    assert page.js(f"document.getElementById('{KEY}').open")
    assert page.js("!document.querySelector('form.filters').hidden"), "filters are hidden only where no script runs"
    assert page.complaints == []


def test_a_link_to_a_trial_opens_the_key_that_it_stands_under(opened):
    page = opened(f"#{verdict('hung', 'c9', 'ddp(world=2)').trial}")
    assert page.js("document.querySelector('details[data-family=ddp]').open")


def test_another_script_does_not_run(opened):
    page = opened(extra="<script>document.title = 'taken over'</script>")
    assert page.js("document.title") != "taken over"
    assert "Content Security Policy" in page.complaints[0]


def choose(page, name, value):
    page.js(f"document.querySelector('select[name={name}]').value = '{value}'")
    page.js(f"document.querySelector('select[name={name}]').dispatchEvent(new Event('input', {{bubbles: true}}))")


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [("family", "ddp", 1), ("kind", "diverged", 3), ("framework", "torch", 4), ("kind", "pass", 0)],
)
def test_a_filter_leaves_what_fits(opened, name, value, left):
    page = opened()
    choose(page, name, value)
    assert page.js("[...document.querySelectorAll('.trial')].filter((item) => !item.hidden).length") == left
    assert page.js("document.querySelector('#matches').textContent") == f"{left} of 4 listed failures"
    if name == "family":
        heads = "[...document.querySelectorAll('table.grid thead th')].filter((cell) => cell.offsetWidth).length"
        assert page.js(heads) == 3, "the case and the two settings of the family"
    page.js("document.querySelector('form.filters').reset()")
    page.js("new Promise((done) => setTimeout(done, 50))")
    assert page.js("[...document.querySelectorAll('.trial')].every((item) => !item.hidden)")


def test_a_key_is_found_from_the_keyboard(opened):
    page = opened()
    page.press("Tab")
    assert page.js("document.activeElement.className") == "skip"
    page.press("/", "/")
    assert page.js("document.activeElement.name") == "words"
    page.write("torch-x")
    assert page.js("document.querySelector('#matches').textContent") == "1 of 4 listed failures"
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_finding_opens_from_the_keyboard_and_shows_its_picture(opened):
    page = opened()
    page.js("document.querySelector('details.finding summary').focus()")
    page.press("Enter", "\r")
    assert page.js("document.querySelector('details.finding').open")
    assert page.js("document.querySelector('details.finding svg path.over').getBBox().width") > 5
    told = page.js("[...document.querySelectorAll('details.finding pre')].map((item) => item.textContent)")
    assert told == ["print(1)\n", "it is bad", "it is good"]


def test_light_dark_and_paper(opened):
    page, paper = opened(), "getComputedStyle(document.body).backgroundColor"
    assert page.js(paper) == "rgb(255, 255, 255)"
    page.look(scheme="dark")
    assert page.js(paper) == "rgb(13, 17, 23)"
    page.look(media="print", scheme="dark")
    assert page.js(paper) == "rgb(255, 255, 255)"
    assert page.js("getComputedStyle(document.querySelector('form.filters')).display") == "none"
    page.look()
    printed = page.printed()
    assert printed.startswith(b"%PDF")
    assert page.js("document.querySelector('details.finding').open"), "what is printed is opened before"


def test_it_fits_a_telephone(opened):
    page = opened(f"#{KEY}")
    page.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    assert page.js("document.documentElement.scrollWidth") <= 390, "wide tables scroll in their own frames"
    page.ask("Emulation.setDeviceMetricsOverride", width=1200, height=980, deviceScaleFactor=1, mobile=False)


def test_the_history_is_filtered_and_complains_of_nothing(browser, tmp_path):
    (tmp_path / "history.html").write_text(render_history(history(PASSES, FAILS)))
    browser.complaints.clear()
    browser.open(f"file://{tmp_path / 'history.html'}")
    choose(browser, "framework", "torch")
    assert re.fullmatch(r"\d+ of \d+ listed failures", browser.js("document.querySelector('#matches').textContent"))
    assert browser.complaints == []


def test_fifty_thousand_verdicts_open_and_are_filtered(browser, tmp_path):
    (tmp_path / "report.html").write_text(render_html(run(), many_verdicts(), [], []))
    began = time.monotonic()
    browser.open(f"file://{tmp_path / 'report.html'}")
    assert browser.js("document.querySelectorAll('table.grid tbody tr').length") > 1000
    assert time.monotonic() - began < 60
    began = time.monotonic()
    choose(browser, "family", "tp")
    assert browser.js("document.body.offsetHeight") > 0, "laid out anew"
    assert time.monotonic() - began < 30
