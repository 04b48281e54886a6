"""Which failures of a run are one cause: looked into with a library that fails by rules of our own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from d3bot.findings.group import group_failing
from d3bot.flow import look as module
from d3bot.flow.finding import Context
from d3bot.flow.harness import Judged
from d3bot.flow.keying import names_of, symptom_key_of
from d3bot.flow.look import Looked, look_into, spread
from d3bot.judge import Difference, Judgement
from d3bot.spec import Case, Finding, First, Setting, Trial, Verdict, parse_name
from tests.findings.samples import BUILD

Fails = Callable[[Case, Setting], str]
"""The role in which a trial differs from one process; empty if it passes."""


def trial(setting: str, **facts: object) -> Trial:
    chain = [
        {"name": f"fc{i}", "op": "linear", "inputs": [f"fc{i - 1}" if i else "x"], "options": {"units": 8}}
        for i in range(4)
    ]
    case = {"framework": "torch", "inputs": [{"name": "x", "shape": [6]}], "layers": chain, "steps": 2} | facts
    return Trial(case=Case.model_validate(case), setting=Setting.parse(setting))


class Library:
    """Stands in for the harness of a build."""

    build = BUILD

    def __init__(self, fails: Fails):
        self.fails = fails

    def run(self, trial: Trial, fresh: bool = False, patient: bool = False) -> Judged:
        role = self.fails(trial.case, trial.setting)
        name = f"step 0 {role} fc" if role in ("grad", "loss") else f"{role} fc"
        items = (Difference(name, parse_name(name), 1.0, 0.0, 1.0, "value"),) if role else ()
        first = First(step=0, role=role, tensor="fc") if role else None
        judgement = Judgement("diverged" if role else "pass", role or "equal", first, differences=items)
        verdict = Verdict(
            trial=trial.id,
            framework="torch",
            build=BUILD.id,
            case=trial.case.id,
            setting=str(trial.setting),
            kind=judgement.kind,
            reason=judgement.reason,
            key=symptom_key_of(trial.case, trial.setting, judgement),
            first=first,
        )
        return Judged(trial, verdict, judgement)


@pytest.fixture(autouse=True)
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings without their scripts, which only a library could run."""

    def made(harness, small, group, context):
        judged = small.judged
        return Finding(
            key=small.names.key,
            title="t",
            verdict=judged.verdict,
            build=BUILD,
            case=judged.trial.case,
            setting=judged.trial.setting,
            verified=True,
            needs=tuple(sorted(small.names.needs)),
        )

    monkeypatch.setattr(module, "make_finding", made)
    monkeypatch.setattr(module, "_with_groups", lambda finding, groups: finding)


def looked(fails: Fails, trials: list[Trial], folder: Path) -> Looked:
    library = Library(fails)
    by_id = {each.id: each for each in trials}
    verdicts = [library.run(each).verdict for each in trials]
    groups = group_failing(verdicts, {each.case.id: each.case for each in trials})
    context = Context(folder, "r1", 3, None, verdicts)
    return look_into(library, groups, by_id, context, [], 2, 60.0, lambda text: None)  # type: ignore[arg-type]


CLIP = {"clip": {"limit": 0.1}}


def test_one_symptom_of_two_causes_is_two_findings(tmp_path: Path) -> None:
    def fails(case: Case, setting: Setting) -> str:
        return "grad" if case.clip or setting.get("static_graph") else ""

    trials = [trial("ddp(world=2)", **CLIP), trial("ddp(world=2, static_graph=true)")]
    found = looked(fails, trials, tmp_path).findings
    assert sorted(finding.needs for finding in found) == [("clip-norm",), ("static_graph",)]
    assert all(len(finding.case.layers) == 1 for finding in found)


def test_one_cause_seen_in_the_loss_and_in_the_gradients_is_one_finding(tmp_path: Path) -> None:
    """A8: one cause under several titles; whichever is shrunk first, the others and the next run know it again."""

    def fails(case: Case, setting: Setting) -> str:
        return ("loss" if case.loss == "cross_entropy" else "grad") if case.clip else ""

    in_gradients, in_loss = trial("ddp(world=2)", **CLIP), trial("ddp(world=2)", loss="cross_entropy", **CLIP)
    result = looked(fails, [in_gradients, in_loss], tmp_path)
    [finding] = result.findings
    assert "clip-norm" in finding.needs
    assert {verdict.trial for verdict in result.changed.values()} == {in_gradients.id, in_loss.id}
    assert {verdict.key for verdict in result.changed.values()} == {finding.key}


def test_one_cause_has_a_name_in_common_wherever_it_is_first_seen() -> None:
    """C3: which of its symptoms a night shrinks first is chance; its issue is found by either."""
    names = []
    for role, facts in {"grad": CLIP, "loss": CLIP | {"loss": "cross_entropy"}}.items():
        each = trial("ddp(world=2)", **facts)
        judged = Library(lambda case, setting, role=role: role).run(each)
        found = names_of(each.case, each.setting, judged.judgement)
        names.append({found.key, *found.aliases})
    assert names[0] & names[1]


def test_what_fails_differently_on_the_way_is_kept_aside_as_another_finding(tmp_path: Path) -> None:
    """K4: shrinking never slips from one bug to another, and does not lose the other either."""

    def fails(case: Case, setting: Setting) -> str:
        if len(case.layers) > 1:
            return "grad"
        return "loss"

    result = looked(fails, [trial("ddp(world=2)")], tmp_path)
    assert {finding.verdict.reason for finding in result.findings} == {"grad", "loss"}
    assert [len(finding.case.layers) > 1 for finding in result.findings if finding.verdict.reason == "grad"] == [True]
    assert [judged.verdict.reason for judged in result.added] == ["loss"]


def test_a_failure_that_is_gone_is_flaky_and_no_finding(tmp_path: Path) -> None:
    """D3: what does not repeat is told, never filed."""
    times = iter(["grad"])
    result = looked(lambda case, setting: next(times, ""), [trial("ddp(world=2)")], tmp_path)
    assert not result.findings
    assert [verdict.kind for verdict in result.changed.values()] == ["flaky"]


def test_every_setting_has_its_turn_and_what_is_known_waits() -> None:
    roles = {"ddp(world=2)": ("grad", "loss"), "tp(world=2)": ("grad",), "pp(world=2)": ("param",)}
    judged = [
        Library(lambda case, setting, role=role: role).run(trial(setting, seed=i))
        for setting, shown in roles.items()
        for i, role in enumerate(shown)
    ]
    groups = group_failing([each.verdict for each in judged], {each.trial.case.id: each.trial.case for each in judged})
    known = {group.key for group in groups if group.representative.setting == "pp(world=2)"}
    turns = [group.representative.setting for group in spread(groups, known)]
    assert sorted(turns[:2]) == ["ddp(world=2)", "tp(world=2)"]
    assert turns[2:] == ["ddp(world=2)", "pp(world=2)"]
