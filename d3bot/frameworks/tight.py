"""A rendered script as short as a person would write it: what is named once and used once needs no name.

Templates are written for every case; a filed script is of one.  Each rule below is a rewriting of whole lines that the
templates write; where its lines are not there, it changes nothing.
"""

import ast
import re
from collections.abc import Callable
from typing import Literal

WIDTH = 120

Table = Literal["paired", "shapes", "any"]

_HEAD = re.compile(r"def \w+\(.*\):")
_EACH = re.compile(
    r"^(?P<pad> *)for name, p in (?P<of>.+):\n"
    r"(?P=pad)    if p\.grad is not None:\n"
    r"(?P=pad)        seen\[(?P<key>f\"[^\"\n]*\")\] = (?P<value>.+)$",
    re.MULTILINE,
)
_LOSS = re.compile(
    r"^(?P<pad> *)loss = (?P<loss>.+)\n(?P=pad)(?P<use>loss|\(loss / (?P<by>\w+)\))\.backward\(\)$", re.M
)
_LOOKED = re.compile(
    r"^(?P<pad> *)loss = (?P<loss>.+)\n(?P=pad)(?P<to>return \{.+: |seen\[.+\] = )loss(?P<end>\.detach.+)$", re.M
)
_PARTS = re.compile(
    r"^(?P<pad> *)parts = (?P<parts>.+)\n"
    r"(?P=pad)for (?P<each>.+) in (?P<counted>enumerate\()?parts\)?:(?P<rest>.*)$",
    re.MULTILINE,
)
_RETURNED = re.compile(r"^    model = (?P<model>.+)\n    return model$", re.MULTILINE)
_UPDATED = re.compile(r"^    seen \|= (?P<seen>\{.+\}|named\(.+\))\n    return seen$", re.MULTILINE)
_STORED = re.compile(r"^    seen\[(?P<key>f?\"[^\"\n]*\")\] = (?P<value>.+)\n    return seen$", re.MULTILINE)
_EMPTY = re.compile(r"^(?P<pad> +)model, seen = build\(\), \{\}$", re.MULTILINE)
_LAST = re.compile(r"def (?:reference|distributed)\(|def train\(strategy, plain=False\):")
_NOTHING = re.compile(r"^    return seen\n$", re.MULTILINE)
_BATCH = re.compile(r"(?<![\w.\"])data\((\w+)\)")
_SEED = re.compile(r"\((\d+) \+ step\)")
"""Of a batch's generator, in `data(step)`."""
_AFTER = re.compile(r"def after\(model, seen\):\n(?P<body>    seen \|= \{.+\}\n)    return seen\n$")
_FORWARD_ONLY = re.compile(r"^ *(?:loss|\(loss / \w+\))\.backward\(\)\n", re.MULTILINE)
_IMPORTED = re.compile(r"^from (?P<module>[\w.]+) import (?P<names>\w+(?:, \w+)*)\n", re.MULTILINE)
_INTERFACE = ("build", "data", "reference", "distributed", "main")
_CONSTANT = re.compile(r"^(?P<name>(?!BOUND|ENV)[A-Z]+) = (?P<value>\d+)\n", re.MULTILINE)
_MADE = re.compile(r"^    (?P<name>model|all_rows) = (?P<value>.+)\n", re.MULTILINE)

