"""From a judgement to a key: what decides it, and what must not."""

from dataclasses import replace

import pytest

from d3bot.findings.key import is_catch_all, is_key
from d3bot.flow.keying import names_of, symptom_key_of, words, wrong_class
from d3bot.judge import Difference, Judgement
from d3bot.spec import FAILING, KINDS, Case, Clip, ErrorReport, First, Kind, Setting, parse_name

CASE = Case.model_validate(
    {
        "framework": "torch",
        "inputs": [{"name": "x", "shape": [4]}],
        "layers": [
            {"name": f"fc{i}", "op": "linear", "inputs": [f"fc{i - 1}" if i else "x"], "options": {"units": 4}}
            for i in range(3)
        ],
        "freeze": [{"layer": "fc1", "at": 1}],
        "tie": [{"layer": "fc2", "to": "fc0"}],
    }
)
PLAIN = CASE.model_copy(update={"freeze": (), "tie": ()})
SETTING = Setting.parse("fsdp2(world=2)")
NAMES = [f"step 0 grad fc{i}.{kind}" for i in range(3) for kind in ("weight", "bias")]


def differences(*wrong: str, names: list[str] = NAMES) -> tuple[Difference, ...]:
    found = [
        Difference(name, parse_name(name), 1.0, 0.0, 1.0, "value" if name in wrong else "")
        for name in dict.fromkeys(["step 0 loss 0", *names, *wrong])
    ]
    return tuple(sorted(found, key=lambda item: item.parsed))


def diverged(*wrong: str, pattern: str = "scaled") -> Judgement:
    found = differences(*wrong)
    first = next(item.parsed for item in found if item.wrong)
    return Judgement(
        "diverged",
        "off by 1",
        First(step=first.step, role=first.role, tensor=first.tensor),
        pattern=pattern,
        differences=found,
    )


def raised(
    kind: Kind = "crashed", message: str = "shapes differ", frames: tuple[str, ...] = ("torch.a:f",)
) -> Judgement:
    return Judgement(kind, "RuntimeError", report=ErrorReport("RuntimeError", message, frames, at=1.0))


@pytest.mark.parametrize(
    ("case", "wrong", "word"),
    [
        (PLAIN, ["step 0 grad fc1.weight"], "weight"),
        (PLAIN, ["step 0 grad fc1.bias"], "bias"),
        (PLAIN, ["step 0 grad fc0.bias", "step 0 grad fc2.bias"], "bias"),
        (PLAIN, ["step 0 grad fc1.bias", "step 0 grad fc1.weight"], ""),
        (PLAIN, NAMES, ""),
        (PLAIN, ["step 0 grad fc1.bias", "param fc1.weight"], "bias"),
        (PLAIN, [*NAMES, "param fc1.weight"], ""),
        (PLAIN, ["param 0.weight"], "weight"),
        (CASE, ["step 0 grad fc1.bias", "step 0 grad fc1.weight"], "frozen"),
        (CASE, ["step 0 grad fc1.weight"], "frozen"),
        (CASE, ["step 0 grad fc0.weight"], "tied"),
        (CASE, ["step 0 grad fc0.weight", "step 0 grad fc2.weight"], "tied"),
        (CASE, ["step 0 grad fc0.weight", "step 0 grad fc1.weight"], "weight"),
        (PLAIN, [], ""),
    ],
)
def test_what_the_wrong_tensors_have_in_common(case: Case, wrong: list[str], word: str) -> None:
    judgement = Judgement("diverged", "", differences=differences(*wrong))
    assert wrong_class(case, judgement) == word


@pytest.mark.parametrize("kind", KINDS)
def test_only_failures_and_refusals_have_a_key(kind: Kind) -> None:
    key = symptom_key_of(CASE, SETTING, replace(raised(), kind=kind))
    assert is_key(key) == (kind in FAILING or kind == "refused")
    assert bool(key) == (kind in FAILING or kind == "refused")


