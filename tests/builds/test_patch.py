"""The patch applier: what a diff says, exactly there, inside the packages, or nothing."""

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.builds.patch import read_patch
from d3bot.spec import SpecError

FILE = "torch/nn/utils/clip_grad.py"
OLD = "".join(f"line {number}\n" for number in range(1, 13))
NEW = OLD.replace("line 4\n", "line four\nand a half\n").replace("line 12\n", "")


def diff(old: str, new: str, file: str = FILE) -> str:
    before, after = ([f"{line}\n" for line in text.removesuffix("\n").split("\n")] for text in (old, new))
    return "".join(difflib.unified_diff(before, after, f"a/{file}", f"b/{file}"))


def written(folder: Path, text: str) -> Path:
    path = folder / "fault.patch"
    path.write_bytes(text.encode())
    return path


line = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=5)


@given(old=st.lists(line, min_size=1, max_size=30), new=st.lists(line, min_size=1, max_size=30))
def test_applying_a_diff_of_any_two_texts_gives_the_second(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str]
) -> None:
    before, after = "\n".join(old) + "\n", "\n".join(new) + "\n"
    if before == after:
        return
    (change,) = read_patch(written(tmp_path_factory.mktemp("p"), diff(before, after)))
    assert change.apply(before, "here") == after


def test_lines_of_a_commit_around_the_diff_are_passed_over(tmp_path: Path) -> None:
    before = "From 1234\nSubject: clip\n---\n a.py | 2 +-\ndiff --git a/x b/x\nindex 1..2 100644\n"
    text = f"{before}{diff(OLD, NEW)}-- \n2.39\n"
    (change,) = read_patch(written(tmp_path, text))
    assert str(change.path) == FILE
    assert change.package == "torch"
    assert change.apply(OLD, "here") == NEW


def test_a_missing_newline_at_the_end_is_kept(tmp_path: Path) -> None:
    text = (
        f"--- a/{FILE}\n+++ b/{FILE}\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )
    (change,) = read_patch(written(tmp_path, text))
    assert change.apply("a", "here") == "b"


@pytest.mark.parametrize(
    "stock",
    [
        pytest.param(OLD.replace("line 5", "line  5"), id="context differs"),
        pytest.param("one more\n" + OLD, id="same lines, one further down"),
        pytest.param(OLD.replace("\n", "\r\n"), id="other line ends"),
        pytest.param("line 1\n", id="file too short"),
    ],
)
def test_a_hunk_that_does_not_apply_exactly_is_an_error(tmp_path: Path, stock: str) -> None:
    (change,) = read_patch(written(tmp_path, diff(OLD, NEW)))
    with pytest.raises(SpecError, match=r"^here: the hunk at line 1 of torch/nn/utils/clip_grad.py does not apply"):
        change.apply(stock, "here")


HEAD = f"--- a/{FILE}\n+++ b/{FILE}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no change"),
        ("nothing of a diff\n", "holds no change"),
        (diff(OLD, NEW, "os/path.py"), "not a file inside torch, keras, tensorflow"),
        (diff(OLD, NEW, "torch/../os.py"), "not a file inside"),
        (diff(OLD, NEW, "../torch/x.py"), "not a file inside"),
        (diff(OLD, NEW, "/torch/x.py"), "not a file inside"),
        (diff(OLD, NEW, "torch"), "not a file inside"),
        (f"--- /dev/null\n+++ b/{FILE}\n@@ -0,0 +1 @@\n+x\n", "adds or removes a file"),
        (f"--- a/{FILE}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "adds or removes a file"),
        ("--- a/torch/x.py\n+++ b/torch/y.py\n@@ -1 +1 @@\n-x\n+y\n", "the two paths must be"),
        ("rename from torch/x.py\n", "only changed lines of existing text files"),
        (f"--- a/{FILE}\nno plus line\n", "without its +++ line"),
        (HEAD, "no hunk follows"),
        (f"{HEAD}@@ one @@\n", "not a hunk header"),
        (f"{HEAD}@@ -1,3 +1,3 @@\n-x\n+y\n", "fewer lines than its header says"),
        (f"{HEAD}@@ -1 +1 @@\n-x\n+y\n+z\n", "more lines than its header says"),
        (diff(OLD, NEW) + diff(OLD, NEW), "changes one file in two places"),
    ],
)
def test_not_a_strict_diff_of_the_packages(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_patch(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "fault.patch"
    with pytest.raises(SpecError, match="cannot be read"):
        read_patch(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not text"):
        read_patch(path)
