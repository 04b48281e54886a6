"""A script in fewer lines: the same Python, and nothing where a rule does not know what it sees."""

import ast

import pytest

from d3bot.frameworks import View, obstacle, render, standing_settings
from d3bot.frameworks.tight import WIDTH, tightened
from d3bot.generate import fresh_cases
from d3bot.spec import Framework, Setting

RULES = [
    (
        "a gradient of every parameter",
        """\
def reference():
    model, seen = build(), {}
    loss = F.mse_loss(model(data(0)), 1)
    loss.backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            seen[f"step 0 grad {name}"] = p.grad.numpy().copy()
    return seen
""",
        """\
def reference():
    model = build()
    nn.functional.mse_loss(model(data(0)), 1).backward()
    return {f"step 0 grad {name}": p.grad.numpy().copy() for name, p in model.named_parameters()}
""",
    ),
    (
        "a loss that is looked at keeps its name, and nothing is propagated of which nothing is seen",
        """\
def reference():
    model, seen = build(), {}
    loss = model(data(0))
    loss.backward()
    seen["step 0 loss 0"] = loss.detach().numpy()
    return seen
""",
        """\
def reference():
    model = build()
    loss = model(data(0))
    return {"step 0 loss 0": loss.detach().numpy()}
""",
    ),
    (
        "arrays as they are drawn",
        """\
def data(step):
    generator = torch.Generator().manual_seed(1 + step)
    x = torch.randn((2, 4), generator=generator)
    target = torch.randn((2, 1), generator=generator)
    return x, target
""",
        """\
def data(step):
    generator = torch.Generator().manual_seed(1 + step)
    return torch.randn((2, 4), generator=generator), torch.randn((2, 1), generator=generator)
""",
    ),
    (
        "what is seen twice has a name",
        """\
def distributed(rank, store):
    model, seen = build(), {}
    seen |= {f"param {name}": p for name, p in model.named_parameters()}
    seen |= {f"buffer {name}": b for name, b in model.named_buffers()}
    return seen
""",
        """\
def distributed(rank, store):
    model, seen = build(), {}
    seen |= {f"param {name}": p for name, p in model.named_parameters()}
    seen |= {f"buffer {name}": b for name, b in model.named_buffers()}
    return seen
""",
    ),
    (
        "nothing is seen",
        """\
def distributed(rank, store):
    model, seen = build(), {}
    model(data(0))
    return seen
""",
        """\
def distributed(rank, store):
    model = build()
    model(data(0))
""",
    ),
    (
        "nothing is seen, but somebody asks",
        """\
def train(strategy, steps, path):
    model, seen = build(), {}
    return seen


def distributed():
    return train(None, range(1), "kept") | train(None, range(1, 2), "kept")
""",
        """\
def train(strategy, steps, path):
    model, seen = build(), {}
    return seen


def distributed():
    return train(None, range(1), "kept") | train(None, range(1, 2), "kept")
""",
    ),
]


@pytest.mark.parametrize(("text", "short"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_each_rule_on_what_it_is_for(text: str, short: str) -> None:
    head = "import torch.nn.functional as F\nfrom torch import nn\n\n\n"
    assert tightened(head + text).split("\n\n\n", 1)[1] == short


def test_a_frozen_parameter_has_no_gradient() -> None:
    text = RULES[0][1].replace("    loss =", "    model[0].requires_grad_(False)\n    loss =", 1)
    assert "if p.grad is not None" in tightened(text)


def too_long(text: str) -> int:
    return sum(len(line) > WIDTH for line in text.splitlines())


SETTINGS = [(framework, setting) for framework in ("torch", "tensorflow") for setting in standing_settings(framework)]


@pytest.mark.parametrize(("framework", "setting"), SETTINGS, ids=[str(setting) for _, setting in SETTINGS])
def test_whatever_is_rendered_stays_a_script_with_its_functions(framework: Framework, setting: Setting) -> None:
    cases = [case for case in fresh_cases(framework, 3, 12) if obstacle(case, setting) is None]
    for case in cases[:3]:
        for roles in (frozenset(("grad",)), frozenset(("param",)), frozenset(("loss",))):
            small = case.model_copy(update={"steps": 1, "freeze": (), "groups": (), "skips": ()})
            text = render(small, setting, "A script.", View(roles)).text
            short = tightened(text)
            names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
            left = {node.name for node in ast.parse(short).body if isinstance(node, ast.FunctionDef)}
            assert names - left <= {"loss_of", "named", "after", "full"}
            assert len(short.splitlines()) <= len(text.splitlines())
            assert too_long(short) <= too_long(text)
            assert tightened(short) == short


def test_arrays_of_another_shape_are_told_not_subtracted() -> None:
    """K1: a script that stops at the first such array proves nothing."""
    setting = Setting.parse("fsdp2(world=2)")
    case = next(case for case in fresh_cases("torch", 3, 12) if obstacle(case, setting) is None)
    text = render(case, setting, "A script.", View(frozenset(("grad",)))).text
    assert "shapes != {expected.shape}" in tightened(text, "shapes")
    assert "rank[name] - " not in tightened(text, "shapes")
    assert "np.nan" in tightened(text, "any")
