import pytest

from d3bot.history.finding_folder import list_findings, read_finding, write_finding
from d3bot.spec import SpecError, load_seed
from tests.findings.samples import KEY, SETTING, case, finding


@pytest.fixture
def written(tmp_path):
    return write_finding(tmp_path, finding(), "print(1)\n", "bad", "good", "issue")


def test_what_was_written_is_read_back(written, tmp_path):
    found = read_finding(written)
    assert (found.finding, found.script, found.output_bad) == (finding(), "print(1)\n", "bad")
    assert (found.output_good, found.issue_md) == ("good", "issue")
    assert list_findings(tmp_path) == [written]


def test_the_case_can_be_run_as_a_seed(written):
    seed = load_seed(written / "case.toml")
    assert (seed.case, seed.settings) == (case(), (SETTING,))


def test_a_finding_without_a_good_build_has_no_second_output(tmp_path):
    path = write_finding(tmp_path, finding(), "s", "bad", None, "issue")
    assert not (path / "output-good.txt").exists()
    assert read_finding(path).output_good is None


def test_writing_again_replaces_the_folder_whole(written, tmp_path):
    (written / "output-good.txt").write_text("of the older finding")
    assert write_finding(tmp_path, finding(), "new", "bad", None, "issue") == written
    assert read_finding(written).output_good is None
    assert [path.name for path in (tmp_path / "findings").iterdir()] == [KEY]


def test_a_write_that_fails_leaves_no_half_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("d3bot.history.finding_folder.dump_seed", lambda seed: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_finding(tmp_path, finding(), "s", "bad", None, "issue")
    assert list((tmp_path / "findings").iterdir()) == []


def test_a_flood_of_output_is_cut_so_that_it_can_be_read_back(tmp_path):
    path = write_finding(tmp_path, finding(), "s", "\udc80" * 3_000_000, None, "issue")
    assert "characters cut" in read_finding(path).output_bad


def test_a_key_that_leaves_the_folder_is_refused(tmp_path):
    with pytest.raises(SpecError, match="cannot name a folder"):
        write_finding(tmp_path, finding("../../etc/x"), "s", "bad", None, "issue")


def other_key(path):
    path.rename(path.with_name("torch-ddp-hung-wait-00000000"))
    return path.with_name("torch-ddp-hung-wait-00000000")


def linked_file(path):
    (path / "repro.py").unlink()
    (path / "repro.py").symlink_to("/etc/passwd")


def linked_folder(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def replaced(name, old, new):
    return lambda path: (path / name).write_text((path / name).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "repro.py").unlink(), "repro.py is missing"),
        (lambda path: (path / "extra.sh").write_text(""), "'extra.sh' does not belong"),
        (lambda path: (path / "output-bad.txt").write_bytes(b"x" * (1024**2 + 1)), "larger than"),
        (lambda path: (path / "issue.md").write_bytes(b"\xff"), "not UTF-8"),
        (linked_file, "not a regular file"),
        (linked_folder, "not a plain folder"),
        (other_key, "not the finding's key"),
        (replaced("case.toml", "= 4", "= 5"), "different cases"),
        (replaced("setting.toml", "shard_dim=1", "shard_dim=0"), "different settings"),
        (replaced("setting.toml", "shard_dim=1", "shard_dim=;"), "setting.toml: setting"),
        (replaced("setting.toml", "setting", "choice"), "holds no setting"),
        (replaced("finding.json", '"schema": 1', '"schema": 2'), "update d3bot"),
        (replaced("finding.json", '"title"', '"headline"'), "title: Field required"),
    ],
)
def test_a_hostile_folder_is_refused_in_one_line(written, spoil, message):
    path = spoil(written)
    with pytest.raises(SpecError, match=message) as caught:
        read_finding(path if hasattr(path, "name") else written)
    assert "\n" not in str(caught.value)


def test_a_flood_of_findings_is_refused(tmp_path):
    for i in range(1001):
        (tmp_path / "findings" / str(i)).mkdir(parents=True)
    with pytest.raises(SpecError, match="1001 findings"):
        list_findings(tmp_path)


def test_a_run_without_findings_has_none_and_a_link_is_refused(tmp_path):
    assert list_findings(tmp_path) == []
    (tmp_path / "findings").symlink_to("/etc")
    with pytest.raises(SpecError, match="not a plain folder"):
        list_findings(tmp_path)
