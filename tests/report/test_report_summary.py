import re

import pytest
from markdown_it import MarkdownIt

from d3bot.findings.markdown import strip_control
from d3bot.history.changes import compare
from d3bot.report import summary_markdown
from d3bot.report.facts import SYMBOLS, duration, headline, matrix, numbers, reasons
from d3bot.report.summary import MAX_BYTES, SECTIONS
from d3bot.spec import KINDS, First
from tests.findings.samples import FIRST, KEY, finding, run, verdict

HOSTILE = "@octocat fixes #1 ``` </details><img src=x> | \x1b[31m https://github.com/o/r/issues/1"


def of(before, after):
    return headline(run(previous="r0" if before else ""), after, compare(before, after) if before else [], [])


def many(kind, count, start=0):
    return [verdict(kind, f"c{i}") for i in range(start, start + count)]


@pytest.mark.parametrize(
    ("before", "after", "text", "good"),
    [
        (many("pass", 9), many("pass", 9), "nothing new", True),
        (many("hung", 9), many("hung", 9), "nothing new", True),
        (many("hung", 9), many("pass", 9), "nothing new", True),
        (many("pass", 9), many("hung", 1) + many("pass", 8, 1), "1 new failure", False),
        (many("pass", 9), many("hung", 2) + many("pass", 7, 2), "2 new failures", False),
        (many("pass", 9), many("flaky", 2) + many("pass", 7, 2), "nothing new", True),
        (
            many("hung", 2) + many("pass", 7, 2),
            many("pass", 7, 2),
            "2 failing trials of the previous run had no verdict this time; nothing new",
            False,
        ),
        (
            many("no-data", 1) + many("pass", 8, 1),
            many("hung", 1) + many("pass", 8, 1),
            "1 trial failing, unknown since when; nothing new",
            False,
        ),
        (
            many("pass", 9),
            many("no-data", 2) + many("reference-failed", 1, 2) + many("pass", 6, 3),
            "INCONCLUSIVE: 3 of 9 trials gave no data; nothing new",
            False,
        ),
        (many("pass", 9), many("not-applicable", 9), "nothing new", True),
        ([], many("pass", 9), "no failure; no previous run to compare with", True),
        ([], many("hung", 2), "2 failures; no previous run to compare with", False),
        ([], [], "NO DATA; no previous run to compare with", False),
    ],
)
def test_the_headline_says_what_is_new_and_what_could_not_be_said(before, after, text, good):
    found = of(before, after)
    assert (found.text, found.good) == (text, good)


def test_an_incomplete_run_is_never_good():
    found = headline(run(previous="r0", complete=False), many("pass", 3), [], [])
    assert (found.text, found.good) == ("INCOMPLETE RUN; nothing new", False)


def test_new_failures_are_counted_with_their_keys():
    after = many("hung", 3)
    found = headline(run(previous="r0"), after, compare(many("pass", 3), after), [finding()])
    assert found.text == "3 new failures under 1 key"


def test_the_indeterminate_are_counted_even_where_there_are_none():
    after = many("no-data", 1) + many("not-applicable", 2, 1) + many("flaky", 1, 3) + many("pass", 20, 4)
    counts = dict(of(many("pass", 24), after).counts)
    assert (counts["indeterminate"], counts["flaky"], counts["no-data"], counts["pass"]) == (3, 1, 1, 20)
    assert dict(of(many("pass", 1), many("pass", 1)).counts)["indeterminate"] == 0


def test_every_kind_has_a_symbol_of_its_own():
    assert set(SYMBOLS) == set(KINDS)
    assert len(set(SYMBOLS.values())) == len(KINDS)


def test_the_matrix_counts_by_setting():
    rows = matrix(
        [verdict("pass", "c1", "ddp(world=2)"), verdict("hung", "c2", "ddp(world=2)"), verdict("pass", "c3", "a")]
    )
    assert [(row.setting, row.counts) for row in rows] == [("a", {"pass": 1}), ("ddp(world=2)", {"pass": 1, "hung": 1})]


def test_reasons_are_of_what_says_nothing_and_the_commonest_come_first():
    verdicts = [verdict("no-data", f"c{i}", reason="disk full") for i in range(2)]
    verdicts += [verdict("not-applicable", reason="dropout"), verdict("flaky"), verdict("pass"), verdict("hung")]
    assert reasons(verdicts, 9) == [("no-data", "disk full", 2), ("not-applicable", "dropout", 1)]
    assert reasons(verdicts, 1) == [("no-data", "disk full", 2)]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"first": FIRST, "error": 0.2271, "bound": 0.0}, "step 0 grad fc.weight, max |difference| 0.227, bound 0"),
        ({"first": First(role="predict"), "error": float("inf")}, "predict, max |difference| inf"),
        ({}, ""),
    ],
)
def test_numbers_are_given_where_there_are_any(facts, text):
    assert numbers(verdict("diverged", **facts)) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (3599.6, "1 h 00 min")]
)
def test_a_duration_reads_as_people_say_it(seconds, text):
    assert duration(seconds) == text


