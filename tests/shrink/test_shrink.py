"""A failing trial made smaller: always valid, always the same failure, never twice, never beyond the budget."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3bot.frameworks import canonical_setting, obstacle, standing_settings
from d3bot.frameworks.layers import infer_shapes
from d3bot.generate import fresh_cases
from d3bot.shrink import Ask, shrink, smaller
from d3bot.spec import Case, Framework, Setting

Fails = Callable[[Case, Setting], bool]


@st.composite
def trials(draw: st.DrawFn) -> tuple[Case, Setting]:
    """A generated case under a setting that applies to it."""
    framework: Framework = draw(st.sampled_from(["torch", "tensorflow"]))
    case = fresh_cases(framework, draw(st.integers(0, 10**6)), 1)[0]
    applicable = [setting for setting in standing_settings(framework) if obstacle(case, setting) is None]
    return (case, draw(st.sampled_from(applicable))) if applicable else draw(trials())


def always() -> bool:
    return True


def asked(fails: Fails) -> Ask:
    return lambda candidates: [fails(*each) for each in candidates]


def size(case: Case, setting: Setting) -> int:
    return len(case.canonical()) + len(str(setting))


@settings(deadline=None, max_examples=50)
@given(trials())
def test_candidates_are_valid_and_different(trial: tuple[Case, Setting]) -> None:
    case, setting = trial
    found = list(smaller(case, setting))
    assert found == list(smaller(case, setting)), "the same order for the same trial"
    for candidate, distribution in found:
        assert (candidate.id, str(distribution)) != (case.id, str(setting))
        assert Case.model_validate(candidate.model_dump(mode="json")) == candidate
        infer_shapes(candidate)
        assert canonical_setting(candidate.framework, distribution) == distribution
        assert obstacle(candidate, distribution) is None
        assert candidate.framework == case.framework
        assert len(candidate.layers) <= len(case.layers)
        assert candidate.steps <= case.steps
        assert candidate.batch < case.batch + 8, "rounded up at most"


def needs(op: str) -> Fails:
    return lambda case, setting: op in case.ops()


def test_fails_only_with_a_batch_norm() -> None:
    case = next(c for c in fresh_cases("torch", 3, 200) if "batch_norm" in c.ops() and len(c.layers) > 6)
    start = Setting.parse("ddp(world=2, static_graph=true)")
    small = shrink(case, start, asked(needs("batch_norm")), always)
    assert small.finished
    assert "batch_norm" in small.case.ops()
    assert len(small.case.layers) <= 2
    assert str(small.setting) == "ddp(world=2)"
    assert (small.case.steps, small.case.clip, small.case.freeze, small.case.tie) == (1, None, (), ())
    assert small.case.optimizer == Case.model_fields["optimizer"].default


PREDICATES: dict[str, Fails] = {
    "everything": lambda case, setting: True,
    "nothing": lambda case, setting: False,
    "a world of more than two": lambda case, setting: int(setting.get("world", 0) or 0) > 2,
    "an odd batch": lambda case, setting: case.batch % 2 == 1,
    "two steps and momentum": lambda case, setting: case.steps > 1 and case.optimizer.momentum > 0,
    "three layers": lambda case, setting: len(case.layers) >= 3,
    "any option": lambda case, setting: len(setting.options) > 1,
}


@settings(deadline=None, max_examples=50)
@given(
    trial=trials(),
    word=st.sampled_from(sorted(PREDICATES)),
    budget=st.integers(0, 30),
    width=st.sampled_from([1, 2, 3]),
)
def test_the_loop_keeps_its_promises(trial: tuple[Case, Setting], word: str, budget: int, width: int) -> None:
    case, setting = trial
    tried: list[tuple[str, str]] = []
    answers: dict[tuple[str, str], bool] = {(case.id, str(setting)): True}

    told: list[tuple[Case, Setting]] = [trial]

    def ask(candidates: Sequence[tuple[Case, Setting]]) -> list[bool]:
        assert 1 <= len(candidates) <= width
        for candidate, distribution in candidates:
            identity = (candidate.id, str(distribution))
            tried.append(identity)
            answers[identity] = PREDICATES[word](candidate, distribution)
        return [answers[each.id, str(under)] for each, under in candidates]

    small = shrink(case, setting, ask, lambda: len(tried) < budget, width, lambda *best: told.append(best))
    assert len(tried) < budget + width
    assert told[-1] == (small.case, small.setting), "whoever listens has the smallest at any time"
    assert len(tried) == len(set(tried)), "no candidate is tried twice"
    assert (case.id, str(setting)) not in tried
    assert answers[small.case.id, str(small.setting)], "what comes out failed when it was tried, or is where it began"
    assert small.tried == len(tried)
    if small.finished:
        for candidate, distribution in smaller(small.case, small.setting):
            assert not answers[candidate.id, str(distribution)], "nothing one step smaller fails"


@pytest.mark.parametrize(("framework", "setting"), [("torch", "ddp(world=2)"), ("tensorflow", "mirrored(replicas=2)")])
def test_what_always_fails_becomes_one_layer(framework: Framework, setting: str) -> None:
    under = canonical_setting(framework, Setting.parse(setting))
    for case in fresh_cases(framework, 11, 12):
        if obstacle(case, under) is None:
            small = shrink(case, under, asked(PREDICATES["everything"]), always)
            assert small.finished
            assert len(small.case.layers) <= 2
            assert small.case.steps == 1
            assert small.case.batch <= 2
            assert size(small.case, small.setting) < size(case, under)
