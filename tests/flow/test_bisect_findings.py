"""A finding tells between which nights it came: by itself at the end of a run, and when a person asks."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from toy_index import FIRST, SUM, ToyIndex, serve
from typer.main import get_command

from d3bot.builds import Index, resolve
from d3bot.builds.candidates import spec_of
from d3bot.cli import app
from d3bot.config import Config
from d3bot.flow.bisect import bisect_new, bisect_source
from d3bot.flow.newest import recheck
from d3bot.history.finding_folder import read_finding, write_finding
from d3bot.history.folder import RunWriter
from d3bot.spec import Bisection, Build, Case, Finding, Input, Layer, Run, Setting, SpecError, Verdict
from d3bot.tracker import FolderTracker, file_run

KEY = "torch-ddp-diverged-00c0ffee"
SCRIPT = """import sys

import torch

got = torch.all_reduce([1.0, 2.0, 3.0])
wrong = got != [6.0] * 3
print(got, "<-- WRONG" if wrong else "")
sys.exit(wrong)
"""
CASE = Case(
    framework="torch",
    inputs=(Input(name="x", shape=(3,)),),
    layers=(Layer(name="fc", op="linear", inputs=("x",), options={"units": 2}),),
)
SETTING = Setting.parse("ddp(world=2)")
NIGHTS = {day: f"9.9.0.dev202610{day}" for day in (10, 11, 12, 13)}


@dataclass
class Place:
    config: Config
    run: Path
    builds: dict[int, Build]
    said: list[str]
    toy: ToyIndex

    def finding(self, regression: str = "regression", verified: bool = True) -> Finding:
        """Write a finding of the newest night; return it."""
        finding = Finding(
            key=KEY,
            title="ddp: wrong",
            verdict=verdict(self.builds[13], "diverged", KEY),
            build=self.builds[13],
            case=CASE,
            setting=SETTING,
            verified=verified,
            regression=regression,
        )
        write_finding(self.run, finding, SCRIPT, "[3.0] <-- WRONG", None, "# issue")
        return finding


def verdict(build: Build, kind: str, key: str = "") -> Verdict:
    return Verdict(
        trial="t0", framework="torch", build=build.id, case="c0", setting=str(SETTING), kind=kind, reason=kind, key=key
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Four nights of the toy, the last two broken, the outer two installed; trials run the toy itself."""
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")

    def tries(build: Build) -> Sequence[Verdict]:
        (module,) = Path(build.python).parent.parent.glob("lib/*/*/torch/__init__.py")
        bad = FIRST in module.read_text()
        return [verdict(build, "diverged", KEY) if bad else verdict(build, "pass")] * 3

    monkeypatch.setattr("d3bot.flow.bisect.tries", lambda trial, times: tries)
    folder = tmp_path / "index"
    folder.mkdir()
    with serve(folder) as toy:
        toy.add("numpy", "2.4.6")
        for day, version in NIGHTS.items():
            toy.add_torch(version, FIRST if day >= 12 else SUM, f"v1.0-{day}-g{day:07x}")
        index = Index(url=toy.url, torch=toy.url, torch_nightly=toy.url)
        config = Config(cache=tmp_path / "cache", index=index)
        builds = {day: resolve(f"torch=={NIGHTS[day]}", config.cache, index=index) for day in (10, 13)}
        yield Place(config, tmp_path / "run", builds, [], toy)


def test_a_run_bisects_its_regressions_before_they_are_filed(place: Place) -> None:
    """D10: seen again, tried on the base, bisected, and only then filed."""
    finding = place.finding()
    (told,) = bisect_new([finding], [place.builds[10]], place.run, place.config, place.said.append)
    result = told.bisection
    assert result is not None
    assert (result.good and result.good.version, result.bad and result.bad.version) == (NIGHTS[11], NIGHTS[12])
    assert result.agrees is True
    assert result.compare.endswith("/compare/000000b...000000c")
    folder = read_finding(place.run / "findings" / KEY)
    assert folder.finding == told
    assert f"Last good torch {NIGHTS[11]}, first bad {NIGHTS[12]}." in folder.issue_md
    assert f"python repro.py on {NIGHTS[12]}: exit 1" in folder.issue_md
    assert folder.script == SCRIPT
    assert place.said[-1] == f"{KEY}: Last good torch {NIGHTS[11]}, first bad {NIGHTS[12]}."
    kept = {
        path.parent.name[: len("torch-") + len(NIGHTS[10])] for path in place.config.cache.glob("envs/*/ready.json")
    }
    assert {f"torch-{NIGHTS[10]}", f"torch-{NIGHTS[13]}"} <= kept, "what the run itself uses is never thrown away"


def test_what_is_not_new_not_proved_or_has_nothing_between_is_not_bisected(place: Place) -> None:
    old, new = place.builds[10], place.builds[13]
    cases: list[tuple[str, bool, float, list[Build]]] = [
        ("pre-existing", True, 20.0, [old]),
        ("regression", False, 20.0, [old]),
        ("regression", True, 0.0, [old]),
        ("regression", True, 20.0, [new]),
        ("regression", True, 20.0, []),
    ]
    for regression, verified, minutes, before in cases:
        finding = place.finding(regression, verified)
        config = place.config.model_copy(update={"bisect_minutes": minutes})
        assert bisect_new([finding], before, place.run, config, place.said.append) == [finding]
    assert place.said == []


