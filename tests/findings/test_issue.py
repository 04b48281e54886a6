import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from d3bot.findings import render_issue
from d3bot.findings.issue import MAX_BODY, SECTIONS, marker
from d3bot.findings.markdown import strip_control, utf16_length
from d3bot.spec import Attempt, First, Seed, SpecError, dump_seed
from tests.findings.samples import BUILD, KEY, SETTING, case, finding, verdict
from tests.findings.test_markdown import HOSTILE, REFERENCE

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
OWN_HTML = re.compile(r"<details><summary>[\w ,]+</summary>|</details>|" + re.escape(marker(KEY)))


def blocks(body, kind):
    return [token for token in MARKDOWN.parse(body) if token.type == kind]


def shown(body):
    children = [child for token in MARKDOWN.parse(body) for child in token.children or ()]
    return " ".join(child.content for child in children if child.type in ("text", "text_special"))


def test_an_issue_says_what_is_wrong_with_numbers_before_the_script():
    seen = finding(regression="regression", agreeing=("ddp(world=2)",), trials=(f"c0 {SETTING}", f"c1 {SETTING}"))
    issue = render_issue(
        seen, "print(1)\n", "bad", "good", "The placement changes no result.", "https://docs.pytorch.org"
    )
    parts = [
        marker(KEY),
        "Training with `fsdp2(world=2, shard_dim=1)` on torch 2.13.0 is compared with one process",
        "No error is raised. The previous build passes: this is a regression.",
        "**What is wrong.** The first to differ is `grad fc.weight` in step 0: max \\|difference\\| 0.227 "
        "where at most 0 is allowed.",
        "Diagnosis, checked numerically: permuted: residual 0",
        "**Script** (1 lines): run `python repro.py`",
        "```python\nprint(1)\n```",
        "| torch 2.13.0 | `python repro.py` | exit 1 | 1 |",
        "This bug shows under `fsdp2(world=2, shard_dim=1)` (2 cases).",
        "The same case equals one process under `ddp(world=2)`.",
        "**Why this should be equal.** The placement changes no result. (Source: <https://docs.pytorch.org>)",
        "<summary>Environment and history</summary>",
        "`d3bot replay case.toml --setting 'fsdp2(world=2, shard_dim=1)'`",
        "<summary>Output where it fails</summary>\n\n```text\nbad\n```",
        "<summary>Output where it is equal</summary>\n\n```text\ngood\n```",
    ]
    assert issue.title == "weight gradients differ"
    positions = [issue.body.find(part) for part in parts]
    assert -1 not in positions, parts[positions.index(-1)]
    assert positions == sorted(positions)
    assert "Left out" not in issue.body
    assert "Unverified" not in issue.body


def test_what_no_pattern_explains_is_called_no_diagnosis():
    unexplained = verdict(
        "diverged",
        first=First(role="loss"),
        error=0.2,
        bound=0.0,
        diagnosis="no known pattern; 4 of 4 elements are wrong",
    )
    body = render_issue(finding(verdict=unexplained), "s", "bad", None).body
    assert "No known pattern explains the numbers; 4 of 4 elements are wrong" in body
    assert "Diagnosis" not in body


def test_the_case_in_an_issue_is_a_seed_file():
    body = render_issue(finding(), "s", "bad", None).body
    (text,) = [block.content for block in blocks(body, "fence") if block.info == "toml"]
    assert text == dump_seed(Seed(KEY, case(), f"Finding {KEY}", (SETTING,)))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("diverged", "No error is raised."),
        ("nonfinite", "NaN or infinity"),
        ("crashed", "raises an error"),
        ("died", "a rank of the distributed run dies"),
        ("hung", "never ends"),
        ("refused", "refuses to"),
    ],
)
def test_each_kind_opens_with_its_own_sentence(kind, sentence):
    body = render_issue(finding(verdict=verdict(kind, detail="the stack")), "s", "bad", None).body
    assert sentence in body
    assert "```text\nthe stack\n```" in body


