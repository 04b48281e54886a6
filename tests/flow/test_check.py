"""The check of a pull request, judged from what two runs saw."""

from pathlib import Path

import pytest

from d3bot.flow.check import judge
from d3bot.flow.night import Night
from d3bot.history.check import load_check, write_check
from d3bot.spec import SpecError
from tests.findings.samples import BUILD, KEY, finding, run, verdict

HEAD = BUILD.model_copy(update={"commit": "c" * 40})
OTHER = KEY[:-8] + "00000000"


def night(name, kinds, findings=(), build=BUILD, **facts):
    seen = tuple(
        verdict(kind, f"c{i}", key=KEY if kind == "diverged" else OTHER if kind == "crashed" else "")
        for i, kind in enumerate(kinds)
    )
    made = run(name, **facts).model_copy(update={"builds": (build,)})
    return Night(made, seen, (), tuple(findings), Path(name))


REGRESSION = finding(regression="regression")
KNOWN = finding(regression="pre-existing")
UNVERIFIED = finding(verified=False, unverified_reason="exit 0")

# kinds on the base, kinds on the head, findings of the head, outcome, worse, pre-existing, unverified
TABLE = [
    (("pass", "pass"), ("pass", "pass"), (), "same", 0, 0, 0),
    (("pass", "pass"), ("pass", "diverged"), (REGRESSION,), "worse", 1, 0, 0),
    (("crashed", "pass"), ("pass", "diverged"), (REGRESSION,), "mixed", 1, 0, 0),
    (("crashed", "pass"), ("pass", "pass"), (), "better", 0, 0, 0),
    # What the base shows as well is listed and not counted.
    (("diverged", "pass"), ("diverged", "pass"), (KNOWN,), "same", 0, 1, 0),
    (("diverged", "pass"), ("diverged", "pass"), (), "same", 0, 1, 0),
    (("diverged", "pass"), ("diverged", "diverged"), (KNOWN,), "same", 0, 1, 0),
    # The base, asked again with the script, does not pass: no regression.
    (("pass", "pass"), ("pass", "diverged"), (KNOWN,), "same", 0, 1, 0),
    (("pass", "pass"), ("pass", "diverged"), (UNVERIFIED,), "same", 0, 0, 1),
    (("pass", "pass"), ("pass", "diverged"), (finding(),), "same", 0, 0, 1),
    (("pass", "pass"), ("pass", "flaky"), (), "same", 0, 0, 0),
    (("pass", "pass"), ("pass", "no-data"), (), "same", 0, 0, 0),
    # A failure of the head alone that nobody looked into is neither worse nor the same.
    (("pass", "pass"), ("pass", "diverged"), (), "no-data", 0, 0, 1),
    (("crashed", "pass"), ("pass", "diverged"), (), "no-data", 0, 0, 1),
    (("diverged", "pass"), ("crashed", "pass"), (), "no-data", 0, 0, 1),
    (("crashed", "pass"), ("crashed", "crashed"), (), "same", 0, 1, 0),  # the base shows it, in another trial
    (("pass", "pass"), ("crashed", "diverged"), (REGRESSION,), "worse", 1, 0, 1),
    # Nothing that was run says nothing is worse.
    (("not-applicable", "pass"), ("not-applicable", "no-data"), (), "no-data", 0, 0, 0),
    ((), (), (), "no-data", 0, 0, 0),
]


@pytest.mark.parametrize(("base", "head", "findings", "outcome", "worse", "known", "unsure"), TABLE)
def test_d7_every_pair_of_runs_has_its_outcome_and_mixed_is_one(base, head, findings, outcome, worse, known, unsure):
    check = judge(night("base", base), night("head", head, findings, HEAD))
    assert (check.outcome, len(check.worse), len(check.pre_existing)) == (outcome, worse, known)
    assert len(check.unverified) == unsure
    assert check.is_worse == (outcome in ("worse", "mixed"))


def test_d5_what_says_nothing_is_counted():
    check = judge(night("base", ("pass", "pass", "pass")), night("head", ("flaky", "no-data", "pass"), build=HEAD))
    assert (check.flaky, check.indeterminate, check.trials) == (1, 1, 3)


def test_d6_what_does_not_apply_is_counted_beside_what_passes():
    kinds = ("pass", "not-applicable", "not-applicable")
    check = judge(night("base", kinds), night("head", kinds, build=HEAD))
    assert (check.outcome, check.not_applicable) == ("same", 2)


def test_d2_builds_with_other_companions_give_no_verdict():
    other = HEAD.model_copy(update={"packages": {"numpy": "2.4"}})
    check = judge(night("base", ("pass",)), night("head", ("diverged",), (REGRESSION,), other))
    assert check.outcome == "no-data"
    assert check.reason == "the two builds do not have the same companions: numpy none and 2.4"


@pytest.mark.parametrize("side", ["base", "head"])
def test_no_data_is_an_outcome(side):
    nights = {name: night(name, ("pass",), complete=name != side) for name in ("base", "head")}
    assert judge(nights["base"], nights["head"]).reason == f"the run on the {side} is incomplete"


def test_runs_of_different_trials_give_no_verdict():
    assert judge(night("base", ("pass",)), night("head", ("pass", "pass"))).outcome == "no-data"


def test_d13_the_report_names_its_baseline(tmp_path):
    check = judge(night("base", ("pass",)), night("head", ("pass",), build=HEAD), "f" * 40)
    write_check(tmp_path, check)
    assert load_check(tmp_path) == check
    assert check.baseline == "f" * 40


@pytest.mark.parametrize("text", ["{}", '{"schema": 1, "outcome": "fine"}', '{"schema": 9}', "[" * 9999])
def test_a_check_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "check.json").write_text(text)
    with pytest.raises(SpecError):
        load_check(tmp_path)
