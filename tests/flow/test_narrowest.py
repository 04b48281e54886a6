"""The script that is filed: the narrowest that fails in the engine and as `python repro.py`."""

from pathlib import Path

import pytest

from d3bot.engine.script import ScriptRun
from d3bot.flow import finding as module
from d3bot.flow.finding import views, write_narrowest
from d3bot.flow.harness import Judged
from d3bot.flow.keying import symptom_key_of
from d3bot.judge import Difference, Judgement
from d3bot.spec import ErrorReport, First, Observation, RankObservation, Setting, Trial, Verdict, parse_name
from tests.findings.samples import BUILD, case

SETTING = Setting.parse("ddp(world=2)")
SHORT, WHOLE = "nothing is compared", "everything is observed"


def judged(judgement: Judgement) -> Judged:
    trial = Trial(case=case(steps=1), setting=SETTING)
    verdict = Verdict(
        trial=trial.id,
        framework="torch",
        build=BUILD.id,
        case=trial.case.id,
        setting=str(SETTING),
        kind=judgement.kind,
        reason=judgement.reason,
        key=symptom_key_of(trial.case, SETTING, judgement),
        first=judgement.first,
    )
    arrays = {"metric best": 0, "metric worst": 0, "step 0 loss 0": 0}
    seen = Observation((RankObservation(0, arrays=arrays),))  # type: ignore[arg-type]
    return Judged(trial, verdict, judgement, reference=seen)


CRASHED = judged(Judgement("crashed", "ValueError: no", report=ErrorReport("ValueError", "no", ("torch.a:f",))))
ITEM = Difference("metric worst", parse_name("metric worst"), 1.0, 0.0, 1.0, "value")
DIVERGED = judged(
    Judgement("diverged", "metric worst differs", First(step=None, role="metric", tensor="worst"), differences=(ITEM,))
)


def shown(path: Path) -> str:
    text = path.read_text()
    return SHORT if "np.savez" not in text else WHOLE if "predict" in text else "something is observed"


class Library:
    """Stands in for the harness of a build that fails by some scripts only."""

    build = BUILD

    def __init__(self, fails: set[str]):
        self.fails = fails

    def run(self, trial: Trial, fresh: bool = False, patient: bool = False, written: Path | None = None) -> Judged:
        assert written is not None, "what is run is the file that will be filed"
        return CRASHED if shown(written) in self.fails else judged(Judgement("pass", "equal"))


@pytest.mark.parametrize(
    ("engine", "script", "kept"),
    [
        ({SHORT, WHOLE}, {SHORT, WHOLE}, SHORT),
        ({WHOLE}, {SHORT, WHOLE}, WHOLE),
        ({SHORT, WHOLE}, {WHOLE}, WHOLE),
        (set(), set(), WHOLE),
    ],
)
def test_k1_a_script_is_kept_only_if_it_fails_in_the_engine_and_by_itself(
    engine: set[str], script: set[str], kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_script(build: object, path: Path, seconds: float) -> ScriptRun:
        return ScriptRun(1, "ValueError: no") if shown(path) in script else ScriptRun(0, "")

    monkeypatch.setattr(module, "run_script", run_script)
    run = write_narrowest(Library(engine), CRASHED, tmp_path / "repro.py")  # type: ignore[arg-type]
    assert shown(tmp_path / "repro.py") == kept
    assert (run.code == 1) == (kept in script)


def test_k2_what_ends_badly_looks_at_nothing_first_and_then_at_one_thing_at_a_time() -> None:
    tried = views(CRASHED)
    assert not tried[0].roles
    assert tried[1].updates
    assert [view.metric for view in tried if view.metric] == ["best", "worst"]
    assert len(tried[-1].roles) == 8


def test_of_numbers_only_what_differs_first_is_looked_at() -> None:
    assert [(sorted(view.roles), view.metric) for view in views(DIVERGED)[:2]] == [
        (["metric"], "worst"),
        (["metric"], ""),
    ]


def test_a_hang_is_waited_for_a_few_times_only() -> None:
    assert len(views(judged(Judgement("hung", "rank 0 did not end")))) == 3
