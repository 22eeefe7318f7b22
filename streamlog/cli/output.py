"""What is printed: a table for eyes, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from streamlog.app.escapes import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from streamlog.findings import Finding


def say(
    text: object = "", *, end: str = "\n", to_stderr: bool = False, flush: bool = False
) -> None:
    """Some lines of text. All that commands print goes through here or one of those below, since
    there are names of others in it.
    """
    file = sys.stderr if to_stderr else sys.stdout
    print(visible_lines(str(text)), end=end, file=file, flush=flush)


def write_value(value: bytes) -> None:
    """A record's value on a line of its own; byte for byte, but for a terminal."""
    if sys.stdout.isatty():
        say(value.decode(errors="backslashreplace"))
    else:
        sys.stdout.buffer.write(value + b"\n")


def print_json(value: object) -> None:
    """One document on one line, as other programs like it."""
    say(visible_json(value))


def print_findings(found: "Iterable[Finding]") -> None:
    """A line on each with its code, what to do, and a line for each partition that it is about."""
    for it in found:
        mark = it.severity.upper() if it.severity in ("critical", "warning") else it.severity
        code = f" ({it.code})" if it.code else ""
        say(f"{mark:<8} {it.area}: {it.what}{code}")
        if it.remedy:
            say(f"{'':<8}   -> {it.remedy}")
        for line in it.details:
            say(f"{'':<8}   {line}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers to the right, all else to the left."""
    from rich.console import Console
    from rich.table import Table

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
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in pairs:
        table.add_row(visible(name), _shown(value))
    Console(highlight=False, markup=False).print(table)


def _shown(cell: object) -> str:
    return visible(_text(cell))


def _text(cell: object) -> str:
    if cell is None or cell in ("", {}, [], ()):
        return "-"
    if isinstance(cell, datetime):
        return cell.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:_}".replace("_", " ")
    if isinstance(cell, list | tuple):
        return ", ".join(str(item) for item in cell)
    return str(cell)
