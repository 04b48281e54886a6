"""A setting on one line: one text for one setting, whichever way it was written."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3bot.spec import Setting, SpecError

Options = tuple[tuple[str, bool | int | float | str], ...]


def finite(word: str) -> bool:
    """Whether a word is none that is read as NaN or infinity."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return True


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True)
WORDS = st.from_regex(r"[A-Za-z0-9_.+-]{1,40}", fullmatch=True).filter(finite)
NUMBERS = st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.booleans() | NUMBERS | WORDS
OPTIONS = st.dictionaries(NAMES, VALUES, max_size=6).map(lambda options: tuple(options.items()))


@settings(deadline=None)
@given(family=NAMES, options=OPTIONS)
def test_the_one_line_form_reads_back(family: str, options: Options) -> None:
    setting = Setting(family=family, options=options)
    assert "\n" not in str(setting)
    again = Setting.parse(str(setting))
    assert again == setting
    assert hash(again) == hash(setting)
    assert [type(value) for _, value in again.options] == [type(value) for _, value in setting.options]
    assert Setting.model_validate(setting.model_dump()) == setting
    assert Setting.model_validate_json(setting.model_dump_json()) == setting


@settings(deadline=None)
@given(family=NAMES, options=OPTIONS, data=st.data())
def test_the_order_of_the_options_does_not_matter(family: str, options: Options, data: st.DataObject) -> None:
    shuffled = tuple(data.draw(st.permutations(options)))
    assert str(Setting(family=family, options=options)) == str(Setting(family=family, options=shuffled))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ddp", "ddp"),
        ("ddp()", "ddp"),
        ("ddp(world=2)", "ddp(world=2)"),
        (" ddp ( world = 2 ) ", "ddp(world=2)"),
        ("ddp(static_graph=true,world=2,)", "ddp(world=2, static_graph=true)"),
        ("ddp(world=02)", "ddp(world=2)"),
        ("ddp(lr=1e-3)", "ddp(lr=0.001)"),
        ("mirrored(zeta=1, replicas=2, alpha=x)", "mirrored(replicas=2, alpha=x, zeta=1)"),
        ("parameter_server(workers=2)", "parameter_server(workers=2)"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(Setting.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", 1), ("1.0", 1.0), ("1F1B", "1F1B"), ("True", "True")]
)
def test_a_value_has_the_type_it_looks_like(text: str, value: object) -> None:
    found = Setting.parse(f"pp(x={text})").get("x")
    assert (found, type(found)) == (value, type(value))
    written = Setting(family="pp", options=(("x", text),)).get("x")
    assert (written, type(written)) == (value, type(value)), "also where it is given as text"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("DDP(world=2)", "cannot be read"),
        ("ddp(world=2", "cannot be read"),
        ("ddp world=2", "cannot be read"),
        ("ddp(world=2)\nx", "cannot be read"),
        ("ddp(2)", "'2' is not of the form option=value"),
        ("ddp(World=2)", "'World=2' is not of the form option=value"),
        ("ddp(world='2')", "is not of the form option=value"),
        ("ddp(world=os.system(1))", "is not of the form option=value"),
        ("ddp(world={{ 1 }})", "is not of the form option=value"),
        ("ddp(x=a\nb)", "cannot be read"),
        ("ddp(world=2, world=3)", "an option is given twice"),
        ("ddp(x=nan)", "x=nan is not a finite number"),
        ("ddp(x=-inf)", "x=-inf is not a finite number"),
        ("ddp(x=1e999)", "x=inf is not a finite number"),
        ("ddp(x=" + "a" * 41 + ")", "is not of the form option=value"),
        ("d" * 41, "family: String should match pattern"),
        ("x" * 100_000 + "!", "cannot be read"),
    ],
)
def test_refused_on_one_line(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        Setting.parse(text)
    message = str(caught.value)
    assert words in message
    assert "for example ddp(world=2)" in message
    assert message.isprintable()
    assert len(message) < 500


def test_a_whole_number_is_asked_for_by_name() -> None:
    setting = Setting.parse("ddp(world=2, fast=true)")
    assert setting.integer("world") == 2
    assert setting.get("replicas", 1) == 1
    with pytest.raises(KeyError):
        setting.integer("replicas")
    with pytest.raises(SpecError, match="fast must be a whole number"):
        setting.integer("fast")
