from d3bot.report.history import render_history
from tests.findings.samples import KEY, verdict
from tests.history.test_timeline import FAILS, PASSES, history
from tests.report.test_html import HOSTILE, Page


def test_the_page_has_a_row_a_key_and_a_column_a_night():
    page = Page(render_history(history(PASSES, FAILS)))
    assert page.of("h1") == ["✗ 1 of 1 keys fail now; 2 nights"]
    assert {"Keys (1)", "Families", "Builds"} == set(page.of("h2"))
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == ["#keys", "report.html", f"report.html#{KEY}"]
    assert [text for text in page.of("td") if text.startswith("torch 2.")][:2] == ["torch 2.0", "torch 2.1"]
    assert {"✗ 1/1", "✓ 0/1"} <= set(page.of("td"))


def test_no_night_is_a_page_too():
    assert Page(render_history(history())).of("h1") == ["✓ 0 of 0 keys fail now; 0 nights"]


def test_text_from_a_test_is_shown_as_text():
    page = Page(render_history(history([verdict("hung", setting="ddp(world=2)", key=KEY, reason=HOSTILE)])))
    assert len(page.of("script")) == 1
    assert "img" not in {tag for tag, _ in page.tags}
