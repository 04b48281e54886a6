"""A folder of seeds: what lies where nobody looks is said, not passed over."""

import re
from pathlib import Path

import pytest

from d3bot.flow.seeds import load_seeds
from d3bot.spec import SpecError

SEED = (Path(__file__).parents[2] / "seeds" / "torch" / "tied-linear-pair.toml").read_text()


def test_a_seed_outside_the_folders_of_the_frameworks_is_refused(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "mine.toml").write_text(SEED)
    with pytest.raises(SpecError, match=r"mine\.toml: nobody looks here; move it to"):
        load_seeds(tmp_path, "torch")


def test_a_folder_that_is_no_folder_of_seeds_is_refused(tmp_path):
    with pytest.raises(SpecError, match="has neither torch/ nor tensorflow/"):
        load_seeds(tmp_path, "torch")


def test_seeds_of_one_framework_alone_are_fine_for_a_run_of_both(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "mine.toml").write_text(SEED)
    assert [seed.name for seed in load_seeds(tmp_path, "torch")] == ["mine"]
    assert load_seeds(tmp_path, "tensorflow") == []


def test_a_seed_of_another_framework_is_sent_where_it_belongs(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "mine.toml").write_text(SEED)
    with pytest.raises(SpecError, match=re.escape(f"move it to {tmp_path / 'torch'}")):
        load_seeds(tmp_path, "tensorflow")
