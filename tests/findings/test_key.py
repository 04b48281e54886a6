import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.findings import (
    ErrorInfo,
    Symptom,
    akin,
    alternate_keys,
    failure_key,
    is_catch_all,
    is_key,
    normalise,
    symptom_key,
    tensor_class,
)
from d3bot.findings.key import MAX_KEY, refines
from d3bot.spec import FAILING, First, Setting

FSDP2 = Setting.parse("fsdp2(world=2)")
GRAD = First(step=0, role="grad", tensor="fc.weight")
FRAMES = ("torch.distributed.c10d:all_reduce", "torch.distributed.fsdp:reduce_grads", "torch.autograd:backward", "m:f")


def key(kind="diverged", **facts):
    setting, features = facts.pop("setting", FSDP2), facts.pop("features", ())
    first, error = facts.pop("first", None), facts.pop("error", None) or ErrorInfo()
    return failure_key("torch", setting, Symptom(kind, first.role if first else "", error=error, **facts), features)


@pytest.mark.parametrize(
    ("facts", "readable"),
    [
        (
            {"first": GRAD, "tensor": "weight", "diagnosis": "permuted"},
            "torch-fsdp2-diverged-grad-weight-permuted",
        ),
        ({"kind": "nonfinite", "first": First(role="loss")}, "torch-fsdp2-nonfinite-loss"),
        (
            {"kind": "crashed", "error": ErrorInfo("RuntimeError", "boom", FRAMES)},
            "torch-fsdp2-crashed-runtimeerror-all_reduce",
        ),
        ({"kind": "hung", "error": ErrorInfo(frames=FRAMES)}, "torch-fsdp2-hung-all_reduce"),
        ({"kind": "died", "error": ErrorInfo("SIGSEGV")}, "torch-fsdp2-died-sigsegv"),
        ({"kind": "hung"}, "torch-fsdp2-hung-unclassified"),
    ],
)
def test_a_key_reads_as_what_happened(facts, readable):
    assert re.fullmatch(re.escape(readable) + "-[0-9a-f]{8}", key(**facts))


def test_a_key_of_numbers_says_what_is_needed():
    named = key(first=GRAD, tensor="weight", features=("shard_dim=1", "more than 2 world"))
    assert re.fullmatch("torch-fsdp2-diverged-grad-weight-more_than_2_world-shard_dim_1-[0-9a-f]{8}", named)


def test_the_version_of_the_rules_is_part_of_the_hash(monkeypatch):
    now = key(first=GRAD)
    monkeypatch.setattr("d3bot.findings.key.KEY_VERSION", 3)
    assert key(first=GRAD) != now


def test_the_symptom_is_what_the_key_was_in_version_1():
    """A14: a record that was filed under an older rule is found still."""
    seen = Symptom("diverged", "buffer")
    assert symptom_key("torch", Setting.parse("pp(world=2)"), seen) == "torch-pp-diverged-buffer-8e871226"
    assert symptom_key("torch", FSDP2, seen) != failure_key("torch", FSDP2, seen)


GRADS, LOSS = Symptom("diverged", "grad", "weight"), Symptom("diverged", "loss")
SCALED = Symptom("diverged", "grad", diagnosis="scaled")
SEND = Symptom("crashed", error=ErrorInfo("RuntimeError", "input tensor has to be contiguous", ("torch.c10d:isend",)))
RECEIVE = Symptom(
    "crashed", error=ErrorInfo("RuntimeError", "input tensor has to be contiguous", ("torch.c10d:irecv",))
)
UNSET = Symptom("nonfinite", "buffer", "", "nonfinite")
MESH = Symptom("crashed", error=ErrorInfo("RuntimeError", "no such mesh dimension", ("torch.c10d:isend",)))
HANG = Symptom("hung", error=ErrorInfo(frames=("torch.c10d:wait",)))

# one failure, another, whether they may be one cause, whether the second may be taken as the first made smaller
ALIKE = [
    ("itself", GRADS, GRADS, True, True),
    ("other tensors of one role", GRADS, Symptom("diverged", "grad", "bias"), True, True),
    (
        "a number here, NaN there",
        Symptom("diverged", "buffer"),
        Symptom("nonfinite", "buffer", "", "nonfinite"),
        True,
        True,
    ),
    ("a pattern where there was none", GRADS, SCALED, True, True),
    ("no pattern where there was one", SCALED, GRADS, True, False),
    ("another pattern", SCALED, Symptom("diverged", "grad", diagnosis="permuted"), False, False),
    ("another role", GRADS, LOSS, False, False),
    ("two calls of one race", SEND, RECEIVE, True, True),
    ("another message", SEND, MESH, False, False),
    ("numbers and an error", GRADS, SEND, False, False),
    ("a hang at one place", HANG, HANG, True, True),
    ("a hang at another", HANG, Symptom("hung", error=ErrorInfo(frames=("torch.c10d:send",))), False, False),
    (
        "two signals",
        Symptom("died", error=ErrorInfo("sigsegv")),
        Symptom("died", error=ErrorInfo("sigabrt")),
        False,
        False,
    ),
]


