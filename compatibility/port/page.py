"""The section of docs/compatibility.md about clients of the port."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from compatibility import table
from compatibility.peer import Peer
from compatibility.port.checks import CHECKS
from compatibility.results import Row

BEGIN: Final = "<!-- port: written by `python -m compatibility.port` -->"
END: Final = "<!-- end of port -->"
RESULTS: Final = Path(__file__).with_name("results.json")


def write(peers: Sequence[Peer], rows: Mapping[str, Row], page: Path = table.PAGE) -> None:
    table.replace(page, BEGIN, END, markdown(peers, rows))


def markdown(peers: Sequence[Peer], rows: Mapping[str, Row]) -> Iterator[str]:
    """What was done, and what came of it."""
    yield "| column | what was done |"
    yield "|---|---|"
    yield from (f"| {check.title} | {check.what} |" for check in CHECKS)
    yield ""
    yield from table.grid(CHECKS, peers, rows)
