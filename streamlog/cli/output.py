"""What is printed: a table for eyes, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final
from unicodedata import combining, east_asian_width

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


def control_terminal(sequence: str) -> None:
    """Has the terminal do something. The sequence is one of ours, and has no text of others."""
    print(sequence, end="", flush=True)


def write_value(value: bytes) -> None:
    """A record's value on a line of its own; byte for byte, but for a terminal."""
    if sys.stdout.isatty():
        say(value.decode(errors="backslashreplace"))
    else:
        sys.stdout.buffer.write(value + b"\n")


as_yaml: ContextVar[bool] = ContextVar("as_yaml", default=False)
"""Whether a document is YAML, not JSON."""


def print_json(value: object) -> None:
    """One document on one line, as other programs like it; or one of YAML."""
    say(document(value), end="")


def document(value: object) -> str:
    """In the format that was asked for, with the end of its line; of several each is one."""
    text = visible_json(value)
    if not as_yaml.get():
        return text + "\n"
    import yaml

    said: str = yaml.dump(
        json.loads(text), explicit_start=True, sort_keys=False, Dumper=_dumper(), width=1 << 20
    )
    return said


def _dumper() -> Any:
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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


GAP: Final = "  "


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers to the right, all else to the left; nothing is cut off, but lines are folded at a terminal."""
    lines = [tuple(row) for row in rows]
    is_number = [
        bool(lines) and all(isinstance(line[i], int | float | Size) for line in lines)
        for i in range(len(columns))
    ]
    cells = [columns, *([_shown(cell) for cell in line] for line in lines)]
    for i, line in enumerate(_laid_out(cells, is_number)):
        if i == 0 and sys.stdout.isatty():
            print(f"\x1b[1m{line}\x1b[0m")
        else:
            say(line)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value, one a line."""
    for line in _laid_out(
        [(visible(name), _shown(value)) for name, value in pairs], (False, False)
    ):
        say(line)


def _laid_out(rows: Sequence[Sequence[str]], is_number: Sequence[bool]) -> Iterator[str]:
    """Lines of columns. At a terminal the widest columns of text are folded until a line fits."""
    widths = [max(map(width_of, column), default=0) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty():
        left = columns_of_terminal()
        while sum(widths) + len(GAP) * (len(widths) - 1) > left:
            widest = max(range(len(widths)), key=lambda i: (not is_number[i], widths[i]))
            if widths[widest] <= NARROWEST:
                break
            widths[widest] -= 1
    for row in rows:
        folded = [list(_folded(cell, width)) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*folded, fillvalue=""):
            line = GAP.join(
                _padded(part, width, to_right=right)
                for part, width, right in zip(parts, widths, is_number, strict=True)
            )
            yield line.rstrip()


NARROWEST: Final = 12
"""Columns of a column that is not folded further."""


def columns_of_terminal() -> int:
    return shutil.get_terminal_size().columns


def width_of(text: str) -> int:
    """In columns of a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(it) else 2 if east_asian_width(it) in "WF" else 1 for it in text)


def _folded(text: str, width: int) -> Iterator[str]:
    """At spaces, if there are some."""
    while width_of(text) > width:
        end = next(i for i in range(len(text), 0, -1) if i == 1 or width_of(text[:i]) <= width)
        space = text.rfind(" ", 0, end + 1)
        end = space + 1 if space > 0 else end
        yield text[:end].rstrip()
        text = text[end:]
    yield text


def _padded(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if to_right else text + space


class Size(int):
    """Bytes, as eyes like them: about 1.4 MiB."""

    def __str__(self) -> str:
        value = float(self)
        for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
            if abs(value) < 1024 or unit == "TiB":
                break
            value /= 1024
        return f"{int(self)} B" if unit == "B" else f"{value:.1f} {unit}"


def _shown(cell: object) -> str:
    return visible(_text(cell))


def _text(cell: object) -> str:
    if cell is None or cell in ("", {}, [], ()):
        return "-"
    if isinstance(cell, Size):
        return str(cell)
    if isinstance(cell, datetime):
        return cell.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:_}".replace("_", " ")
    if isinstance(cell, list | tuple):
        return ", ".join(str(item) for item in cell)
    return str(cell)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """On standard error, where that is a terminal; the function is told of what has been done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(visible(label), total=total)
        yield lambda count: progress.advance(task, count)