SAME: list[tuple[str, Judgement, Judgement]] = [
    ("sizes in a message", raised(message="got 3 of 4"), raised(message="got 5 of 16")),
    ("addresses", raised(message="at 0x7f12ab34cd56"), raised(message="at 0x7f99ab34cd11")),
    (
        "the caller's frames",
        raised(frames=("torch.x:g", "torch.a:f", "torch.b:f", "torch.c:f")),
        raised(frames=("torch.y:h", "torch.a:f", "torch.b:f", "torch.c:f")),
    ),
    (
        "which of all gradients is the worst",
        diverged(*NAMES),
        replace(diverged(*NAMES), first=First(step=0, role="grad", tensor="fc2.bias")),
    ),
    ("how much is wrong later on", diverged(NAMES[0]), diverged(NAMES[0], "param fc2.bias", "predict")),
]
DIFFERENT: list[tuple[str, Judgement, Judgement]] = [
    ("kind", raised(), raised("refused")),
    ("message", raised(message="shapes differ"), raised(message="no such mesh")),
    ("innermost frame", raised(frames=("torch.x:g", "torch.a:f")), raised(frames=("torch.x:g", "torch.a:h"))),
    ("class of the tensor", diverged("step 0 grad fc1.bias"), diverged("step 0 grad fc1.weight")),
    ("role", diverged("step 0 grad fc1.bias"), diverged("param fc1.bias")),
    ("diagnosis", diverged(NAMES[0]), diverged(NAMES[0], pattern="zero")),
    ("signal", Judgement("died", "", pattern="sigsegv"), Judgement("died", "", pattern="sigabrt")),
    ("place of a hang", raised("hung", "", ("torch.a:f",)), raised("hung", "", ("torch.a:g",))),
]


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_one_bug_has_one_key(one: Judgement, other: Judgement) -> None:
    assert symptom_key_of(PLAIN, SETTING, one) == symptom_key_of(PLAIN, SETTING, other)


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT])
def test_two_bugs_have_two_keys(one: Judgement, other: Judgement) -> None:
    assert symptom_key_of(PLAIN, SETTING, one) != symptom_key_of(PLAIN, SETTING, other)


def test_the_world_size_is_no_part_of_a_key_but_the_family_is() -> None:
    keys = [
        symptom_key_of(PLAIN, Setting.parse(text), raised()) for text in ("ddp(world=2)", "ddp(world=4)", "pp(world=2)")
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("judgement", "catch_all"),
    [
        (Judgement("hung", "rank 0 did not end within 30 s"), True),
        (raised("hung", "", ("torch.a:f",)), False),
        (Judgement("died", "", pattern="sigsegv"), False),
        (raised(frames=()), False),
        (diverged(NAMES[0], pattern="other"), False),
    ],
)
def test_a_failure_of_which_nothing_is_known_has_a_catch_all_key(judgement: Judgement, catch_all: bool) -> None:
    assert is_catch_all(symptom_key_of(PLAIN, SETTING, judgement)) == catch_all


def named(setting: str, case: Case = PLAIN, judgement: Judgement | None = None) -> tuple[str, set[str]]:
    names = names_of(case, Setting.parse(setting), judgement or diverged(*NAMES))
    return names.key, set(names.needs)


@pytest.mark.parametrize(
    ("setting", "change", "needs"),
    [
        ("ddp(world=2)", {}, set()),
        ("ddp(world=3)", {}, {"uneven-size", "uneven-parts"}),
        ("ddp(world=4)", {}, {"more than 2 world"}),
        ("ddp(world=2, static_graph=true)", {}, {"static_graph"}),
        ("fsdp2(world=2, reshard_after_forward=false)", {}, {"no reshard_after_forward"}),
        ("pp(world=2, microbatches=2, schedule=zbv)", {}, {"microbatches", "schedule=zbv"}),
        ("ddp(world=2)", {"steps": 1, "clip": {"limit": 0.1}}, {"clip-norm"}),
        ("ddp(world=2)", {"dtype": "float32"}, {"float32"}),
        ("ddp(world=2)", {"seed": 5}, set()),
    ],
)
def test_what_the_smallest_trial_still_needs(setting: str, change: dict[str, object], needs: set[str]) -> None:
    case = Case.model_validate(PLAIN.model_dump(mode="json") | {"steps": 1} | change)
    assert named(setting, case)[1] == needs


def test_one_symptom_with_other_needs_is_another_finding() -> None:
    clipped = PLAIN.model_copy(update={"clip": Clip(limit=0.1)})
    assert named("ddp(world=2)")[0] != named("ddp(world=2)", clipped)[0] != named("ddp(world=2, static_graph=true)")[0]


def test_what_a_finding_needs_every_trial_of_its_cause_has() -> None:
    needs = named("ddp(world=4, static_graph=true)", PLAIN)[1]
    assert needs <= words(CASE, Setting.parse("ddp(world=8, static_graph=true)"))
    assert not needs <= words(CASE, Setting.parse("ddp(world=4)"))


def test_a_failure_of_which_nothing_is_known_keeps_a_catch_all_key() -> None:
    names = names_of(PLAIN, SETTING, Judgement("hung", "rank 0 did not end"))
    assert is_catch_all(names.key)
    assert names.aliases == ()


def test_a8_one_cause_has_one_name_whichever_common_words_its_smallest_trials_kept() -> None:
    setting = Setting.parse("ddp(world=4, static_graph=true)")
    late = names_of(PLAIN, setting, diverged("step 1 loss 0"))
    low = PLAIN.model_copy(update={"steps": 1, "dtype": "float32"})
    early = names_of(low, setting, diverged("param fc1.weight"))
    assert late.key != early.key
    assert set(late.aliases) & set(early.aliases)
    other = names_of(low, Setting.parse("ddp(world=4)"), diverged("param fc1.weight"))
    assert not {other.key, *other.aliases} & {early.key, *early.aliases}
