"""The list of public reports: every row leads to a seed, to what coverage meets, or to a reason."""

from pathlib import Path

import pytest

from d3bot.flow.public_reports import SOURCE, answered
from d3bot.spec import FRAMEWORKS, SpecError

ROOT = Path(__file__).parents[2]
SEEDS = ROOT / "seeds"


def test_every_row_is_answered_in_one_way_and_no_report_is_listed_twice():
    rows, others = answered(ROOT / "docs" / SOURCE, SEEDS)
    reports = [report for item in rows for report in item.row.reports]
    assert len(set(reports)) == len(reports)
    assert not set(others) & set(reports)
    for framework in FRAMEWORKS:
        mine = [item for item in rows if item.framework == framework]
        out_of_reach = [item for item in mine if item.row.why_not]
        assert len(out_of_reach) < len(mine) / 3
        assert len([item for item in mine if item.seeds]) > len(mine) / 2.5


ROW = "torch = [{{ reports = [{report}], what = 'it went wrong'{more} }}]\ntensorflow = []\n"


@pytest.mark.parametrize(
    ("report", "more", "words"),
    [
        ("'owner/repo#1'", "", "exactly where no seed names it"),
        ("'pytorch/pytorch#51929'", ", why_not = 'a reason'", "exactly where no seed names it"),
        ("'owner/repo#1'", ", meets = ['tied'], why_not = 'a reason'", "exactly where no seed names it"),
        ("'owner/repo#1'", ", meets = ['ddp:colour=red']", "no feature, option or family"),
        ("7", "", "reports"),
    ],
)
def test_a_row_that_is_not_is_an_error_that_says_which(tmp_path: Path, report: str, more: str, words: str):
    (tmp_path / SOURCE).write_text(ROW.format(report=report, more=more))
    with pytest.raises(SpecError) as caught:
        answered(tmp_path / SOURCE, SEEDS)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / SOURCE))


def test_words_of_coverage_and_reasons_are_answers(tmp_path: Path):
    for more in (", meets = ['tied', 'ddp:world=2', 'torchrec']", ", why_not = 'a reason'"):
        (tmp_path / SOURCE).write_text(ROW.format(report="'owner/repo#1'", more=more))
        rows, _ = answered(tmp_path / SOURCE, SEEDS)
        assert [item.seeds for item in rows] == [()]
