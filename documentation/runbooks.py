"""The commands of the runbooks.

In a block marked ``console`` a line ``$ COMMAND`` is for any machine, ``node-2$ COMMAND`` for that node's own.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from documentation.links import DOCS

FOLDER: Final = DOCS / "runbooks"

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"(?:node-(\d))?\$ (.+)")


class Step(NamedTuple):
    """One command; on a node's machine, or on any."""

    node: int | None
    command: str


def steps(text: str) -> Iterator[Step]:
    """All commands of a page, in their order; what follows a ``#`` is a comment."""
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            match = _LINE.fullmatch(line)
            if match:
                yield Step(
                    int(match[1]) if match[1] else None, match[2].partition("  #")[0].strip()
                )


def runbooks() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