@pytest.mark.parametrize(
    ("one", "other", "alike", "smaller"), [row[1:] for row in ALIKE], ids=[row[0] for row in ALIKE]
)
def test_which_failures_may_be_one_cause(one, other, alike, smaller):
    """K2, K4: what shrinking takes shows the failure that it began with, and no other."""
    assert akin(one, other) is akin(other, one) is alike
    assert refines(other, one) is smaller


def alternates(symptom, needs=("ops=hierarchical",), plain=False):
    return alternate_keys("tensorflow", Setting.parse("mirrored(replicas=3)"), symptom, needs, plain)


def test_one_cause_seen_in_the_loss_or_in_the_gradients_has_one_alternate_key():
    """A8: one cause under several titles."""
    assert alternates(GRADS) == alternates(LOSS) == alternates(Symptom("diverged", "param", "bias"))
    assert all(is_key(name) and not is_catch_all(name) for name in alternates(GRADS))
    assert alternates(GRADS) != alternates(GRADS, ("clip-norm",))
    assert alternates(GRADS) != alternates(Symptom("diverged", "buffer"))
    assert alternates(SCALED) != alternates(GRADS)


def test_memory_that_nobody_wrote_has_one_alternate_key():
    assert alternates(UNSET) == alternates(Symptom("diverged", "buffer"))


def test_two_calls_that_race_to_one_error_have_one_alternate_key():
    assert alternates(SEND) == alternates(RECEIVE) != alternates(MESH)


@pytest.mark.parametrize("symptom", [LOSS, HANG, Symptom("crashed", error=ErrorInfo("RuntimeError", "boom"))])
def test_what_is_common_has_no_alternate_key(symptom):
    """A9: catch-all names collect what does not belong together."""
    assert alternates(symptom, (), plain=True) == ()


DIFFERENT = [
    {"first": GRAD, "tensor": "weight"},
    {"first": GRAD, "tensor": "bias"},
    {"first": First(role="param", tensor="fc.weight"), "tensor": "weight"},
    {"first": GRAD, "tensor": "weight", "diagnosis": "zero"},
    {"first": GRAD, "tensor": "weight", "diagnosis": "stale"},
    {"first": GRAD, "tensor": "weight", "features": ("shard_dim=1",)},
    {"first": GRAD, "tensor": "weight", "setting": Setting.parse("ddp(world=2)")},
    {"first": GRAD, "tensor": "weight", "kind": "nonfinite"},
    {"kind": "crashed", "error": ErrorInfo("RuntimeError", "boom", FRAMES)},
    {"kind": "crashed", "error": ErrorInfo("RuntimeError", "size mismatch", FRAMES)},
    {"kind": "crashed", "error": ErrorInfo("ValueError", "boom", FRAMES)},
    {"kind": "crashed", "error": ErrorInfo("RuntimeError", "boom", FRAMES[1:])},
    {"kind": "crashed", "error": ErrorInfo("RuntimeError", "boom")},
    {"kind": "died", "error": ErrorInfo("SIGSEGV")},
    {"kind": "died", "error": ErrorInfo("SIGABRT")},
]


def test_different_bugs_have_different_keys():
    keys = [key(**facts) for facts in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Of the setting only the family and the features that the caller found necessary.
        ({"first": GRAD}, {"first": GRAD, "setting": Setting.parse("fsdp2(world=4, shard_dim=1)")}),
        ({"first": GRAD}, {"first": First(step=3, role="grad", tensor="head.weight")}),
        ({"first": GRAD, "features": ("a", "b")}, {"first": GRAD, "features": ("b", "a", "b")}),
        # Deeper frames say who called.
        (
            {"kind": "hung", "error": ErrorInfo(frames=FRAMES)},
            {"kind": "hung", "error": ErrorInfo(frames=(*FRAMES[:3], "other:caller"))},
        ),
        # What peers say when a rank dies or hangs is not the failure.
        (
            {"kind": "died", "error": ErrorInfo("SIGSEGV", "Connection reset by peer")},
            {"kind": "died", "error": ErrorInfo("SIGSEGV", "Broken pipe")},
        ),
        (
            {"kind": "crashed", "error": ErrorInfo("RuntimeError", "size mismatch, got 3, 3x4,3", FRAMES)},
            {"kind": "crashed", "error": ErrorInfo("RuntimeError", "size mismatch, got 16, 16x2,5\nadvice", FRAMES)},
        ),
    ],
)
def test_one_bug_has_one_key(one, other):
    assert key(**one) == key(**other)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"kind": "hung"}, True),
        ({"kind": "hung", "error": ErrorInfo("TimeoutError", "no answer in 20 s")}, True),
        ({"kind": "hung", "error": ErrorInfo(frames=FRAMES)}, False),
        ({"kind": "died"}, True),
        ({"kind": "died", "error": ErrorInfo("", "Broken pipe")}, True),
        ({"kind": "died", "error": ErrorInfo("SIGSEGV")}, False),
        ({"kind": "crashed", "error": ErrorInfo("RuntimeError", " 17: 0x7f ")}, True),
        ({"kind": "crashed", "error": ErrorInfo("RuntimeError", "boom")}, False),
        ({"kind": "diverged"}, True),
        ({"kind": "diverged", "features": ("shard_dim=1",)}, True),
        ({"kind": "diverged", "diagnosis": "unclassified"}, False),
        ({"kind": "diverged", "first": GRAD}, False),
    ],
)
def test_a_key_that_says_nothing_of_the_cause_is_a_catch_all(facts, expected):
    assert is_catch_all(key(**facts)) is expected


