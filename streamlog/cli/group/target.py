"""Where a group is to go on: a position, or so many records on or back."""

from dataclasses import dataclass

from streamlog.cli.options.position import parse_position
from streamlog.client.position import Position
from streamlog.errors import ConfigError


@dataclass(frozen=True)
class Shift:
    """From what is committed, so many records on; back where it is negative."""

    records: int


Target = Position | Shift


def parse_target(to: str | None, by: int | None) -> Target:
    """Of ``--to`` and ``--shift-by``, one of which must be given. Raises ConfigError."""
    if (to is None) == (by is None):
        problem = "is missing" if to is None else "cannot go with --shift-by"
        remedy = "name one: --to earliest, latest, an offset or a time, or --shift-by a number of records"
        raise ConfigError("--to", problem, remedy)
    if by is not None:
        return Shift(by)
    assert to is not None
    return parse_position(to, "--to")
