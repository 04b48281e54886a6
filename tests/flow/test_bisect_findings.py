"""A finding tells between which nights it came: by itself at the end of a run, and when a person asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from toy_index import FIRST, SUM, ToyIndex, serve

from d3bot.builds import Index, resolve
from d3bot.builds.candidates import spec_of
from d3bot.config import Config
from d3bot.flow.bisect import bisect_new, bisect_source
from d3bot.history.finding_folder import read_finding, write_finding
from d3bot.spec import Build, Case, Finding, Input, Layer, Setting, SpecError, Verdict

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


def test_a_person_asks_for_a_finding(place: Place) -> None:
    place.finding()
    source = place.run / "findings" / KEY
    result = bisect_source(source, "2026-10-10", "2026-10-13", None, None, place.config, place.said.append)
    assert result.status == "found"
    assert read_finding(source).finding.bisection == result
    with pytest.raises(SpecError, match="bisect needs an end"):
        bisect_source(source, None, None, None, None, place.config, place.said.append)


def test_an_index_that_is_down_stops_no_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3bot.builds.index.TRIES", 1)
    finding = place.finding()
    place.toy.down = True
    assert bisect_new([finding], [place.builds[10]], place.run, place.config, place.said.append) == [finding]
    assert place.said[0].startswith(f"{KEY}: not bisected: index-down: ")
    spec = spec_of(place.builds[13])
    assert spec == f"torch=={NIGHTS[13]}"
    assert resolve(spec, place.config.cache, index=place.config.index).id == place.builds[13].id, "for --base"