def test_the_summary_begins_with_the_headline_and_names_every_change():
    before = [
        verdict("pass", "c1"),
        verdict("hung", "c2", key="k-old"),
        verdict("hung", "c3"),
        verdict("no-data", "c4"),
    ]
    after = [verdict("diverged", "c1", key=KEY), verdict("pass", "c2"), verdict("crashed", "c4")]
    text = summary_markdown(run(previous="r0"), after, compare(before, after), [finding(regression="regression")])
    parts = [
        "## ✗ 1 failing trial of the previous run had no verdict this time; 1 trial failing, unknown since when; 1 new",
        "**1** fixed · **0** still failing · **0** flaky · **0** no-data · **0** indeterminate · **1** lost",
        "3 trials in 0 s on torch 2.13.0; run `r1`, compared with `r0`.",
        "| weight gradients differ | step 0 grad fc.weight, max &#124;difference&#124; 0.227, bound 0 | yes |",
        "### Failing, unknown since when (1)\n\n- fsdp2(world=2, shard_dim=1) · c4: no-data → crashed\n",
        f"### Regressed (1)\n\n- fsdp2(world=2, shard_dim=1) · c1: pass → diverged · `{KEY}`\n",
        "### Lost (1)\n\n- fsdp2(world=2, shard_dim=1) · c3: hung → no verdict\n",
        "### Fixed (1)\n\n- fsdp2(world=2, shard_dim=1) · c2: hung → pass · `k-old`\n",
        "| torch | fsdp2(world=2, shard_dim=1) | 1 | 1 | 1 |",
    ]
    positions = [text.find(part) for part in parts]
    assert -1 not in positions, parts[positions.index(-1)]
    assert positions == sorted(positions)
    tables = [token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text) if token.type == "table_open"]
    assert len(tables) == 2


def test_text_from_a_test_does_nothing_in_a_summary():
    seen = verdict("no-data", "c1", reason=HOSTILE)
    bad = finding(title=HOSTILE, verified=False, unverified_reason=HOSTILE)
    text = summary_markdown(run(HOSTILE), [seen], [], [bad])
    inline = [
        child for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text) for child in token.children or ()
    ]
    assert not {"html_inline", "link_open", "image"} & {child.type for child in inline}
    words = " ".join(child.content for child in inline if child.type in ("text", "text_special"))
    assert "octocat" in words
    assert not re.search(r"@\w|#\d|://", words)
    assert strip_control(text).replace("\u200b", "") == text


def test_a_summary_of_thousands_of_failures_is_cut_by_list_and_says_so():
    after = [verdict("hung", f"c{i}") for i in range(5000)]
    text = summary_markdown(run(previous="r0"), after, compare(many("pass", 5000), after), [])
    assert len(text.encode()) < MAX_BYTES
    assert "### Regressed (5000)" in text
    assert "- and 4800 more" in text


def test_a_summary_never_grows_beyond_what_is_shown():
    wide = "ddp(" + ", ".join(f"o{i}=x" for i in range(500)) + ")"
    after = [verdict("no-data", f"c{i}", f"{wide}{i}", reason="é@" * 200 + str(i)) for i in range(1200)]
    bad = [
        finding(KEY[:-8] + f"{i:08x}", title="é@" * 100, unverified_reason="@" * 999, verified=False)
        for i in range(999)
    ]
    before = [verdict("hung", each.case, each.setting) for each in after]
    lost = compare(before, after) + compare([verdict("hung", f"x{i}", wide) for i in range(300)], [])
    text = summary_markdown(run(previous="r0"), after, lost, bad)
    assert len(text.encode()) <= MAX_BYTES
    assert f"too long: {SECTIONS['reasons']}" in text
    assert "**1200** indeterminate" in text


def test_d6_what_a_run_was_restricted_to_is_named():
    restricted = summary_markdown(run(config={"settings": ["fsdp2*", "pp"]}), [verdict("pass")], [], [])
    assert "Only settings that match `fsdp2*`, `pp`: of all others this run says nothing." in restricted
    assert "Only settings" not in summary_markdown(run(config={"settings": []}), [verdict("pass")], [], [])


def test_failures_that_others_stand_for_are_counted():
    before = [verdict("hung", f"c{i}", key="k") for i in range(5)]
    counts = dict(of(before, [verdict("hung", "c0", key="k")]).counts)
    assert (counts["still failing"], counts["represented"], counts["lost"]) == (1, 4, 0)
    assert "represented" not in dict(of(before, before).counts)
