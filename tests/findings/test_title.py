import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3bot.findings import title_of
from d3bot.findings.title import MAX_TITLE
from d3bot.spec import First, Setting
from tests.findings.samples import verdict

SHARD = "fsdp2(world=2, shard_dim=1)"


@pytest.mark.parametrize(
    ("setting", "seen", "title"),
    [
        (
            SHARD,
            verdict("diverged", first=First(step=0, role="grad", tensor="0.weight"), diagnosis="permuted: residual 0"),
            "fsdp2 + shard_dim=1: weight gradients differ from one process: permuted (2 ranks)",
        ),
        (
            "ddp(world=2, static_graph=true, broadcast_buffers=false)",
            verdict("diverged", first=First(role="buffer", tensor="norm.running_mean 1")),
            "ddp + broadcast_buffers=false + static_graph: running_mean buffers after training differ from one process "
            "(2 ranks)",
        ),
        (
            "collectives(world=2)",
            verdict("crashed", reason="ValueError: no part of group <ProcessGroup object at 0x7efec0397470>"),
            "collectives: ValueError: no part of group <ProcessGroup object> (2 ranks)",
        ),
        (
            SHARD,
            verdict("nonfinite", first=First(step=1, role="loss")),
            "fsdp2 + shard_dim=1: losses are NaN or infinite on one side only (2 ranks)",
        ),
        (SHARD, verdict("hung"), "fsdp2 + shard_dim=1: training never ends (2 ranks)"),
        (SHARD, verdict("died", reason="SIGSEGV"), "fsdp2 + shard_dim=1: a rank dies: SIGSEGV (2 ranks)"),
        (
            "mirrored(replicas=1)",
            verdict("crashed", reason="ValueError: @octocat #1").model_copy(update={"world": 1}),
            "mirrored: ValueError: @\u200boctocat #\u200b1 (1 rank)",
        ),
    ],
)
def test_a_title_says_setting_what_is_wrong_and_ranks(setting, seen, title):
    assert title_of(seen, Setting.parse(setting)) == title


@pytest.mark.parametrize(
    ("wrong", "title"),
    [
        (["step 0 grad 0.weight"], "weight gradients differ from one process"),
        (["step 0 grad 0.weight", "step 0 grad 0.bias"], "weight and bias gradients differ from one process"),
        (["step 0 grad 0.bias", "param 0.bias"], "bias gradients differ from one process, then parameters"),
        (
            ["step 0 grad a.bias", "step 0 grad a.weight", "step 0 grad a.scale", "step 1 loss 0", "param a.bias"],
            "gradients differ from one process, then losses and parameters",
        ),
    ],
)
def test_where_no_pattern_is_known_a_title_says_which_tensors_are_wrong(wrong, title):
    first = First(step=0, role="grad", tensor=wrong[0].split()[-1])
    seen = verdict("diverged", first=first, diagnosis="no known pattern; 3 of 4 elements are wrong")
    assert title_of(seen, Setting.parse("ddp(world=2)"), wrong) == f"ddp: {title} (2 ranks)"


@given(st.sampled_from(["diverged", "crashed", "died"]), st.text(max_size=600))
def test_a_title_fits_and_is_one_line(kind, text):
    seen = verdict(kind, reason=text, diagnosis=text, first=First(role="grad", tensor=text))
    title = title_of(seen, Setting.parse(SHARD))
    assert len(title) <= MAX_TITLE
    assert len(title.splitlines()) == 1
    assert title.startswith("fsdp2 + shard_dim=1: ")
    assert title.endswith("(2 ranks)")
