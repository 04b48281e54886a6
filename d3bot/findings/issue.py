"""The text of an issue around one finding.  Pure: the template is layout, everything is decided here."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d3bot.bisect import describe
from d3bot.findings.key import is_key
from d3bot.findings.markdown import code, fence, link, plain, title_text
from d3bot.findings.title import MAX_TITLE
from d3bot.spec import Finding, Kind, Seed, SpecError, Verdict, dump_seed
from d3bot.templates import environment, render_page

MAX_BODY = 56_000
"""Bytes.  GitHub refuses more than 65,536 characters, of which a character has at least one byte; the rest is room for
what a tracker adds."""

MARKER_VERSION = 1

_OUTPUT = 6000
_DETAIL = 3000
_SETTINGS = 20
"""Settings listed by name; the others are counted."""

SECTIONS = {
    "output_good": "the output where it is equal",
    "environment": "the environment",
    "output_bad": "the output where it fails",
    "case": "the case",
    "detail": "the error in full",
    "settings": "the same case under other settings",
    "bisection": "the bisection",
    "builds": "the table of builds",
    "promise": "why it should be equal",
    "script": "the script",
}
"""What may be left out for the size, in this order: the first is missed least."""

_OPENING: dict[Kind, str] = {
    "diverged": "The two must come out equal and do not. No error is raised.",
    "nonfinite": "One of the two ends with NaN or infinity where the other is finite.",
    "crashed": "One process trains it; the distributed run raises an error.",
    "died": "One process trains it; a rank of the distributed run dies.",
    "hung": "One process trains it; the distributed run never ends.",
    "refused": "One process trains it; the distributed run refuses to.",
}
_ORIGIN = {
    "regression": "The previous build passes: this is a regression.",
    "pre-existing": "The previous build fails in the same way: this is not new.",
    "unknown": "",
}


@dataclass(frozen=True)
class Issue:
    """What a tracker gets: a title of at most 200 characters and a body of at most 56,000 bytes."""

    title: str
    body: str


def marker(key: str) -> str:
    """Return the hidden line by which the issue of a key is found again; SpecError if the text is no key."""
    if not is_key(key):
        raise SpecError(f"finding {key[:120]!r}: is not a key that d3bot makes; run again")
    return f"<!-- d3bot:v{MARKER_VERSION} key={key} -->"


def render_issue(
    finding: Finding,
    script: str,
    output_bad: str,
    output_good: str | None,
    promise: str = "",
    source: str = "",
    templates: Path | None = None,
) -> Issue:
    """Return the issue of a finding; everything in it that came from a test is made harmless.

    `promise` is the contract's sentence that the build breaks, `source` where it is documented.  A body that would be
    too long loses whole sections, in the order of `SECTIONS`, and says which.  `templates` is a person's own folder.
    SpecError if the key is not one, or if their template is wrong or does not leave sections out.
    """
    seed = Seed(finding.key, finding.case, f"Finding {finding.key}", (finding.setting,))
    facts: dict[str, Any] = {
        "marker": marker(finding.key),
        "finding": finding,
        "opening": _OPENING.get(finding.verdict.kind, ""),
        "numbers": _numbers(finding.verdict),
        "origin": _ORIGIN[finding.regression],
        "script": script,
        "script_lines": len(script.splitlines()),
        "output_bad": output_bad,
        "output_good": output_good,
        "detail": finding.verdict.detail,
        "builds": _attempts(finding),
        "bisection": "\n".join(describe(finding.bisection)) if finding.bisection else "",
        "agreeing": _listed(code(text) for text in finding.agreeing),
        "same": _listed(code(text) for text in finding.verdict.same),
        "failing": _failing(finding),
        "promise": promise,
        "source": source,
        "environment": _environment(finding),
        "case": dump_seed(seed),
        "compare": _compare(finding),
    }
    page = environment("issue", own=templates)
    page.filters.update(plain=plain, code=code, fence=fence, link=link)
    names = list(SECTIONS)
    for dropped in range(len(names) + 1):
        cut = [SECTIONS[name] for name in names[:dropped] if _present(name, facts)]
        more = {"keep": names[dropped:], "cut": cut, "output_limit": _OUTPUT, "detail_limit": _DETAIL}
        body = render_page(page, "issue.md.j2", facts | more)
        if len(body.encode()) <= MAX_BODY:
            break
    else:
        raise SpecError(
            f"template issue.md.j2: writes more than {MAX_BODY:,} bytes with every section left out; mend it"
        )
    if not body.startswith(facts["marker"]):
        body = f"{facts['marker']}\n{body}"
    return Issue(title_text(finding.title, MAX_TITLE), body)


def _present(name: str, facts: dict[str, Any]) -> bool:
    if name == "settings":
        return bool(facts["failing"] or facts["agreeing"])
    return bool(facts[name])


def _numbers(verdict: Verdict) -> str:
    """Return the first divergent tensor with its difference and the largest one allowed, as Markdown."""
    if verdict.first is None:
        return ""
    step = "after the last step" if verdict.first.step is None else f"in step {verdict.first.step}"
    name = f"{verdict.first.role} {verdict.first.tensor}".strip()
    error = "" if verdict.error is None else f": max \\|difference\\| {verdict.error:.3g}"
    bound = "" if verdict.bound is None else f" where at most {verdict.bound:.3g} is allowed"
    return f"The first to differ is {code(name)} {step}{error}{bound}."


_UPSTREAM = {"torch": "https://github.com/pytorch/pytorch", "tensorflow": "https://github.com/tensorflow/tensorflow"}
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def _compare(finding: Finding) -> str:
    """Return where the commits between the last good and this bad build can be read; empty if they are not known."""
    good, bad = finding.good.commit if finding.good else "", finding.build.commit
    if not (_COMMIT.fullmatch(good) and _COMMIT.fullmatch(bad)) or good == bad:
        return ""
    return f"{_UPSTREAM[finding.build.framework]}/compare/{good}...{bad}"


def _attempts(finding: Finding) -> list[tuple[str, str, str, int]]:
    """Return (build, how, outcome, times) of every different attempt, in their order."""
    how = {"engine": "fresh process", "script": "`python repro.py`"}
    counted = Counter((item.build, how[item.how], item.outcome) for item in finding.attempts)
    return [(*what, times) for what, times in list(counted.items())[:_SETTINGS]]


def _failing(finding: Finding) -> str:
    """Return the settings under which the run saw this key, each with the number of its cases."""
    counted = Counter(trial.partition(" ")[2] for trial in finding.trials)
    return _listed(f"{code(text)} ({count} case{'s' if count != 1 else ''})" for text, count in sorted(counted.items()))


def _listed(items: Iterable[str]) -> str:
    texts = list(items)
    more = f" and {len(texts) - _SETTINGS} more" if len(texts) > _SETTINGS else ""
    return ", ".join(texts[:_SETTINGS]) + more


def _environment(finding: Finding) -> str:
    """Return what the failure was seen on, a line each."""
    build = finding.build
    facts = {"build": build.label, "commit": build.commit, "source": build.source, "wheel": build.wheel_hash}
    facts.update(sorted(build.packages.items()))
    facts.update(sorted(build.environment.items()))
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value)