def test_what_is_not_verified_says_so_before_anything_else():
    body = render_issue(finding(verified=False, unverified_reason="exit 0 in 1 of 3"), "s", "bad", None).body
    assert body.splitlines()[1] == "> **Unverified:** exit 0 in 1 of 3"


def test_a_text_that_is_no_key_gets_no_marker():
    with pytest.raises(SpecError, match="not a key"):
        marker("x --> <script>")


@given(text=HOSTILE, output=HOSTILE, script=HOSTILE)
def test_text_from_a_test_does_nothing_but_be_shown(text, output, script):
    first = First(step=0, role=text, tensor=text)
    seen = finding(
        title=text,
        verdict=verdict("crashed", reason=text, diagnosis=text, detail=output, first=first, error=1.0, confirmed=text),
        verified=False,
        unverified_reason=text,
        attempts=(Attempt(how="engine", build=text, failed=True, outcome=text),),
        trials=(f"c0 {text}",),
        agreeing=(text,),
        first_seen=text,
    )
    body = render_issue(seen, script, output, output, text, text).body
    for token in MARKDOWN.parse(body):
        for child in token.children or ():
            assert child.type not in ("image", "html_inline")
            assert child.type != "link_open"
        if token.type == "html_block":
            assert OWN_HTML.sub("", token.content).strip() == ""
    assert not REFERENCE.search(shown(body))
    own = "".join(block.content for block in blocks(body, "html_block"))
    assert re.findall(r"</?details>", own) == ["<details>", "</details>"] * (2 + 2 * bool(output))
    fences = blocks(body, "fence")
    assert [block.info for block in fences if block.info == "python"] == ["python"]
    (python,) = [block.content for block in fences if block.info == "python"]
    assert python.strip("\n") == strip_control(script).strip("\n")
    assert len([block for block in fences if block.info == "text"]) == 1 + 3 * bool(output)


# Slow examples: each renders up to ten bodies of 60,000 characters.
LONG = st.integers(0, 70_000)
UNIT = st.sampled_from(["x", "`", "@", "\n", "\U0001f600", "&", "#1 "])


@settings(max_examples=40)
@given(script=LONG, output=LONG, reason=LONG, promise=LONG, many=st.integers(0, 300), unit=UNIT)
def test_an_issue_always_fits(script, output, reason, promise, many, unit):
    seen = finding(
        title=unit * reason,
        verdict=verdict("hung", reason=unit * reason, diagnosis=unit * reason, detail=unit * output),
        attempts=tuple(
            Attempt(how="engine", build=f"{unit * 50}{i}", failed=True, outcome=unit * 400) for i in range(many)
        ),
        trials=tuple(f"c0 {unit * 190}{i}" for i in range(many)),
        agreeing=tuple(f"{unit * 190}{i}" for i in range(many)),
    )
    issue = render_issue(seen, unit * script, unit * output, unit * output, unit * promise, unit * promise)
    assert utf16_length(issue.body) <= len(issue.body.encode()) <= MAX_BODY
    assert len(issue.title) <= 200
    assert issue.body.startswith(marker(KEY))
    assert "**What is wrong.**" in issue.body


def test_what_does_not_fit_is_left_out_whole_and_named_the_least_missed_first():
    body = render_issue(finding(), "x" * 47_000, "bad\n" * 1500, "good\n" * 1500, "It is documented.").body
    assert "```text\ngood" not in body
    assert "```text\nbad" in body
    assert "```python\nx" in body
    assert f"too long: {SECTIONS['output_good']}" in body


def test_a_script_that_cannot_fit_is_named_as_left_out():
    body = render_issue(finding(), "x" * 70_000, "bad", None).body
    assert "```python" not in body
    assert body.rstrip().endswith("the script. The finding's folder holds everything.")
    assert SECTIONS["output_good"] not in body


def test_the_environment_names_what_is_known():
    build = BUILD.model_copy(update={"commit": "abc", "packages": {"numpy": "2.1"}, "environment": {"cpu": "x86"}})
    body = render_issue(finding().model_copy(update={"build": build}), "s", "bad", None).body
    assert "```text\nbuild: torch 2.13.0 (abc)\ncommit: abc\nnumpy: 2.1\ncpu: x86\n```" in body
