"""A trace on the terminal: a table of layers, a table of collectives, and one sentence for each first."""

from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3bot.judge import Traced

_ROWS = 12
"""Of a long table so many rows are shown, around the first that is wrong; `--json` has them all."""


def as_plain(traced: Traced) -> dict[str, Any]:
    """Return a trace as plain data, for machines; what is infinite is null there."""
    layers = [asdict(row) | {"error": _finite(row.error), "wrong": row.wrong} for row in traced.layers]
    collectives = [asdict(row) for row in traced.collectives]
    first = {"layer": traced.first_layer, "collective": traced.first_collective}
    return {
        "first_layer": layers[traced.layers.index(first["layer"])] if first["layer"] else None,
        "first_collective": collectives[traced.collectives.index(first["collective"])] if first["collective"] else None,
        "layers": layers,
        "collectives": collectives,
        "dropped": traced.dropped,
    }


def print_trace(console: Console, traced: Traced | None, same: bool) -> None:
    """Print what a trace shows; `same` says whether the traced run came out as the other did."""
    if traced is None:
        _say(console, "  no trace: one side did not end when it was watched, or left nothing")
        return
    if not same:
        _say(console, "  careful: watched, the trial does not come out as it does otherwise", "bold yellow")
    _layers(console, traced)
    _collectives(console, traced)
    layer, collective = traced.first_layer, traced.first_collective
    if layer:
        text = f"first layer: {layer.name} ({layer.of}) in step {layer.step}, wrong on rank {_numbers(layer.ranks)}"
    elif any(row.error is not None for row in traced.layers):
        text = "first layer: none; every output of the forward pass that was compared is within its bound"
    else:
        text = "first layer: unknown; no layer could be compared"
    _say(console, f"  {text}", "bold")
    if collective:
        where = f" on rank {_numbers(collective.ranks)}" if collective.ranks else ""
        text = f"{collective.name} {collective.number} in step {collective.step}: {collective.found}{where}"
    else:
        text = "none of those seen lost anything or carried what is wrong" if traced.collectives else "none was seen"
    _say(console, f"  first collective: {text}", "bold")
    if traced.dropped:
        _say(console, f"  {traced.dropped} events were beyond the limits of a trace")


def _layers(console: Console, traced: Traced) -> None:
    table = _table("step", "layer", "shape", "max |difference|", "bound", "")
    first = traced.layers.index(traced.first_layer) if traced.first_layer else 0
    for row in traced.layers[max(0, first - _ROWS // 3) :][:_ROWS]:
        error = row.why if row.error is None else f"{row.error:.3g}"
        mark = f"wrong on rank {_numbers(row.ranks)}" if row.wrong else ""
        shape = "x".join(map(str, row.shape))
        table.add_row(str(row.step), Text(f"{row.name} {row.of}"), shape, error, f"{row.bound:.3g}", mark)
    _show(console, table, len(traced.layers))


def _collectives(console: Console, traced: Traced) -> None:
    table = _table("step", "collective", "group", "elements", "sound", "")
    chosen = traced.first_collective
    first = traced.collectives.index(chosen) if chosen else 0
    words = {True: "yes", False: "no", None: ""}
    for row in traced.collectives[max(0, first - _ROWS // 3) :][:_ROWS]:
        sizes = " + ".join(map(str, row.sizes[:6])) + (" + ..." if len(row.sizes) > 6 else "")
        group = _numbers(row.group) or "?"
        table.add_row(str(row.step), f"{row.name} {row.number}", group, sizes, words[row.sound], Text(row.found))
    _show(console, table, len(traced.collectives))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _show(console: Console, table: Table, count: int) -> None:
    if table.row_count:
        console.print(table)
    if table.row_count < count:
        _say(console, f"  {table.row_count} of {count} shown; --json has them all", "dim")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _finite(number: float | None) -> float | None:
    return None if number is None or not np.isfinite(number) else number
