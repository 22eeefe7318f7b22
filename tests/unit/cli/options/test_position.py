"""Where to start reading."""

from datetime import datetime

import pytest

from streamlog.cli.options.position import parse_position
from streamlog.client.position import EARLIEST, LATEST, Offset, Timestamp
from streamlog.errors import ConfigError

EVENING_MS = 1_769_882_400_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("0", Offset(0)),
        ("123456789012", Offset(123456789012)),
        ("2026-01-31T18:00:00Z", Timestamp(EVENING_MS)),
        ("2026-01-31T20:00+02:00", Timestamp(EVENING_MS)),
        ("2026-01-31T18:00:00.125Z", Timestamp(EVENING_MS + 125)),
        ("2026-01-31", Timestamp(int(datetime(2026, 1, 31).timestamp() * 1000))),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "-1", "first", "1.5", "²", "2026-13-01", "9999999-01-01"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--from: .* is no position; "):
        parse_position(text)
