"""D3's rule and D3's trials, as they stand beside ours."""

import numpy as np
import pytest

from d3bot.bench.d3 import Side, Sight, _side, d3_recipe, d3_trials
from d3bot.bench.d3_rule import differs, predictions_differ
from d3bot.flow.harness import Judged
from d3bot.frameworks import obstacle
from d3bot.generate import fresh_cases
from d3bot.judge import Judgement
from d3bot.spec import FRAMEWORKS, Arrays, Framework, Observation, RankObservation, Setting, Trial, Verdict

LOGITS = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"predict": LOGITS}, False),
        ({"predict": LOGITS + 7}, False),
        ({"predict": LOGITS * (1 + 1e-5)}, False),
        ({"predict": LOGITS * 1.01}, True),
        ({"predict": LOGITS[:1]}, True),
        ({"predict": np.full((2, 3), np.nan)}, True),
        ({}, False),
        ({"predict": LOGITS, "param w": np.ones(3) * 9}, False),
    ],
    ids=["equal", "shifted", "1e-5 off", "1 % off", "shape", "NaN", "missing", "parameters are not looked at"],
)
def test_rule(held: Arrays, expected: bool) -> None:
    assert predictions_differ({"predict": LOGITS, "param w": np.ones(3)}, [{"predict": LOGITS}, held]) is expected


@pytest.mark.parametrize(
    "array", [np.array(1.0), np.ones((0, 3)), np.array([[5.0], [1.0]])], ids=["scalar", "empty", "one class"]
)
def test_predictions_that_the_rule_cannot_judge_are_equal(array: np.ndarray) -> None:
    assert not predictions_differ({"predict": array}, [{"predict": array * 2}])


def test_a_run_that_fails_has_no_verdict() -> None:
    case = fresh_cases("torch", 0, 1)[0]
    trial = Trial(case=case, setting=Setting.parse("ddp(world=2)"))
    verdict = Verdict(
        trial=trial.id, framework="torch", build="b", case=case.id, setting="ddp(world=2)", kind="crashed", reason="x"
    )
    good = Observation((RankObservation(0, arrays={"predict": LOGITS}),))
    wrong = Observation((RankObservation(0, arrays={"predict": LOGITS * 2}),))
    dead = Observation((RankObservation(-9),))
    judged = Judged(trial, verdict, Judgement("crashed", "x"))
    assert not differs(judged)
    assert [
        differs(Judged(trial, verdict, judged.judgement, None, one, many))
        for one, many in ((good, wrong), (good, dead), (dead, wrong), (good, Observation(())))
    ] == [True, False, False, False]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_trials_are_of_four_quarters(framework: Framework) -> None:
    trials = d3_trials(framework, 3, 2)
    quarters = {("embedding" in trial.case.ops(), bool(trial.case.freeze)) for trial in trials}
    assert quarters == {(tables, frozen) for tables in (True, False) for frozen in (True, False)}
    for trial in trials:
        case = trial.case
        assert (case.steps, case.dtype, case.optimizer.lr, case.clip, case.loop) == (1, "float32", 10.0, None, "custom")
        assert obstacle(case, trial.setting) is None
    assert trials == d3_trials(framework, 3, 2)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fresh_model_can_be_trained_so(framework: Framework) -> None:
    for case in fresh_cases(framework, 1, 30):
        assert d3_recipe(case).layers == case.layers


def test_what_a_stock_build_shows_is_no_detection() -> None:
    seen = {"a": Sight(True, True, True), "b": Sight(True, False, True), "c": Sight(False, False, False)}
    healthy = {"a": Sight(True, False, True), "b": Sight(False, False, True)}
    assert _side(seen) == Side(2, 2, 1)
    assert _side(seen, healthy) == Side(2, 1, 1)
