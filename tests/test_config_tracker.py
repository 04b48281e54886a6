"""The table [tracker]: read from the file, the environment and the command line, each unknown key named."""

from datetime import timedelta
from pathlib import Path

import pytest

from d3bot.config import load_config
from d3bot.spec import SpecError


@pytest.fixture
def file(tmp_path):
    def written(text):
        path = tmp_path / "d3bot.toml"
        path.write_text(text)
        return path

    return written


def test_a_table_is_read_and_the_environment_goes_before_it(file):
    text = '[tracker]\nrepo = "a/b"\nallow = ["a/b"]\nper_run = 3\n'
    text += '[tracker.labels]\nkind = ""\n[tracker.owners]\n"torch/*" = ["x"]\n'
    environ = {"D3BOT_TRACKER_PER_RUN": "7", "D3BOT_TRACKER_ALLOW": "c/d; e/f"}
    tracker = load_config(file(text), environ).tracker
    assert (tracker.repo, tracker.per_run, tracker.allow) == ("a/b", 7, ("c/d", "e/f"))
    assert (tracker.labels.kind, tracker.labels.family) == ("", "setting: {}")
    assert tracker.owners == {"torch/*": ("x",)}


@pytest.mark.parametrize("environ", [{}, {"D3BOT_TRACKER_REPO": "a/b"}])
def test_a_path_is_short_for_the_folder(file, environ):
    assert load_config(file('tracker = "issues"'), environ).tracker.folder == Path("issues")


def test_the_command_line_goes_before_the_file(file):
    text = '[tracker]\nfolder = "a"\nper_run = 2\n'
    tracker = load_config(file(text), {"D3BOT_TRACKER": "b"}, {"tracker": Path("c")}).tracker
    assert (tracker.folder, tracker.per_run) == (Path("c"), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tracker]\nrepos = 'a/b'", "tracker.repos: there is no such setting; did you mean repo?"),
        ("[tracker.labels]\nkinds = ''", "did you mean kind?"),
        ("[tracker]\nper_run = 'many'", "tracker.per_run"),
        ("[tracker]\nper_run = -1", "tracker.per_run"),
        ("[tracker]\nremind_days = 3", "at most every 14 days"),
        ("[tracker.labels]\nkind = 'kind: {0}'", "holds {} once"),
        ("[tracker]\nlabel = '@x'", "tracker.label"),
        ("[tracker]\nrequests = 5000", "tracker.requests"),
        ("tracker = 5", "tracker"),
    ],
)
def test_what_is_wrong_is_named(file, text, words):
    with pytest.raises(SpecError) as caught:
        load_config(file(text), {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_variable_is_named():
    with pytest.raises(SpecError, match="did you mean repo"):
        load_config(None, {"D3BOT_TRACKER_REPOO": "a/b"})


def test_the_limits_are_on_without_any_configuration():
    policy = load_config(None, {}).tracker.policy()
    assert (policy.per_run, policy.per_day, policy.panic, policy.passes) == (5, 20, 25, 3)
    assert (policy.quiet, policy.remind, policy.respite) == (timedelta(hours=48), timedelta(days=14), timedelta(days=7))
    assert load_config(None, {"D3BOT_TRACKER_REMIND_DAYS": "0"}).tracker.policy().remind is None


def test_the_documentation_shows_every_key_with_its_default(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "github.md").read_text()
    block = text.split("```toml\n")[1].split("```")[0]
    shown = load_config(_written(tmp_path, block), {}).tracker
    default = load_config(None, {}).tracker
    examples = {"repo", "allow", "owners"}
    for name in type(default).model_fields:
        assert name == "folder" or f"{name}" in block
        if name not in examples:
            assert getattr(shown, name) == getattr(default, name), name


def _written(folder, text):
    path = folder / "shown.toml"
    path.write_text(text)
    return path
