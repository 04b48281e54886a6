"""What the speed report says of its rows."""

from d3bot.bench.speed import SpeedReport, SpeedRow, table_rows

FAST = SpeedRow("torch 2", "ddp", "custom", trials=30, engine=0.1, scripts=2, script=4.0, floor=0.02)
SLOW = SpeedRow("torch 2", "fsdp2", "custom", trials=10, engine=0.3, scripts=2, script=6.0, floor=0.0)
OTHER = SpeedRow("tensorflow 2", "mirrored", "fit", trials=5, engine=2.0, scripts=1, script=6.0, floor=0.5)


def test_the_whole_is_weighted_by_trials() -> None:
    report = SpeedReport((FAST, SLOW, OTHER))
    whole = report.whole("torch 2")
    assert whole == {
        "build": "torch 2",
        "trials": 40,
        "trials_per_second": round(40 / 6, 2),
        "scripts_per_second": round(40 / 180, 3),
        "ratio": 30.0,
    }
    assert [row["build"] for row in report.as_json()["builds"]] == ["torch 2", "tensorflow 2"]


def test_a_row() -> None:
    data = FAST.as_json()
    assert (data["ratio"], data["engine_over_floor"]) == (40.0, 5.0)
    assert SLOW.over_floor == float("inf")
    assert [row[4] for row in table_rows(SpeedReport((FAST, OTHER)))] == ["40 x", "3 x"]
