"""The page in a real browser: its script runs, opens what a link names and filters; nothing is complained about."""

import re
import shutil
import subprocess

import pytest

from d3bot.history.finding_folder import FindingFolder
from d3bot.report import render_html
from tests.findings.samples import KEY, finding, run, verdict

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=2000")
OPTIONS += ("--enable-logging=stderr",)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a page at a fragment; it returns the document after scripts and the complaints."""
    folder = FindingFolder(tmp_path, finding(), "print(1)\n", "it is bad", "it is good", "")
    failing = [verdict("diverged", f"c{i}", key=KEY, error=0.2, bound=0.0) for i in range(3)]
    page = tmp_path / "report.html"

    def look(fragment="", extra=""):
        text = render_html(run(), [*failing, verdict("hung", "c9", "ddp(world=2)", key="torch-x")], [], [folder])
        page.write_text(text.replace("</main>", f"{extra}</main>"))
        done = subprocess.run(
            [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", f"file://{page}{fragment}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return look


def test_the_script_runs_and_a_link_opens_its_finding(opened):
    document, complaints = opened(f"#{KEY}")
    assert complaints == []
    assert re.search(rf'<details class="finding" id="{KEY}"[^>]* open="">', document)
    assert '<form class="filters" aria-label="Filters">' in document  # hidden where no script runs


def test_a_link_to_a_trial_opens_the_key_that_it_stands_under(opened):
    trial = verdict("hung", "c9", "ddp(world=2)").trial
    document, _ = opened(f"#{trial}")
    assert re.search(r'<details id="torch-x" data-framework="torch" data-family="ddp"[^>]* open="">', document)


def test_another_script_does_not_run(opened):
    document, complaints = opened(extra="<script>document.title = 'taken over'</script>")
    assert "taken over</title>" not in document
    assert "Content Security Policy" in complaints[0]
