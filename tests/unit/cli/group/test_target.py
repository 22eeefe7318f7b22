"""The position that a group's offsets are set to, as an argument of the operation."""

from typing import Any

import pytest

from streamlog.cli.group.reset import parse_target
from streamlog.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"to_earliest": True}, {"to_earliest": True}),
        ({"to_latest": True}, {"to_latest": True}),
        ({"to_offset": 7}, {"to_offset": 7}),
        ({"to_offset": 0}, {"to_offset": 0}),
        ({"to_datetime": "2026-01-31T18:00:00Z"}, {"to_ms": 1_769_882_400_000}),
        ({"shift_by": -100}, {"shift_by": -100}),
        ({"shift_by": 0}, {"shift_by": 0}),
    ],
)
def test_targets(given: dict[str, Any], target: dict[str, Any]) -> None:
    assert parse_target(**given) == target


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "GROUP: no position is given; name --to-earliest, "),
        ({"to_latest": True, "shift_by": 5}, "--to-latest: cannot go with --shift-by"),
        ({"to_offset": 0, "shift_by": 0}, "--to-offset: cannot go with --shift-by"),
        ({"to_datetime": "soon"}, "--to-datetime: 'soon' is no time"),
        ({"to_datetime": "-5"}, "--to-datetime: '-5' is no time"),
    ],
)
def test_targets_that_are_none(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        parse_target(**given)
