"""Scenarios as text: commands, ``----``, and the trace that they are to leave, block by block, as in etcd's testdata.

``python -m tests.scenarios --rewrite`` writes the traces again. A reader then decides whether they are right: the
difference that git shows is what a change of a core does.
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

LINE: Final = "----"


class Interpreter(Protocol):
    def run(self, command: str) -> list[str]:
        """The trace that it leaves."""


@dataclass(frozen=True)
class Block:
    commands: tuple[str, ...]
    """With comments and empty lines."""
    trace: tuple[str, ...]


def blocks_of(text: str) -> Iterator[Block]:
    """A trace ends at an empty line."""
    commands: list[str] = []
    trace: list[str] | None = None
    for line in text.splitlines():
        if trace is None:
            if line == LINE:
                trace = []
            else:
                commands.append(line)
        elif line:
            trace.append(line)
        else:
            yield Block(tuple(commands), tuple(trace))
            commands, trace = [], None
    if trace is not None:
        yield Block(tuple(commands), tuple(trace))
    elif any(line.strip() for line in commands):
        raise ValueError(f"the last commands have no {LINE}")


def played(text: str, run: Callable[[str], list[str]]) -> str:
    """The text with the traces that ``run`` leaves, command by command."""
    lines: list[str] = []
    for block in blocks_of(text):
        lines += [*block.commands, LINE]
        for command in block.commands:
            if command and not command.startswith("#"):
                try:
                    lines += run(command)
                except Exception as error:
                    error.add_note(f"command: {command}")
                    raise
        lines.append("")
    return "\n".join(lines)


def difference(name: str, expected: str, trace: str) -> str:
    before, after = expected.splitlines(), trace.splitlines()
    return "\n".join(difflib.unified_diff(before, after, name, "now", lineterm="", n=6))
