"""What trials are expected to take, from what they took before."""

import pytest

from d3bot.frameworks import cost
from d3bot.generate.costs import NO_COSTS, expected, learned
from d3bot.spec import Setting
from tests.findings.samples import verdict

DDP2, DDP4, TP2 = (Setting.parse(text) for text in ("ddp(world=2)", "ddp(world=4)", "tp(world=2)"))


def took(seconds, kind="pass", setting=DDP2, world=2):
    return verdict(kind, "any", str(setting)).model_copy(update={"seconds": seconds, "world": world})


def test_the_median_of_a_familys_passes_is_learned_by_number_of_ranks():
    seen = [took(0.2), took(0.3), took(9.0), took(0.7123, setting=DDP4, world=4)]
    assert learned("r1", seen).seconds == {"torch": {"ddp 2": 0.3, "ddp 4": 0.71}}
    assert learned("r1", seen).run == "r1"


@pytest.mark.parametrize("kind", ["hung", "diverged", "refused", "not-applicable", "no-data", "flaky"])
def test_what_did_not_simply_pass_says_nothing(kind):
    assert learned("r1", [took(50.0, kind)]).seconds == {}


def test_without_an_earlier_run_a_trial_costs_what_its_family_says():
    costs = [expected(NO_COSTS, "torch", setting) for setting in (DDP2, DDP4, TP2)]
    assert costs == [0.5 + cost("torch", setting) for setting in (DDP2, DDP4, TP2)]


def test_what_was_seen_is_expected_again():
    assert expected(learned("r1", [took(0.25)]), "torch", DDP2) == 0.25


def test_what_was_not_seen_is_scaled_from_its_family_and_else_from_all():
    said = {setting: 0.5 + cost("torch", setting) for setting in (DDP2, DDP4, TP2)}
    seen = learned("r1", [took(0.25)])
    assert expected(seen, "torch", DDP4) == pytest.approx(0.25 * said[DDP4] / said[DDP2])
    assert expected(seen, "torch", TP2) == pytest.approx(0.25 * said[TP2] / said[DDP2])


def test_a_family_that_there_is_no_more_is_passed_over():
    gone = learned("r1", [took(0.25), took(5.0, setting=Setting.parse("gone(world=2)"))])
    assert expected(gone, "torch", TP2) == expected(learned("r1", [took(0.25)]), "torch", TP2)