_LOSS_OF = re.compile(r"def loss_of\(model, (?P<rows>[\w, ]+)\):\n    return (?P<loss>.+)\n$")
_CALL = re.compile(
    r"^(?P<pad> *)(?P<before>.*)loss_of\((?P<model>\w+), \*(?P<rows>.+?)\)(?P<after>(?: / \w+\))?(?:\.backward\(\))?)$",
    re.MULTILINE,
)
_LOOPED = re.compile(
    r"^(?P<pad> *)for (?P<count>\w+, )?part in (?P<of>.+)\n"
    r"(?P=pad)    (?P<before>.*)loss_of\((?P<model>\w+), \*part\)(?P<after>.*)$",
    re.M,
)
_ALLOWED = {"BOUND": "error in errors.values()", "BOUNDS.get(name, 0)": "name, error in errors.items()"}
"""What a script allows, and over what it is asked."""
_TABLE = """\
    expected, wrong = reference(), False
    for name in dict.fromkeys([*expected, *(name for rank in ranks for name in rank)]):
        want = expected.get(name, np.nan)  # nan: the reference has no such array
        errors = [np.abs(rank[name] - want).max(initial=0) for rank in ranks if name in rank]
        bad = not np.max(errors or [np.nan]) <= {bound}
        wrong |= bad
        print(f"{{name:32}} max|difference| {{np.max(errors or [np.nan]):.3g}}{{'   <-- WRONG' * bad}}")
    sys.exit(int(wrong))
"""
_ONE_TABLE = """\
    seen, expected, wrong = distributed(), reference(), False
    for name in dict.fromkeys([*expected, *seen]):
        error = np.abs(seen.get(name, np.nan) - expected.get(name, np.nan)).max(initial=0)  # nan: one side lacks it
        bad = not error <= {bound}
        wrong |= bad
        print(f"{{name:40}} max|difference| {{error:.3g}}{{'   <-- WRONG' * bad}}")
    sys.exit(int(wrong))
"""
_TOLD = """\
    for name, error in errors.items():
        print(f"{{name:32}} max|difference| {{error:.3g}}{{'   <-- WRONG' * (not error <= {bound})}}")
    raise SystemExit(any(not error <= {bound} for {each}))
"""
_PAIRED = """\
    errors = {name: np.abs([r[name] - want for r in ranks if name in r]).max() for name, want in reference().items()}
"""
_ONE_PAIRED = """\
    seen = distributed()
    errors = {name: np.abs(seen[name] - want).max() for name, want in reference().items()}
"""
_SHAPES = """\
    wrong = False
    for name, expected in reference().items():
        shapes = {rank[name].shape for rank in ranks if name in rank}
        wrong |= (bad := shapes != {expected.shape})
        print(f"{name:32} {shapes}, expected {expected.shape}{'   <-- WRONG' * bad}")
    sys.exit(int(wrong))
"""
_NN = "from torch import nn\n"
_LONG_NAMES = (
    ("import torch.nn.functional as F\n", "F", "nn.functional", 2),
    ("import torch.distributed as dist\n", "dist", "torch.distributed", 1),
    ("import torch.multiprocessing as mp\n", "mp", "torch.multiprocessing", 1),
)
"""Imports under a short name, what they are without it, and in how many places that is shorter than the import."""


def tightened(text: str, table: Table = "paired") -> str:
    """Return a formatted script in fewer lines that does the same.

    `table` says what the table of differences must care for: nothing where every array is there on both sides, arrays
    of another shape, or any that one side lacks.
    """
    blocks = re.split(r"(?<=\n)\n\n(?=\S)", text)
    blocks = _without_after(blocks)
    freezes = "requires_grad_(" in text
    blocks = _without_loss([_function(block, freezes, table) if _HEAD.match(block) else block for block in blocks])
    blocks = [_looked(_parts(block)) if _HEAD.match(block) else block for block in blocks]
    short = _without_constants(_one_batch(_used("\n\n".join(blocks))))
    return _without_short_names(short if "sys.exit" in short else short.replace("import sys\n", "", 1))


def _used(text: str) -> str:
    """Return the text without helpers that nothing calls any more, and without what they alone imported."""
    blocks = re.split(r"(?<=\n)\n\n(?=\S)", text)
    names = [(match[1] if (match := re.match(r"def (\w+)\(", block)) else "") for block in blocks]
    kept = [
        block
        for name, block in zip(names, blocks, strict=True)
        if not name or name in _INTERFACE or len(re.findall(rf"\b{name}\b", text)) > 1
    ]
    if len(kept) == len(blocks):
        return text
    short = "\n\n".join(kept)

    def wanted(match: re.Match[str]) -> str:
        used = [name for name in match["names"].split(", ") if len(re.findall(rf"\b{name}\b", short)) > 1]
        return f"from {match['module']} import {', '.join(used)}\n" if used else ""

    return _used(_IMPORTED.sub(wanted, short))


def _without_after(blocks: list[str]) -> list[str]:
    """Return the functions with what is taken after the last step written where it is returned, if it is a line."""
    found = next((match for block in blocks if (match := _AFTER.match(block))), None)
    if found is None:
        return blocks
    taken = f"{found['body']}    return seen\n"
    return [block.replace("    return after(model, seen)\n", taken) for block in blocks if not _AFTER.match(block)]


