"""A seed file reads back as it was written; a bad one is refused on one line that names the file."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d3bot.spec import Case, Seed, Setting, SpecError, dump_seed, load_seed

CASE: dict[str, Any] = {
    "framework": "torch",
    "inputs": [{"name": "x", "shape": [6]}],
    "layers": [
        {"name": "fc1", "op": "linear", "inputs": ["x"], "options": {"units": 8, "bias": False}},
        {"name": "fc2", "op": "linear", "inputs": ["fc1"], "options": {"units": 8}},
    ],
}
TEXT = """comment = "from an issue"
framework = "torch"
inputs = [{ name = "x", shape = [6] }]
layers = [{ name = "fc1", op = "linear", inputs = ["x"], options = { units = 8 } }]
"""
COMMENTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
SETTINGS = st.sampled_from(["ddp(world=2)", "fsdp2(world=2, shard_dim=1)", "pp(world=2, schedule=1f1b, loose=true)"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    comment=COMMENTS,
    under=st.lists(SETTINGS, unique=True),
    lr=st.floats(1e-300, 10),
    clip=st.none() | st.floats(1e-300, 1e6).map(lambda limit: {"limit": limit}),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "batch": st.integers(1, 4096),
            "seed": st.integers(0, 2**31 - 1),
            "dtype": st.sampled_from(["float32", "float64"]),
            "freeze": st.just([{"layer": "fc1"}]),
            "tie": st.just([{"layer": "fc2", "to": "fc1"}]),
        },
    ),
)
def test_round_trip(
    tmp_path: Path, comment: str, under: list[str], lr: float, clip: dict[str, float] | None, fields: dict[str, Any]
) -> None:
    case = Case.model_validate(CASE | fields | {"optimizer": {"lr": lr}, "clip": clip})
    seed = Seed("a-seed", case, comment, tuple(map(Setting.parse, under)))
    path = tmp_path / "a-seed.toml"
    path.write_text(dump_seed(seed), newline="")
    again = load_seed(path)
    assert again == seed
    assert again.case.id == case.id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("comment", "# comment"), 'add a line comment = "..."'),
        (TEXT.replace("from an issue", "  "), 'add a line comment = "..."'),
        ('settings = "ddp(world=2)"\n' + TEXT, "settings must be a list of texts"),
        ("settings = [2]\n" + TEXT, "settings must be a list of texts"),
        ('settings = ["ddp(world"]\n' + TEXT, "setting 'ddp(world'"),
        (TEXT + "batch = 0\n", "batch: Input should be greater"),
        (TEXT + "bath = 8\n", "bath: Extra inputs are not permitted"),
        (TEXT + '"\\n\\u001b[2J" = 8\n', "Extra inputs are not permitted"),
        (TEXT + "batch = 2026-11-30\n", "batch: Input should be a valid integer"),
        (TEXT + "batch =\n", "not valid TOML"),
        (TEXT + 'framework = "torch"\n', "not valid TOML"),
        (TEXT + "batch = " + "9" * 5000 + "\n", "not valid TOML"),
        (TEXT + "batch = " + "[" * 100_000 + "\n", "not valid TOML"),
        (TEXT + "# é", "not valid TOML"),
        (TEXT + "#" * 300_000, "larger than 256 KiB"),
    ],
)
def test_refused_on_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        load_seed(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert words in message
    assert message.isprintable()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot be read \(No such file or directory\); check the path"):
        load_seed(tmp_path / "none.toml")
