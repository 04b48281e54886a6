"""docs/example, a finding of a real night: it is what today's templates write, and its script still shows the bug."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from d3bot.flow.finding import issue_of
from d3bot.history.finding_folder import read_finding
from d3bot.spec import Build

ROOT = Path(__file__).parents[1]
(EXAMPLE,) = (ROOT / "docs/example").iterdir()


def test_the_issue_is_what_the_templates_write_today() -> None:
    issue = issue_of(read_finding(EXAMPLE))
    assert (EXAMPLE / "issue.md").read_text() == f"# {issue.title}\n\n{issue.body}"


def test_the_readme_quotes_that_issue() -> None:
    quote = "\n".join(re.findall(r"^>(.*)$", (ROOT / "README.md").read_text(), re.MULTILINE))
    text = " ".join((EXAMPLE / "issue.md").read_text().replace("# ", "", 1).split())
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n|…", quote)]
    assert len(parts) > 3
    for part in parts:
        assert part.strip("*") in text, part


def test_its_script_shows_the_bug_that_the_readme_shows(torch_build: Build, tmp_path: Path) -> None:
    done = subprocess.run(
        [torch_build.python, str(EXAMPLE / "repro.py")], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    told = json.loads((EXAMPLE / "finding.json").read_text())
    if torch_build.version != told["build"]["version"]:
        pytest.skip("another release, which may have mended it")
    assert done.returncode == 1, done.stdout + done.stderr
    kept = (EXAMPLE / "output-bad.txt").read_text()
    assert [line for line in done.stdout.splitlines() if "WRONG" in line] == [
        line for line in kept.splitlines() if "WRONG" in line
    ]