def _without_loss(blocks: list[str]) -> list[str]:
    """Return the functions with the loss written where it is taken, if that is in two places at most."""
    found = next((match for block in blocks if (match := _LOSS_OF.match(block))), None)
    calls = [call for block in blocks for call in _CALL.findall(block)]
    if found is None or len(calls) != sum(block.count("loss_of(") for block in blocks) - 1 or len(calls) > 2:
        return blocks

    def written(match: re.Match[str]) -> str:
        loss = re.sub(r"\bmodel\b", match["model"], found["loss"])
        lines = [
            f"{match['pad']}{found['rows']} = {match['rows']}",
            f"{match['pad']}{match['before']}{loss}{match['after']}",
        ]
        whole = match["rows"].count("(") == match["rows"].count(")")
        return "\n".join(lines) if whole and max(map(len, lines)) <= WIDTH else match[0]

    def looped(match: re.Match[str]) -> str:
        loss = re.sub(r"\bmodel\b", match["model"], found["loss"])
        count, rows = match["count"] or "", found["rows"]
        lines = [f"{match['pad']}for {count}{f'({rows})' if count else rows} in {match['of']}"]
        lines += [f"{match['pad']}    {match['before']}{loss}{match['after']}"]
        return "\n".join(lines) if max(map(len, lines)) <= WIDTH else match[0]

    short = [_CALL.sub(written, _LOOPED.sub(looped, block)) for block in blocks]
    left = sum(block.count("loss_of(") for block in short)
    return [block for block in short if not _LOSS_OF.match(block)] if left == 1 else blocks


def _function(body: str, freezes: bool, table: Table) -> str:
    body = re.sub(r"\n\n+(?= )", "\n", body)
    if not freezes:  # every parameter has a gradient
        body = _EACH.sub(_gathered, body)
    body = _table(body, table)
    for rule in (_loss, _returned, _unseen, _seen, _data, _wrapped):
        body = rule(body)
    return body


def _table(body: str, table: Table) -> str:
    """Write the table of differences for arrays that both sides have, or for those of another shape."""
    for bound, each in _ALLOWED.items():
        told = _TOLD.format(bound=bound, each=each)
        long, long_one = _TABLE.format(bound=bound), _ONE_TABLE.format(bound=bound)
        if table == "shapes":
            body = body.replace(long, _SHAPES)
        elif table == "paired":
            body = body.replace(long, _PAIRED + told).replace(long_one, _ONE_PAIRED + told)
    return body


def _gathered(match: re.Match[str]) -> str:
    line = f"{match['pad']}seen |= {{{match['key']}: {match['value']} for name, p in {match['of']}}}"
    return line if len(line) <= WIDTH else match[0]


def _loss(body: str) -> str:
    if "loss.detach()" in body and not re.search(r"\boptimizer\b|\.grad\b", body):
        body = _FORWARD_ONLY.sub("", body)  # nothing that comes of it is looked at

    def inlined(match: re.Match[str]) -> str:
        by = f" / {match['by']}" if match["by"] else ""
        loss = f"({match['loss']}{by})" if by or _is_sum(match["loss"]) else match["loss"]
        line = f"{match['pad']}{loss}.backward()"
        return line if len(line) <= WIDTH else match[0]

    return _LOSS.sub(inlined, body) if len(re.findall(r"\bloss\b", body)) == 2 * len(_LOSS.findall(body)) else body


def _is_sum(expression: str) -> bool:
    return isinstance(ast.parse(expression, mode="eval").body, ast.BinOp)


def _parts(body: str) -> str:
    def looped(match: re.Match[str]) -> str:
        parts = f"enumerate({match['parts']})" if match["counted"] else match["parts"]
        return f"{match['pad']}for {match['each']} in {parts}:{match['rest']}"

    return body if len(re.findall(r"\bparts\b", body)) != 2 else _fitting(_PARTS, body, looped)


