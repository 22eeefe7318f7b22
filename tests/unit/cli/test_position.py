"""Where to start reading."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from streamlog.cli.position import parse_position
from streamlog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("123456789012", 123456789012),
        ("2026-01-31T18:00:00Z", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        ("2026-01-31T18:00+02:00", datetime(2026, 1, 31, 18, tzinfo=timezone(timedelta(hours=2)))),
        ("2026-01-31", datetime(2026, 1, 31).astimezone()),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "-1", "first", "1.5", "²", "2026-13-01", "9999999-01-01"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--from: .* is no position; "):
        parse_position(text)
