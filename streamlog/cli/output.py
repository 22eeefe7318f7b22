"""What is printed: a table for eyes, JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table


def print_json(value: object) -> None:
    """One document on one line, as other programs like it."""
    print(json.dumps(value, ensure_ascii=False, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers to the right, all else to the left."""
    lines = [tuple(row) for row in rows]
    table = Table(header_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(lines) and all(isinstance(line[i], int | float) for line in lines)
        short = numeric or (bool(lines) and all(isinstance(line[i], datetime) for line in lines))
        table.add_column(column, justify="right" if numeric else "left", no_wrap=short)
    for line in lines:
        table.add_row(*(_shown(cell) for cell in line))
    Console(highlight=False, markup=False).print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value, one a line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in pairs:
        table.add_row(name, _shown(value))
    Console(highlight=False, markup=False).print(table)


def _shown(cell: object) -> str:
    if cell is None or cell in ("", {}, [], ()):
        return "-"
    if isinstance(cell, datetime):
        return cell.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:_}".replace("_", " ")
    if isinstance(cell, list | tuple):
        return ", ".join(str(item) for item in cell)
    return str(cell)
