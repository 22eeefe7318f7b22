"""Where to start reading: ``earliest``, ``latest``, an offset, or a time."""

from datetime import datetime

from streamlog.client.position import EARLIEST, LATEST, Offset, Position, Timestamp
from streamlog.errors import ConfigError


def parse_position(text: str, option: str = "--from") -> Position:
    """What ``option`` was given. Raises ConfigError.

    A time without a zone is local, as on the clock of this machine.
    """
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    if text.isascii() and text.isdigit():
        return Offset(int(text))
    time = _time(text)
    if time is None:
        remedy = "name earliest, latest, an offset, or a time such as 2026-01-31T18:00:00"
        raise ConfigError(option, f"{text!r} is no position", remedy)
    return time


def parse_time(text: str, option: str) -> Timestamp:
    """ISO 8601; local without a zone. Raises ConfigError."""
    time = _time(text)
    if time is None:
        remedy = "write it as 2026-01-31T18:00:00 or 2026-01-31T18:00:00Z"
        raise ConfigError(option, f"{text!r} is no time", remedy)
    return time


def _time(text: str) -> Timestamp | None:
    try:
        return Timestamp(int(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError):
        return None