def _looked(body: str) -> str:
    """Write a loss of which nothing but the number is wanted where it is looked at."""

    def at_once(match: re.Match[str]) -> str:
        loss = f"({match['loss']})" if _is_sum(match["loss"]) else match["loss"]
        return f"{match['pad']}{match['to']}{loss}{match['end']}"

    return body if len(re.findall(r"\bloss\.|\bloss =", body)) != 2 else _fitting(_LOOKED, body, at_once)


def _returned(body: str) -> str:
    return _fitting(_RETURNED, body, lambda match: f"    return {match['model']}")


def _unseen(body: str) -> str:
    """Leave out a dictionary in which nothing is stored, of a function whose caller does nothing with it."""
    if (
        not _LAST.match(body)
        or len(re.findall(r"\bseen\b", body)) != 2
        or not _EMPTY.search(body)
        or not _NOTHING.search(body)
    ):
        return body
    return _NOTHING.sub("", _EMPTY.sub(r"\g<pad>model = build()", body))


def _seen(body: str) -> str:
    """Return what is seen as it is made, where it is made in one place and at the end."""
    if len(re.findall(r"\bseen\b", body)) != 3 or not _EMPTY.search(body):
        return body
    short = _fitting(_UPDATED, body, lambda match: f"    return {match['seen']}")
    short = _fitting(_STORED, short, lambda match: f"    return {{{match['key']}: {match['value']}}}")
    return _EMPTY.sub(r"\g<pad>model = build()", short) if short != body else body


def _data(body: str) -> str:
    """Return arrays as they are drawn, in the order in which they were."""
    if not body.startswith("def data("):
        return body
    lines = body.rstrip("\n").split("\n")
    drawn = [re.match(r"^    (\w+) = (.+)$", line) for line in lines[1:-1]]
    names = [match[1] for match in drawn if match]
    wanted = lines[-1].removeprefix("    return ").split(", ")
    start = len(drawn) - len(wanted)
    if names[start:] != wanted or not all(drawn[start:]):
        return body
    values = [match[2] for match in drawn[start:] if match]
    line = f"    return {', '.join(values)}"
    if len(line) > WIDTH or any(re.search(rf"\b{name}\b", value) for name in wanted for value in values):
        return body
    return "\n".join([*lines[: 1 + start], line]) + "\n"


def _wrapped(body: str) -> str:
    """Write the model or the rows where they are used, if that is in one place and at once."""
    for made in _MADE.finditer(body):
        name, value = made["name"], made["value"]
        line, *rest = body[made.end() :].split("\n")
        if len(re.findall(rf"\b{name}\b", body)) == 2 and f"({name}" in line:
            line = line.replace(f"({name}", f"({value}")
            return body[: made.start()] + "\n".join([line, *rest]) if len(line) <= WIDTH else body
    return body


def _without_constants(text: str) -> str:
    """Return the text with the numbers written where they are used, of those that are used once."""
    for match in _CONSTANT.finditer(text):
        places = re.findall(rf"\b{match['name']}\b", text)
        if len(places) == 2:
            text = re.sub(rf"\b{match['name']}\b", match["value"], text.replace(match[0], "", 1))
    return text


def _one_batch(text: str) -> str:
    """Return the text with one batch where all that is asked for is that of step 0."""
    if set(_BATCH.findall(text)) != {"step", "0"} or "map(data," in text or len(_SEED.findall(text)) != 1:
        return text
    plain = _BATCH.sub("data()", text)
    return _SEED.sub(r"(\1)", plain)


def _without_short_names(text: str) -> str:
    """Return the text without imports under another name that would save less than their own line."""
    start = match.end() if (match := re.match(r'"""[^"]*(?:"[^"]+)*?"""\n', text)) else 0
    for line, name, full, most in _LONG_NAMES:
        used = re.compile(rf"(?<![\w.]){name}\.")
        if line in text and len(used.findall(text, start)) <= most and (full != "nn.functional" or _NN in text):
            plain = text[:start] + used.sub(f"{full}.", text[start:].replace(line, ""))
            text = plain if max(map(len, plain.splitlines())) <= WIDTH else text
    return text


def _fitting(pattern: re.Pattern[str], body: str, shorter: Callable[[re.Match[str]], str]) -> str:
    def chosen(match: re.Match[str]) -> str:
        line = shorter(match)
        return line if len(line) <= WIDTH else match[0]

    return pattern.sub(chosen, body)
