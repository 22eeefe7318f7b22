"""Where to start reading: ``earliest``, ``latest``, an offset, or a time."""

from datetime import datetime

from streamlog.client.position import EARLIEST, LATEST, Offset, Position, Timestamp
from streamlog.errors import ConfigError


def parse_position(text: str, option: str = "--from") -> Position:
    """What ``option`` was given. Raises ConfigError.

    A time without a zone is local, as on the clock of whoever asks.
    """
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    if text.isascii() and text.isdigit():
        return Offset(int(text))
    try:
        return Timestamp(int(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError):
        remedy = "name earliest, latest, an offset, or a time such as 2026-01-31T18:00:00"
        raise ConfigError(option, f"{text!r} is no position", remedy) from None
