"""Where a group is told to go on."""

import pytest

from streamlog.cli.group.target import Shift, Target, parse_target
from streamlog.client.position import EARLIEST, LATEST, Offset, Timestamp
from streamlog.errors import ConfigError


@pytest.mark.parametrize(
    ("to", "by", "target"),
    [
        ("earliest", None, EARLIEST),
        ("latest", None, LATEST),
        ("7", None, Offset(7)),
        ("2026-01-31T18:00:00Z", None, Timestamp(1_769_882_400_000)),
        (None, -100, Shift(-100)),
        (None, 0, Shift(0)),
    ],
)
def test_targets(to: str | None, by: int | None, target: Target) -> None:
    assert parse_target(to, by) == target


@pytest.mark.parametrize(
    ("to", "by", "problem"),
    [
        (None, None, "is missing; name one"),
        ("latest", 5, "cannot go with --shift-by"),
        ("soon", None, "'soon' is no position"),
        ("-5", None, "'-5' is no position"),
    ],
)
def test_targets_that_are_none(to: str | None, by: int | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^--to: {problem}"):
        parse_target(to, by)