def test_a_key_of_the_night_before_keeps_what_was_found_when_it_came(place: Place) -> None:
    found = Bisection(subject="torch", direction="broke", status="found", key=KEY)
    earlier = place.finding().model_copy(update={"bisection": found})
    (told,) = bisect_new(
        [place.finding()], [place.builds[10]], place.run, place.config, place.said.append, {KEY: earlier}
    )
    assert told.bisection == found
    assert read_finding(place.run / "findings" / KEY).finding == told
    assert place.said == [], "nothing is bisected again"


def test_a_bisection_that_was_asked_for_is_told_to_the_open_issue(place: Place, tmp_path: Path) -> None:
    place.finding()
    out, tracker = tmp_path / "told", FolderTracker(tmp_path / "tracker")
    RunWriter.create(place.run, header(place, "r1")).finish(header(place, "r1"))
    now = datetime(2026, 10, 14, tzinfo=UTC)
    assert [each.action for each in file_run(place.run, tracker, now)] == ["file"]
    found = bisect_source(
        place.run / "findings" / KEY, "2026-10-10", "2026-10-13", None, None, place.config, place.said.append, out
    )
    (decision,) = file_run(out, tracker, now + timedelta(hours=1))
    assert decision.action == "update"
    record = tracker.records()[KEY]
    assert record.bisected.startswith(f"Last good torch {NIGHTS[11]}, first bad {NIGHTS[12]}. https://github.com/")
    assert len(record.seen_runs) == 1, "no sighting"
    assert record.bisected.endswith(found.compare)
    (again,) = file_run(out, tracker, now + timedelta(hours=2))
    assert again.action == "skip"


def header(place: Place, name: str) -> Run:
    started = "2026-10-13T02:00:00+00:00"
    return Run(run=name, started=started, builds=(place.builds[13],), seed=0, complete=True, previous="r0")


def test_c5_what_passes_on_a_newer_night_is_mended_and_not_filed(place: Place, tmp_path: Path) -> None:
    asked = place.builds[13].model_copy(update={"spec": "torch@nightly"})
    finding = place.finding()
    assert recheck([finding], [asked], place.run, place.config, place.said.append) == [finding], "it is the newest"
    place.toy.add_torch("9.9.0.dev20261014", SUM, "v1.0-14-g000000e")
    (told,) = recheck([finding], [asked], place.run, place.config, place.said.append)
    assert told.mended_on.startswith("torch 9.9.0.dev20261014")
    assert (told.attempts[-1].failed, told.attempts[-1].outcome) == (False, "exit 0")
    assert read_finding(place.run / "findings" / KEY).finding == told
    RunWriter.create(place.run, header(place, "r1")).finish(header(place, "r1"))
    (decision,) = file_run(place.run, FolderTracker(tmp_path / "tracker"), datetime(2026, 10, 14, tzinfo=UTC))
    assert (decision.action, "a newer build" in decision.reason) == ("delay", True)


def test_a_newer_night_that_fails_too_is_one_build_more_in_the_issue(place: Place) -> None:
    asked = place.builds[13].model_copy(update={"spec": "torch@nightly"})
    place.toy.add_torch("9.9.0.dev20261014", FIRST, "v1.0-14-g000000e")
    (told,) = recheck([place.finding()], [asked], place.run, place.config, place.said.append)
    assert told.mended_on == ""
    assert told.attempts[-1].failed
    assert "9.9.0.dev20261014" in read_finding(place.run / "findings" / KEY).issue_md


def test_a_build_that_was_named_exactly_is_not_asked_about(place: Place) -> None:
    place.toy.add_torch("9.9.0.dev20261014", SUM, "v1.0-14-g000000e")
    finding = place.finding()
    assert recheck([finding], [place.builds[13]], place.run, place.config, place.said.append) == [finding]


def test_a_person_asks_for_a_finding(place: Place) -> None:
    place.finding()
    source = place.run / "findings" / KEY
    result = bisect_source(source, "2026-10-10", "2026-10-13", None, None, place.config, place.said.append)
    assert result.status == "found"
    assert read_finding(source).finding.bisection == result
    with pytest.raises(SpecError, match="bisect needs an end"):
        bisect_source(source, None, None, None, None, place.config, place.said.append)


def test_a_person_asks_at_the_terminal(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.finding()
    for name in ("URL", "TORCH", "TORCH_NIGHTLY"):
        monkeypatch.setenv(f"D3BOT_INDEX_{name}", place.toy.url)
    monkeypatch.setenv("D3BOT_INDEX_PIP_CONFIG", "isolated")  # the machine's own may say what a torch must be
    monkeypatch.setenv("D3BOT_CACHE", str(place.config.cache))
    asked = ["bisect", str(place.run / "findings" / KEY), "--good", "2026-10-10", "--bad", "2026-10-13"]
    assert get_command(app).main(asked, standalone_mode=False) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Last good torch 9.9.0.dev20261011, first bad 9.9.0.dev20261012.")
    assert told.err, "progress does not stand in the result"
    assert get_command(app).main([*asked, "--json", "--quiet"], standalone_mode=False) == 0
    told = capsys.readouterr()
    assert (json.loads(told.out)["status"], told.err) == ("found", "")


def test_an_index_that_is_down_stops_no_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3bot.builds.index.TRIES", 1)
    finding = place.finding()
    place.toy.down = True
    assert bisect_new([finding], [place.builds[10]], place.run, place.config, place.said.append) == [finding]
    assert place.said[0].startswith(f"{KEY}: not bisected: index-down: ")
    spec = spec_of(place.builds[13])
    assert spec == f"torch=={NIGHTS[13]}"
    assert resolve(spec, place.config.cache, index=place.config.index).id == place.builds[13].id, "for --base"
