"""The section of docs/compatibility.md about the management API."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compatibility.management.known import KNOWN

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN: Final = "<!-- management: written by `python -m compatibility.management` -->"
END: Final = "<!-- end of management -->"


def write(version: str, requests: int, page: Path = PAGE) -> None:
    """Replace what is between the marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(markdown(version, requests))
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def markdown(version: str, requests: int) -> Iterator[str]:
    """Each difference, and its reason."""
    yield f"{requests} requests, {version}:"
    yield ""
    yield "| otherwise than JetStream | because |"
    yield "|---|---|"
    for row in KNOWN:
        yield f"| {row.what} | {row.why} |"
