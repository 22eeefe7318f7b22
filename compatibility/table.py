"""``docs/compatibility.md``: a row for each client, a column for each check, reasons below."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from compatibility.checks.catalogue import CHECKS, OF_ONE_CLIENT
from compatibility.outcome import Kind, Outcome
from compatibility.peer import Peer
from compatibility.results import Row

PAGE: Final = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN: Final = "<!-- table: written by `python -m compatibility` -->"
END: Final = "<!-- end of table -->"
SIGNS: Final[Mapping[Kind, str]] = {"pass": "✔", "fail": "✘", "not offered": "\N{EN DASH}"}


class Column(Protocol):
    """What is checked."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...


def write(peers: Sequence[Peer], rows: Mapping[str, Row], page: Path = PAGE) -> None:
    """Replace what is between the marks."""
    replace(page, BEGIN, END, markdown(peers, rows))


def replace(page: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Of the page what is between these marks."""
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    text = "\n".join(lines)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def markdown(peers: Sequence[Peer], rows: Mapping[str, Row]) -> Iterator[str]:
    """The table, a line for each reason of a client, and what few clients offer."""
    yield from grid([it for it in CHECKS if it.name not in OF_ONE_CLIENT], peers, rows)
    yield from _beyond(peers, rows)


def grid(
    columns: Sequence[Column], peers: Sequence[Peer], rows: Mapping[str, Row]
) -> Iterator[str]:
    """The table, and a line for each reason of a client."""
    notes: list[str] = []
    yield "| client | " + " | ".join(check.title for check in columns) + " |"
    yield "|---|" + ":-:|" * len(columns)
    for peer in peers:
        if peer.name in rows:
            row = rows[peer.name]
            cells = [_sign(row.cells.get(check.name), peer.title, notes) for check in columns]
            yield f"| {peer.title} {row.version} | " + " | ".join(cells) + " |"
    yield ""
    yield from (f"{number}. {note}" for number, note in enumerate(notes, 1))


def _sign(outcome: Outcome | None, client: str, notes: list[str]) -> str:
    if outcome is None:
        return " "
    if not outcome.reason:
        return SIGNS[outcome.kind]
    note = f"{client}: {outcome.reason}"
    if note not in notes:
        notes.append(note)
    return f"{SIGNS[outcome.kind]} <sup>{notes.index(note) + 1}</sup>"


def _beyond(peers: Sequence[Peer], rows: Mapping[str, Row]) -> Iterator[str]:
    """What only one client or two offer."""
    for check in (check for check in CHECKS if check.name in OF_ONE_CLIENT):
        for peer in peers:
            row = rows.get(peer.name)
            outcome = row.cells.get(check.name) if row is not None else None
            if row is None or outcome is None or outcome.kind == "not offered":
                continue
            told = f" {outcome.reason}" if outcome.reason else ""
            yield ""
            what = f"{check.title.capitalize()}, read by {peer.title} {row.version}"
            yield f"{what}: {SIGNS[outcome.kind]}{told}"
