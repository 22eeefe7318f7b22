"""Where to start reading: ``earliest``, ``latest``, an offset, or a time."""

from datetime import datetime

from streamlog.errors import ConfigError

Position = str | int | datetime
"""``"earliest"``, ``"latest"``, an offset, or a time with its zone."""


def parse_position(text: str) -> Position:
    """Raises ConfigError. A time without a zone is local, as on the clock of whoever asks."""
    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        remedy = "name earliest, latest, an offset, or a time such as 2026-01-31T18:00:00"
        raise ConfigError("--from", f"{text!r} is no position", remedy) from None
