"""Any text in any field: no fence is broken, nobody is mentioned, no limit is passed, and the state reads back."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from d3bot.findings.issue import marker, render_issue
from d3bot.findings.lifecycle import new_record
from d3bot.findings.markdown import plain
from d3bot.github.body import LIMIT, compose, harmless, key_in, record_in
from d3bot.github.sarif import MAX_RESULTS, sarif
from d3bot.history.check import Check, Row
from d3bot.report.check import check_markdown, title_of_check
from d3bot.report.summary import summary_markdown
from d3bot.spec import SpecError
from d3bot.templates import environment, render_page
from tests.findings.samples import BUILD, KEY, finding, run, verdict
from tests.findings.test_lifecycle import NOW
from tests.findings.test_markdown import HOSTILE, REFERENCE
from tests.github.nights import failing

ROOT = Path(__file__).parents[2]
MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
SEEN = new_record(finding(), NOW, "r1")


def shown(body):
    children = [child for token in MARKDOWN.parse(body) for child in token.children or ()]
    assert all(child.type not in ("image", "html_inline", "link_open") for child in children)
    return " ".join(child.content for child in children if child.type in ("text", "text_special"))


@given(text=HOSTILE, silenced=HOSTILE, build=HOSTILE, history=st.lists(HOSTILE, max_size=5))
def test_the_status_shows_text_and_nothing_else_and_the_state_reads_back(text, silenced, build, history):
    record = SEEN.model_copy(update={"silenced": silenced, "build": build, "history": tuple(history), "fix": silenced})
    record = record.model_copy(update={"title": text})
    body = compose(f"{marker(KEY)}\ntext", record)
    assert not REFERENCE.search(shown(body))
    assert key_in(body) == KEY
    assert record_in(body).silenced == silenced
    again = compose(body, record)
    assert again == body


@settings(max_examples=30)
@given(
    script=HOSTILE,
    output=HOSTILE,
    unit=st.sampled_from(["x", "😀", "`", "@a ", "ä", "\n"]),
    times=st.integers(0, 70_000),
)
def test_a_whole_issue_holds_githubs_limit_in_characters_and_bytes(script, output, unit, times):
    seen = finding(verdict=verdict("crashed", reason=unit * 500, detail=unit * 3000, key=KEY))
    issue = render_issue(seen, script + unit * times, output + unit * times, output)
    history = tuple(f"2026-11-30 03:17 seen again in run {unit * 60}{i}" for i in range(100))
    record = SEEN.model_copy(update={"history": history, "seen_runs": tuple(f"r{i}{unit * 30}" for i in range(100))})
    body = compose(harmless(issue.body), record)
    assert len(body) <= len(body.encode()) <= LIMIT < 65_536
    assert record_in(body) is not None


@given(HOSTILE)
def test_text_of_a_test_never_passes_for_our_marks(text):
    forged = f"{marker(KEY)}\n{text}<!-- d3bot:v1 key=torch-x-00000000 --><!-- d3bot:status -->{text}<!-- d3bot:end -->"
    body = compose(harmless(forged), SEEN)
    assert body.count("<!-- d3bot:status -->") == body.count("<!-- d3bot:end -->") == 1
    assert key_in(body) == KEY
    assert compose(body, SEEN) == body


def test_a_body_that_grew_by_hand_is_cut_and_says_so():
    body = compose(f"{marker(KEY)}\n```\n" + "word\n" * 20_000, SEEN)
    assert len(body.encode()) <= LIMIT
    assert "cut here" in body
    fences = [token for token in MARKDOWN.parse(body) if token.type == "fence"]
    assert len(fences) == 1
    assert "Seen in 1 run" not in fences[0].content


def test_a_persons_own_template_takes_the_place_of_ours(tmp_path):
    (tmp_path / "issue").mkdir()
    (tmp_path / "issue" / "issue.md.j2").write_text("{{ marker }}\nMine: {{ finding.title | plain }}\n")
    issue = render_issue(finding(title="@octocat"), "s", "bad", None, templates=tmp_path)
    assert issue.body == f"{marker(KEY)}\nMine: @&#8203;octocat\n"


def test_a_template_that_forgets_the_marker_gets_it(tmp_path):
    (tmp_path / "issue").mkdir()
    (tmp_path / "issue" / "issue.md.j2").write_text("Mine\n")
    assert render_issue(finding(), "s", "bad", None, templates=tmp_path).body.startswith(marker(KEY))


OWN = sorted(
    f"{path.parent.name}/{path.name}"
    for folder in ("issue", "comment", "summary")
    for path in (ROOT / "templates" / folder).glob("*.j2")
)


@pytest.mark.parametrize("name", OWN)
def test_every_template_may_be_ones_own_and_none_gets_beyond_text(tmp_path, name):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("Mine: {{ text | plain }}")
    page = environment(name.partition("/")[0], own=tmp_path)
    page.filters.update(plain=plain)
    assert render_page(page, name.partition("/")[2], {"text": "@octocat"}).strip() == "Mine: @&#8203;octocat"
    (tmp_path / name).write_text("{{ text.__class__.__mro__ }}")
    with pytest.raises(SpecError, match="unsafe"):
        render_page(environment(name.partition("/")[0], own=tmp_path), name.partition("/")[2], {"text": "x"})


def test_the_docs_list_every_template_that_may_be_ones_own():
    text = (ROOT / "docs/github.md").read_text().split("**Templates.**")[1].split("They are sandboxed")[0]
    listed = [
        f"{folder}/{name.strip()}{end}"
        for folder, names, end in re.findall(r"(\w+)/(?:\{([^}]*)\}|\w+)(\.md\.j2)", text)
        for name in names.split(",")
    ]
    assert sorted(each.replace("summary/", "summary/summary") for each in listed) == OWN


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{% if %}", "issue.md.j2, line 1"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ finding.model_copy.__globals__ }}", "unsafe"),
        ("{% include '../../../../etc/passwd' %}", "passwd"),
        ("{{ 'x' * 100000 }}", "writes more than"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_template_that_is_wrong_or_wants_more_than_text_is_one_line(tmp_path, text, words):
    (tmp_path / "issue").mkdir()
    (tmp_path / "issue" / "issue.md.j2").write_text(text)
    with pytest.raises(SpecError, match=re.escape(words)) as caught:
        render_issue(finding(), "s", "bad", None, templates=tmp_path)
    assert "\n" not in str(caught.value)


def check(**facts):
    return Check(**({"outcome": "worse", "reason": "r", "base": BUILD, "head": BUILD, "seed": 1, "trials": 9} | facts))


@settings(max_examples=30)  # each of up to 150 rows of a table
@given(text=HOSTILE, count=st.sampled_from([0, 1, 50, 53]))
def test_the_report_of_a_check_shows_text_and_nothing_else(text, count):
    clean = text.encode(errors="replace").decode()
    rows = tuple(Row(key=KEY, title=clean, setting=clean, note=clean) for _ in range(count))
    body = check_markdown(check(reason=clean, worse=rows, pre_existing=rows, unverified=rows, baseline=clean))
    assert not REFERENCE.search(shown(body))
    blocks = "".join(token.content for token in MARKDOWN.parse(body) if token.type == "html_block")
    assert blocks.count("<details>") == blocks.count("</details>") == 2 * bool(count)
    assert len([token for token in MARKDOWN.parse(body) if token.type == "td_open"]) == 3 * 3 * min(count, 50)
    if count > 50:
        assert f"and {count - 50} more." in body


def test_d12_what_the_base_shows_as_well_is_listed_and_not_counted():
    body = check_markdown(check(outcome="same", pre_existing=(Row(key=KEY, title="old"),)))
    assert "**0** worse" in body
    assert "Pre-existing, not counted (1)" in body
    assert "| old |" in body


def test_d6_a_check_of_some_settings_says_which():
    body = check_markdown(check(outcome="same", only=("fsdp2*", "tp*"), not_applicable=4))
    assert "Only settings that match `fsdp2*` or `tp*` were run" in body
    assert "**4** not applicable" in body
    assert "Only settings" not in check_markdown(check(outcome="same"))


def test_d8_a_check_says_what_the_change_touches_and_so_had_more_cases():
    body = check_markdown(check(outcome="same", touched=("fsdp2", "hsdp")))
    assert "The change touches the code of `fsdp2`, `hsdp`: their settings came first" in body
    assert "The change touches" not in check_markdown(check(outcome="same"))


def test_d7_a_head_that_breaks_one_thing_and_mends_another_is_mixed_and_counts_as_worse():
    seen = check(outcome="mixed", worse=(Row(key=KEY, title="new"),), fixed=2)
    assert seen.is_worse
    assert title_of_check(seen) == "Mixed: 1 new, 2 fixed"
    assert "**1** worse · **2** fixed" in check_markdown(seen)


def test_e6_one_run_with_stable_fingerprints_and_no_more_results_than_are_shown():
    findings = [failing("a"), failing("b", verified=False), failing("c", family="tp")]
    data = json.loads(sarif(findings))
    (run,) = data["runs"]
    assert [each["partialFingerprints"] for each in run["results"]] == [
        {"d3bot/v1": findings[0].key},
        {"d3bot/v1": findings[2].key},
    ]
    assert sarif(findings) == sarif(findings)
    many = json.loads(sarif([failing("a")] * (MAX_RESULTS + 5)))
    assert len(many["runs"][0]["results"]) == MAX_RESULTS


@given(HOSTILE)
def test_e6_any_text_is_valid_json(text):
    data = json.loads(sarif([failing("a", title=text)]))
    assert "\x1b" not in json.dumps(data)


def test_the_summary_of_a_run_may_be_ones_own_too(tmp_path):
    (tmp_path / "summary").mkdir()
    (tmp_path / "summary" / "summary.md.j2").write_text("Mine: {{ headline.text | plain }}\n")
    assert summary_markdown(run(), [], [], [], tmp_path).startswith("Mine: NO DATA")
