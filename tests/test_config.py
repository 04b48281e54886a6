"""One Config from file, environment and command line; whatever is wrong is said with its place and its mend."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.config import Config, Shard, TrackerConfig, load_config
from d3bot.spec import SpecError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_without_any_source() -> None:
    config = load_config(environ={})
    assert (config.seeds, config.fresh, config.confirmations) == (Path("seeds"), 24, 3)
    assert config.shard == Shard(index=1, count=1)


@pytest.mark.parametrize(
    ("in_file", "in_environ", "in_cli", "fresh"),
    [
        (1, None, None, 1),
        (1, "2", None, 2),
        (1, "2", 3, 3),
        (1, None, 3, 3),
        (1, "", None, 1),
        (None, "2", None, 2),
        (None, "2", 0, 0),
        (None, None, None, 24),
    ],
)
def test_the_command_line_wins_then_the_environment(
    folder: Path, in_file: int | None, in_environ: str | None, in_cli: int | None, fresh: int
) -> None:
    if in_file is not None:
        (folder / "d3bot.toml").write_text(f"fresh = {in_file}\n")
    environ = {} if in_environ is None else {"D3BOT_FRESH": in_environ}
    assert load_config(environ=environ, cli={"fresh": in_cli}).fresh == fresh


def test_every_key_of_a_file(folder: Path) -> None:
    path = folder / "night.toml"
    path.write_text(
        'builds = ["torch==2.13.0", "tensorflow-cpu==2.21.0"]\nbase = "torch==2.12.0"\nseeds = "my/seeds"\nfresh = 5\n'
        'minutes = 1.5\nsettings = ["ddp*", "fsdp2(world=2*"]\nshard = "2/4"\nout = "runs/x"\nprevious = "latest"\n'
        'cache = "~/cache"\nworkers = 2\nseed = 7\nconfirmations = 4\ntracker = "issues"\n'
    )
    assert load_config(path, environ={}) == Config(
        builds=("torch==2.13.0", "tensorflow-cpu==2.21.0"),
        base="torch==2.12.0",
        seeds=Path("my/seeds"),
        fresh=5,
        minutes=1.5,
        settings=("ddp*", "fsdp2(world=2*"),
        shard=Shard(index=2, count=4),
        out=Path("runs/x"),
        previous="latest",
        cache=Path.home() / "cache",
        workers=2,
        seed=7,
        confirmations=4,
        tracker=TrackerConfig(folder=Path("issues")),
    )


@pytest.mark.parametrize(
    "text", ["ddp(world=2, a=1); fsdp2*", "ddp(world=2, a=1)\n fsdp2*\n", ";ddp(world=2, a=1);;fsdp2*"]
)
def test_a_list_in_a_variable(text: str) -> None:
    assert load_config(environ={"D3BOT_SETTINGS": text}).settings == ("ddp(world=2, a=1)", "fsdp2*")


def test_seeds_none_is_written_as_a_word() -> None:
    assert load_config(environ={"D3BOT_SEEDS": "none"}).seeds is None
    with pytest.raises(SpecError, match="leave nothing to run"):
        load_config(environ={"D3BOT_SEEDS": "none"}, cli={"fresh": 0})
    assert load_config(environ={"D3BOT_SEEDS": "none"}, cli={"fresh": 0, "minutes": 1}).minutes == 1


@pytest.mark.parametrize(
    ("cli", "words"),
    [
        ({"shard": "5/4"}, "--shard: there is no shard 5/4: the last of 4 is 4/4"),
        ({"shard": "0/4"}, "--shard: Input should be greater than or equal to 1"),
        ({"shard": "1/0"}, "--shard: Input should be greater than or equal to 1"),
        ({"shard": "1 of 4"}, "--shard: a shard is written I/N, such as 1/4, not '1 of 4'"),
        ({"fresh": -1}, "--fresh: Input should be greater than or equal to 0"),
        ({"fresh": True}, "--fresh: a number, not true"),
        ({"minutes": 0}, "--minutes: Input should be greater than 0"),
        ({"workers": 0}, "--workers: Input should be greater than or equal to 1"),
        ({"confirmations": 0}, "--confirmations: Input should be greater than or equal to 1"),
        ({"builds": ["torch"]}, "--builds: build 'torch': not NAME==VERSION"),
        ({"builds": ["torch==2.13.0", "torch==2.13.0"]}, "--builds: one build is given twice"),
        ({"base": "torch@yesterday"}, "--base: build 'torch@yesterday': not NAME==VERSION"),
        ({"builds": ["previous"]}, "--builds: build 'previous': not NAME==VERSION"),
        ({"bisect_minutes": -1}, "--bisect_minutes: Input should be greater than or equal to 0"),
        ({"minute": 5}, "--minute: there is no such setting; did you mean minutes?"),
        ({"zzz": 5}, "--zzz: there is no such setting; known are builds, base, seeds"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(cli: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_config(environ={}, cli=cli)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('shard = "5/4"', "d3bot.toml: shard: there is no shard 5/4"),
        ("frsh = 3", "d3bot.toml: frsh: there is no such setting; did you mean fresh?"),
        ("fresh = ", "d3bot.toml: not valid TOML"),
        ('[index]\nurl = "pypi"', "d3bot.toml: index.url: String should match pattern"),
        ('[index]\npip_config = "mine"', "d3bot.toml: index.pip_config: Input should be 'isolated' or 'machine'"),
        ('[index]\nurl = "https://me@example.org/simple"', "d3bot.toml: index.url: an index address must not hold"),
        ("[run]\nfresh = 3", "d3bot.toml: run: there is no such setting"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(folder: Path, text: str, words: str) -> None:
    (folder / "d3bot.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_config(environ={})
    assert str(caught.value).startswith(words)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(SpecError, match=r"^D3BOT_WORKERS: "):
        load_config(environ={"D3BOT_WORKERS": "many"})
    with pytest.raises(SpecError, match=r"^D3BOT_WORKER: there is no such setting; did you mean workers"):
        load_config(environ={"D3BOT_WORKER": "2"})
    load_config(environ={"D3BOT_TEST_TORCH": "/e/bin/python", "PATH": "/bin"})


def test_the_index_comes_from_the_file_and_single_variables_win(folder: Path) -> None:
    (folder / "d3bot.toml").write_text('[index]\nurl = "https://example.org/simple/"\nplatform = "cu130"\n')
    index = load_config(environ={"D3BOT_INDEX_PLATFORM": "cpu", "D3BOT_INDEX_PIP_CONFIG": "machine"}).index
    assert (index.url, index.platform, index.pip_config) == ("https://example.org/simple/", "cpu", "machine")
    with pytest.raises(SpecError, match=r"^D3BOT_INDEX_PLATFORM: String should match"):
        load_config(environ={"D3BOT_INDEX_PLATFORM": "cu 130"})


def test_the_base_may_be_the_build_of_the_previous_run() -> None:
    assert load_config(environ={"D3BOT_BASE": "previous"}).base == "previous"


def test_a_file_that_is_named_must_exist(folder: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_config(folder / "night.toml", environ={})


@given(count=st.integers(1, 256), data=st.data())
def test_a_shard_reads_back_from_its_own_text(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(1, count))
    shard = Shard(index=index, count=count)
    assert Shard.model_validate(str(shard)) == shard
