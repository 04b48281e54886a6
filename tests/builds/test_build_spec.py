"""A build spec is read into a typed request, or refused on one line that says what to write instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.builds.spec import (
    Companion,
    Exact,
    Interpreter,
    Nightly,
    Range,
    Request,
    Wheel,
    first_of,
    parse,
    same_version,
)
from d3bot.spec import SpecError

TF = (Companion("keras-nightly"),)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("torch==2.13.0", Exact("torch==2.13.0", "torch", "2.13.0")),
        (" torch == 2.13.0 ", Exact("torch == 2.13.0", "torch", "2.13.0")),
        ("torch==2.13.0+cpu", Exact("torch==2.13.0+cpu", "torch", "2.13.0+cpu")),
        ("torch==2.14.0rc1", Exact("torch==2.14.0rc1", "torch", "2.14.0rc1")),
        ("TensorFlow_CPU==2.21.0", Exact("TensorFlow_CPU==2.21.0", "tensorflow-cpu", "2.21.0")),
        (
            "tensorflow-cpu==2.21.0 with keras==3.8.0",
            Exact(
                "tensorflow-cpu==2.21.0 with keras==3.8.0", "tensorflow-cpu", "2.21.0", (Companion("keras", "3.8.0"),)
            ),
        ),
        ("torch>=2.9,<3", Range("torch>=2.9,<3", "torch", "<3,>=2.9")),
        ("torch==2.13.*", Range("torch==2.13.*", "torch", "==2.13.*")),
        ("tensorflow-cpu~=2.20", Range("tensorflow-cpu~=2.20", "tensorflow-cpu", "~=2.20")),
        ("torch@nightly", Nightly("torch@nightly", "torch")),
        ("torch@nightly/cu130", Nightly("torch@nightly/cu130", "torch", platform="cu130")),
        ("torch@2026-10-19/rocm7.0", Nightly("torch@2026-10-19/rocm7.0", "torch", "20261019", platform="rocm7.0")),
        (
            "torch@nightly with torchrec fbgemm-gpu",
            Nightly(
                "torch@nightly with torchrec fbgemm-gpu",
                "torch",
                companions=(Companion("torchrec"), Companion("fbgemm-gpu")),
            ),
        ),
        (
            "torch==2.15.0.dev20261019+cpu",
            Nightly("torch==2.15.0.dev20261019+cpu", "torch", version="2.15.0.dev20261019+cpu"),
        ),
        ("tf-nightly", Nightly("tf-nightly", "tf-nightly", companions=TF)),
        ("tensorflow@nightly", Nightly("tensorflow@nightly", "tf-nightly", companions=TF)),
        ("tf-nightly@2026-10-26", Nightly("tf-nightly@2026-10-26", "tf-nightly", "20261026", companions=TF)),
        (
            "tf-nightly==2.23.0.dev20261019",
            Nightly("tf-nightly==2.23.0.dev20261019", "tf-nightly", version="2.23.0.dev20261019", companions=TF),
        ),
        (
            "tf-nightly with keras-nightly==3.16.0.dev2026101904",
            Nightly(
                "tf-nightly with keras-nightly==3.16.0.dev2026101904",
                "tf-nightly",
                companions=(Companion("keras-nightly", "3.16.0.dev2026101904"),),
            ),
        ),
        ("dist/torch-2.13.0-py3-none-any.whl", Wheel(*["dist/torch-2.13.0-py3-none-any.whl"] * 2)),
        (
            "https://example.org/torch-2.13.0-py3-none-any.whl#sha256=ab",
            Wheel(*["https://example.org/torch-2.13.0-py3-none-any.whl#sha256=ab"] * 2),
        ),
        ("python:/e/bin/python", Interpreter("python:/e/bin/python", "/e/bin/python")),
        ("python:../e/bin/python3.12", Interpreter("python:../e/bin/python3.12", "../e/bin/python3.12")),
        (
            "python:/e/bin/python with keras==3.7.0",
            Interpreter(
                "python:/e/bin/python with keras==3.7.0", "/e/bin/python", companions=(Companion("keras", "3.7.0"),)
            ),
        ),
        (
            "overlay:/fork+cuda+python:/e/bin/python",
            Interpreter("overlay:/fork+cuda+python:/e/bin/python", "/e/bin/python", "/fork+cuda"),
        ),
    ],
)
def test_form(text: str, request_: Request) -> None:
    assert parse(text) == request_


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a build"),
        ("torch", "not NAME==VERSION"),
        ("torch==newest", "'newest' is not one exact version"),
        ("torch>=newest", "not a range"),
        ("jax==0.10.2", "tensorflow, tensorflow-cpu, tf-nightly, tf-nightly-cpu, torch"),
        ("torch==2.13.0\nnumpy", "not a build"),
        ("torch==2.13.0 with", "not one exact version"),
        ("torch==2.13.0 with numpy", "needs a version"),
        ("torch==2.13.0 with numpy>=2", "not 'numpy>=2'"),
        ("torch==2.13.0 with numpy==2 numpy==3", "each once"),
        ("torch@2026-13-01", "is no day"),
        ("keras@nightly", "nightlies are known of torch and tf-nightly"),
        ("tf-nightly/cu130", "not NAME==VERSION"),
        ("tf-nightly@nightly/cu130", "only torch"),
        ("tf-nightly==2.23.0", "ends with .dev"),
        ("tf-nightly>=2.23", "tf-nightly@2026-10-19"),
        ("tensorflow-cpu==2.23.0.dev20261019", "nightlies are known of"),
        ("ftp://example.org/torch-2.13.0-py3-none-any.whl", "not from ftp:"),
        ("https://example.org/torch", "does not end with .whl"),
        ("python:", "python: names an interpreter"),
        ("python:/an/environment", "python: names an interpreter"),
        ("overlay:/fork", "overlay:DIR+python:"),
        ("overlay:+python:/e/bin/python", "overlay:DIR+python:"),
        ("overlay:/fork+python:/e/bin/python with keras==3.7.0", "takes no companions"),
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


@pytest.mark.parametrize(
    ("specs", "framework", "chosen"),
    [
        (("torch@nightly", "tf-nightly"), "tensorflow", "tf-nightly"),
        (("tf-nightly", "torch@nightly/cu130"), "torch", "torch@nightly/cu130"),
        (("tf-nightly with keras", "python:/e/bin/python"), "torch", "python:/e/bin/python"),
    ],
)
def test_of_several_builds_the_first_of_a_framework_is_taken(specs, framework, chosen):
    assert first_of(specs, framework) == chosen


@pytest.mark.parametrize("specs", [(), ("torch==2.13.0",)])
def test_no_build_of_a_framework_is_one_line(specs):
    with pytest.raises(SpecError, match="is of tensorflow; name one"):
        first_of(specs, "tensorflow")
