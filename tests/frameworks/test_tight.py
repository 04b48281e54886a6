"""A script in fewer lines: the same Python, and nothing where a rule does not know what it sees."""

import ast
import sys

import numpy as np
import pytest

from d3bot.frameworks import View, obstacle, render, standing_settings
from d3bot.frameworks.tight import WIDTH, tightened
from d3bot.generate import fresh_cases
from d3bot.spec import FRAMEWORKS, Framework, Setting

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
        "nothing is propagated of which nothing is seen, and what is seen needs no name",
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
    return {"step 0 loss 0": model(data(0)).detach().numpy()}
""",
    ),
    (
        "a loss of two terms",
        """\
def reference():
    model, seen = build(), {}
    parts = zip(*(tensor.tensor_split(2) for tensor in data(0)))
    for rank, part in enumerate(parts):  # the ranks' shards
        loss = model(part) + penalty(model)
        seen[f"step 0 loss {rank}"] = loss.detach().numpy()
    return seen
""",
        """\
def reference():
    model, seen = build(), {}
    for rank, part in enumerate(zip(*(tensor.tensor_split(2) for tensor in data(0)))):  # the ranks' shards
        seen[f"step 0 loss {rank}"] = (model(part) + penalty(model)).detach().numpy()
    return seen
""",
    ),
    (
        "a loss that the backward pass begins with keeps its name",
        """\
def reference():
    model, seen = build(), {}
    optimizer = SGD(model)
    loss = model(data(0))
    loss.backward()
    seen["step 0 loss 0"] = loss.detach().numpy()
    optimizer.step()
    return seen
""",
        """\
def reference():
    model, seen = build(), {}
    optimizer = SGD(model)
    loss = model(data(0))
    loss.backward()
    seen["step 0 loss 0"] = loss.detach().numpy()
    optimizer.step()
    return seen
""",
    ),
    (
        "what tells names apart is called where it is returned",
        """\
def distributed():
    model, seen = build(), {}
    optimizer = SGD(model)
    seen |= named(update(model, optimizer))
    return seen
""",
        """\
def distributed():
    model = build()
    optimizer = SGD(model)
    return named(update(model, optimizer))
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


SETTING: dict[Framework, Setting] = {
    "torch": Setting.parse("ddp(world=2)"),
    "tensorflow": Setting.parse("mirrored(replicas=2)"),
}


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


def test_modules_that_are_used_once_are_called_by_their_own_names_but_not_in_what_was_printed() -> None:
    head = '"""dist.barrier: no."""\n\nimport torch\n'
    once = "import torch.distributed as dist\n\n\ndef main():\n    dist.barrier()\n"
    assert tightened(head + once) == head + "\n\ndef main():\n    torch.distributed.barrier()\n"
    twice = head + once + "    dist.barrier()\n"
    assert tightened(twice) == twice


def run_table(framework: Framework, bound: float, ranks: list[dict[str, object]], want: dict[str, object]) -> int:
    """Return the exit code of the table that a tightened script writes, given what both sides come to."""
    case = next(case for case in fresh_cases(framework, 3, 12) if obstacle(case, SETTING[framework]) is None)
    short = tightened(render(case, SETTING[framework], "A script.", View(frozenset(("grad",)), {}, bound)).text)
    main = next(node for node in ast.parse(short).body if isinstance(node, ast.FunctionDef) and node.name == "main")
    body = [node for node in main.body if not isinstance(node, ast.With)]
    names = {"np": np, "sys": sys, "BOUND": bound, "ranks": ranks}
    names |= {"reference": lambda: want, "distributed": lambda: ranks[0]}
    with pytest.raises(SystemExit) as ended:
        exec(compile(ast.Module(body, []), "main", "exec"), names)
    assert type(ended.value.code) in (bool, int)
    return int(ended.value.code)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("seen", "code"),
    [(1.0, 0), (1.0 + 1e-13, 0), (1.0 + 1e-9, 1), (float("nan"), 1), (float("inf"), 1)],
)
def test_the_short_table_says_in_its_exit_code_whether_the_sides_agree(
    framework: Framework, seen: float, code: int
) -> None:
    want = {"step 0 grad a": np.ones(3), "step 0 grad b": np.array(1.0)}
    right = {"step 0 grad a": np.ones(3), "step 0 grad b": np.array(1.0)}
    assert run_table(framework, 1e-12, [right | {"step 0 grad a": np.array([1.0, seen, 1.0])}, right], want) == code
    assert run_table(framework, 1e-12, [right | {"step 0 grad b": np.array(seen)}, right], want) == code


def test_arrays_of_another_shape_are_told_not_subtracted() -> None:
    """K1: a script that stops at the first such array proves nothing."""
    setting = Setting.parse("fsdp2(world=2)")
    case = next(case for case in fresh_cases("torch", 3, 12) if obstacle(case, setting) is None)
    text = render(case, setting, "A script.", View(frozenset(("grad",)))).text
    assert "shapes != {expected.shape}" in tightened(text, "shapes")
    assert "rank[name] - " not in tightened(text, "shapes")
    assert "np.nan" in tightened(text, "any")