def test_no_key_is_a_catch_all():
    assert is_catch_all("")


TEXT = st.text(max_size=200)


@given(
    kind=st.sampled_from(sorted(FAILING)),
    role=TEXT,
    tensor=TEXT,
    diagnosis=TEXT,
    error=st.builds(ErrorInfo, TEXT, TEXT, st.lists(TEXT, max_size=5).map(tuple)),
)
def test_a_key_is_a_short_file_name_whatever_it_is_made_of(kind, role, tensor, diagnosis, error):
    made = key(kind, first=First(role=role), tensor=tensor, diagnosis=diagnosis, error=error, features=(tensor,))
    assert is_key(made)
    assert len(made) <= MAX_KEY


@pytest.mark.parametrize("text", ["", "notes", "../x-00000000", "a--00000000", "A-00000000", "a-0000000g", "x" * 200])
def test_what_could_leave_a_folder_or_a_marker_is_no_key(text):
    assert not is_key(text)


# What differs between two sightings of one failure.
WORD = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
VOLATILE = {
    "path": st.lists(WORD, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts) + ".py"),
    "scratch": st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=8, max_size=8).map("tmp{}".format),
    "link": WORD.map("https://example.org/{}?q=1".format),
    "memory": st.integers(0, 2**48).map(hex),
    "commit": st.text("0123456789abcdef", min_size=10, max_size=40),
    "uuid": st.uuids().map(str),
    "pid": st.integers(1, 4_000_000).map(str),
    "peer": st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map(lambda at: f"[{at[0]}]:{at[1]}"),
    "peer6": st.tuples(st.ip_addresses(v=6), st.integers(1, 65535)).map(lambda at: f"[{at[0]}]:{at[1]}"),
    "time": st.tuples(st.floats(0.001, 999), st.sampled_from(["ms", "s", " s", " seconds", "us"])).map(
        lambda at: f"{at[0]:.3f}{at[1]}"
    ),
    "version": st.sampled_from(["2.13.0", "2.14.0.dev20261129+cpu", "2.13.0a0+git1a2b3c4", "v3.15.1", "2.13.0rc1"]),
    "number": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "shape": st.lists(st.integers(0, 9999), min_size=1, max_size=4).map(lambda sizes: ", ".join(map(str, sizes))),
}
MESSAGE = (
    "torch {version} rank {pid}: File '{path}' ({path}:{pid}) via {link} in {scratch} at {memory}, git {commit} "
    "id {uuid}: gloo {peer} and {peer6} timed out after {time} with {number} for shape [{shape}]"
)
SIGHTINGS = st.fixed_dictionaries(VOLATILE)


@given(one=SIGHTINGS, other=SIGHTINGS)
def test_the_text_of_an_error_loses_what_differs_between_two_sightings(one, other):
    """D1: paths, addresses, ids, timings and versions are no difference."""
    assert normalise(MESSAGE.format(**one)) == normalise(MESSAGE.format(**other))


@given(one=SIGHTINGS, other=SIGHTINGS, template=st.permutations(sorted(VOLATILE)).map(lambda names: names[:4]))
def test_a_key_does_not_change_between_two_sightings(one, other, template):
    message = "bad: " + " or ".join(f"{{{name}}}" for name in template)
    keys = {
        key("crashed", error=ErrorInfo("RuntimeError", message.format(**seen), FRAMES), features=("x",))
        for seen in (one, other)
    }
    assert len(keys) == 1


def test_words_of_an_error_stay():
    assert normalise("\x1b[31mExpected Double but got Float\x1b[0m") == "expected double but got float"


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(["mean doubled", "mean missing", "no mean"], 2)))
def test_different_words_stay_different(one, other):
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fc1.weight", "weight"),
        ("0.weight", "weight"),
        ("lstm.weight_ih_l0", "weight_ih_l"),
        ("attn.in_proj_weight", "in_proj_weight"),
        ("sequential/dense_1/kernel", "kernel"),
        ("dense/bias:0", "bias"),
        ("norm.running_mean 1", "running_mean"),
        ("accuracy", "accuracy"),
        ("", ""),
    ],
)
def test_the_class_of_a_tensor_is_its_last_name_without_numbers(name, expected):
    assert tensor_class(name) == expected
