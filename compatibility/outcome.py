"""What becomes of one cell of the table."""

from typing import Final, Literal, NamedTuple

Kind = Literal["pass", "fail", "not offered"]
REASON_LENGTH_MAX: Final = 300


class NotOffered(Exception):
    """The client has no call for it."""


class Failed(Exception):
    """The client failed, or did something else than it was asked for; one line says what."""


class Missing(Exception):
    """The client's packages, or what they are built with, cannot be had here."""


class Outcome(NamedTuple):
    """A cell. ``reason``: why not, or what a cell that passes does without."""

    kind: Kind
    reason: str = ""


def one_line(text: str) -> str:
    """Short enough for a line under the table."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_LENGTH_MAX else line[: REASON_LENGTH_MAX - 1] + "…"
