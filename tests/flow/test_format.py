from d3bot.flow.format import format_files


def test_a_file_that_cannot_be_formatted_stays_and_the_others_are_formatted(tmp_path):
    good, bad, gone = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "gone.py"
    good.write_text("x = [1,2]\n")
    bad.write_text("def (:\n")
    format_files([bad, gone, good])
    assert good.read_text() == "x = [1, 2]\n"
    assert bad.read_text() == "def (:\n"
