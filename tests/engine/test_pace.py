"""Deadlines follow what trials of the same kind took, between a floor and a ceiling."""

import pytest

from d3bot.engine.pace import Pace


@pytest.mark.parametrize(
    ("framework", "seen", "deadline"),
    [
        ("torch", [], 30),
        ("tensorflow", [], 60),
        ("torch", [0.1, 0.2], 30),
        ("torch", [2, 3, 100], 60),
        ("torch", [50], 180),
        ("torch", [100] * 50 + [2] * 50, 40),
    ],
)
def test_deadline(framework: str, seen: list[float], deadline: float) -> None:
    pace = Pace()
    for seconds in seen:
        pace.add(framework, "ddp", seconds)
    assert pace.deadline(framework, "ddp") == deadline
    assert pace.patient(framework, "ddp") == 4 * deadline, "before a hang is believed"
    assert pace.deadline("torch", "fsdp2") == 30, "other kinds are not touched"
