"""A build spec is read into a typed request, or refused on one line that says what to write instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.builds.spec import Exact, Interpreter, parse, same_version
from d3bot.spec import SpecError


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("torch==2.13.0", Exact("torch==2.13.0", "torch", "2.13.0")),
        (" torch == 2.13.0 ", Exact("torch == 2.13.0", "torch", "2.13.0")),
        ("torch==2.13.0+cpu", Exact("torch==2.13.0+cpu", "torch", "2.13.0+cpu")),
        ("torch==2.14.0rc1", Exact("torch==2.14.0rc1", "torch", "2.14.0rc1")),
        ("tensorflow==2.21.0", Exact("tensorflow==2.21.0", "tensorflow", "2.21.0")),
        ("TensorFlow_CPU==2.21.0", Exact("TensorFlow_CPU==2.21.0", "tensorflow-cpu", "2.21.0")),
        ("python:/e/bin/python", Interpreter("python:/e/bin/python", "/e/bin/python")),
        ("python:../e/bin/python3.12", Interpreter("python:../e/bin/python3.12", "../e/bin/python3.12")),
        (
            "overlay:/fork+cuda+python:/e/bin/python",
            Interpreter("overlay:/fork+cuda+python:/e/bin/python", "/e/bin/python", "/fork+cuda"),
        ),
    ],
)
def test_form(text: str, request_: Exact | Interpreter) -> None:
    assert parse(text) == request_


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a build"),
        ("torch", "not NAME==VERSION"),
        ("torch>=2.13.0", "not NAME==VERSION"),
        ("torch==2.13.*", "'2.13.*' is not one exact version"),
        ("torch==newest", "'newest' is not one exact version"),
        ("jax==0.10.2", "tensorflow, tensorflow-cpu, torch"),
        ("torch==2.13.0\nnumpy", "not a build"),
        ("python:", "python: names an interpreter"),
        ("python:/an/environment", "python: names an interpreter"),
        ("overlay:/fork", "overlay:DIR+python:"),
        ("overlay:+python:/e/bin/python", "overlay:DIR+python:"),
        ("torch@nightly", "not supported yet"),
        ("tf-nightly", "not supported yet"),
        ("tf-nightly==2.23.0.dev20261019", "not supported yet"),
        ("torch==2.15.0.dev20261019", "not supported yet"),
        ("dist/torch-2.13.0-cp311-cp311-linux_x86_64.whl", "not supported yet"),
        ("https://example.org/torch-2.13.0-cp311-cp311-linux_x86_64.whl", "not supported yet"),
    ],
)
def test_refused_on_one_line(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_request_or_a_spec_error(text: str) -> None:
    try:
        outcome = parse(text).text
    except SpecError as error:
        outcome = str(error)
    assert outcome == text.strip() or outcome.startswith("build ")
    assert "\n" not in outcome


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13", "2.13.0+cu126", True),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cpu", "2.13.0+cu126", False),
        ("2.13.0", "2.13.1", False),
        ("2.13.0", "2.13.0rc1", False),
        ("2.13.0", "2.13.0.dev20261019", False),
        ("2.13.0", "unknown", False),
    ],
)
def test_same_version(asked: str, found: str, same: bool) -> None:
    assert same_version(asked, found) is same
