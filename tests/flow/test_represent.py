"""Which failures of the previous run are tried again, and which others stand for."""

from d3bot.flow.represent import AGAIN, FailedBefore
from d3bot.generate import fresh_cases
from d3bot.spec import Setting, Trial
from tests.findings.samples import verdict

CASES = fresh_cases("torch", 1, 8)
KEY = "torch-ddp-diverged-grad-1234abcd"
CATCH_ALL = "torch-ddp-crashed-unclassified-1234abcd"


def trials(*origins):
    return [
        Trial(case=CASES[place], setting=Setting.parse("ddp(world=2)"), origin=origin)
        for place, origin in enumerate(origins)
    ]


def of(trial, kind, key):
    return verdict(kind, trial.case.id, key=key).model_copy(update={"trial": trial.id})


def failed(planned, key=KEY):
    return {trial.id: of(trial, "diverged", key) for trial in planned}


def passed(planned):
    return {trial.id: of(trial, "pass", "") for trial in planned}


def test_a_few_of_one_key_are_tried_again():
    planned = trials(*["previous"] * (AGAIN + 2))
    assert FailedBefore(failed(planned)).hold_back(planned) == (planned[:AGAIN], planned[AGAIN:])


def test_the_seeds_of_a_key_stand_for_it_and_are_never_held_back():
    planned = trials(*["seed"] * (AGAIN + 1), "previous", "fresh")
    run, held = FailedBefore(failed(planned)).hold_back(planned)
    assert [trial.origin for trial in held] == ["previous"]
    assert len(run) == AGAIN + 2


def test_every_key_has_its_own():
    planned = trials(*["previous"] * (AGAIN + 1), "previous")
    before = failed(planned[:-1]) | failed(planned[-1:], "torch-pp-crashed-error-99999999")
    assert FailedBefore(before).hold_back(planned)[1] == [planned[AGAIN]]


def test_nothing_stands_for_what_nothing_is_known_of_or_what_was_flaky():
    planned = trials(*["previous"] * (AGAIN + 1))
    for before in (failed(planned, CATCH_ALL), failed(planned, ""), {}):
        assert FailedBefore(before).hold_back(planned) == (planned, [])


def test_what_was_held_back_is_tried_when_one_that_stands_for_it_does_not_fail_as_before():
    planned = trials(*["previous"] * (AGAIN + 1))
    before = FailedBefore(failed(planned))
    run, held = before.hold_back(planned)
    assert before.released(held, failed(run)) == []
    assert before.released(held, failed(run) | passed(run[:1])) == held
    assert before.released(held, failed(run) | failed(run[:1], "torch-ddp-crashed-error-99999999")) == held
