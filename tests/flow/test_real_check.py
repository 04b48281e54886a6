"""The check of a pull request on a real library: what the head alone breaks counts, what the base shows does not."""

from io import StringIO
from pathlib import Path

import pytest
from planted import HALVED_SHARDS, plant
from rich.console import Console

from d3bot.builds import default_cache
from d3bot.config import Config
from d3bot.flow.check import run_check
from d3bot.history.check import Check
from d3bot.history.finding_folder import list_findings
from d3bot.history.run_files import check_folder
from d3bot.spec import Build


@pytest.fixture(scope="module")
def faulty(torch_build: Build, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fork in which fully_shard reduces half of every gradient."""
    build = plant(torch_build, HALVED_SHARDS, tmp_path_factory.mktemp("fault"))
    return f"overlay:{build.overlay}+python:{build.python}"


def check(base: str, head: str, out: Path) -> Check:
    settings = ("fsdp2(world=2)", "ddp(world=2)")
    config = Config(seeds=None, fresh=1, settings=settings, cache=default_cache(), workers=2, seed=7, shrink_seconds=2)
    told = run_check(config, base, head, out, Console(file=StringIO()), "abc", [HALVED_SHARDS.file])
    check_folder(out)
    return told


def test_d8_what_the_head_alone_breaks_is_worse_and_its_code_came_first(torch_build, faulty, tmp_path):
    told = check(f"python:{torch_build.python}", faulty, tmp_path / "check")
    assert told.outcome == "worse", told.reason
    assert {row.setting for row in told.worse} == {"fsdp2(world=2)"}
    assert (told.touched, told.unverified, told.pre_existing) == (("fsdp2",), (), ())
    assert (tmp_path / "check/summary.md").read_text().count("The change touches the code of `fsdp2`") == 1


def test_d12_what_the_base_shows_as_well_is_listed_and_nobody_spends_time_on_it(faulty, tmp_path):
    told = check(faulty, faulty, tmp_path / "check")
    assert (told.outcome, told.worse, told.unverified) == ("same", (), ())
    assert {row.setting for row in told.pre_existing} == {"fsdp2(world=2)"}
    assert list_findings(tmp_path / "check/head") == []
