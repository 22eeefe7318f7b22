"""What a new position comes to in a partition whose log holds offsets 10 to 49."""

from typing import Any

import pytest

from streamlog.control.groups import OffsetChange, Target, change_of
from streamlog.errors import InvalidRequest
from streamlog.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def target(**given: Any) -> Target:
    nothing = {"earliest": False, "latest": False, "offset": None, "start_ms": None, "shift": None}
    return Target(**{**nothing, **given})


def change(committed: int | None, wanted: Target, at_time: int | None = None) -> OffsetChange:
    return change_of(ORDERS, committed, (10, 50), wanted, at_time)


@pytest.mark.parametrize(
    ("committed", "wanted", "offset", "skipped", "repeated", "note"),
    [
        (30, target(earliest=True), 10, 0, 20, ""),
        (30, target(latest=True), 50, 20, 0, ""),
        (30, target(offset=30), 30, 0, 0, ""),
        (30, target(offset=50), 50, 20, 0, ""),
        (30, target(shift=-5), 25, 0, 5, ""),
        (30, target(shift=5), 35, 5, 0, ""),
        (30, target(shift=-25), 10, 0, 20, "the log begins at 10"),
        (30, target(shift=25), 50, 20, 0, "the log ends at 50"),
        (3, target(earliest=True), 10, 0, 0, ""),
        (3, target(offset=12), 12, 2, 0, ""),
        (None, target(latest=True), 50, 0, 0, ""),
    ],
)
def test_a_target_becomes_an_offset(
    committed: int | None, wanted: Target, offset: int, skipped: int, repeated: int, note: str
) -> None:
    found = change(committed, wanted)
    assert (found.new_offset, found.skipped, found.repeated, found.note) == (
        offset, skipped, repeated, note,
    )  # fmt: skip


def test_a_time_is_the_first_record_that_is_not_older() -> None:
    assert change(30, target(start_ms=7), 20).new_offset == 20
    late = change(30, target(start_ms=7), 50)
    assert (late.new_offset, late.note) == (50, "no record is so late")


@pytest.mark.parametrize(
    ("committed", "wanted"),
    [(30, target(offset=9)), (30, target(offset=51)), (None, target(shift=1))],
)
def test_a_target_that_is_not_there_is_refused(committed: int | None, wanted: Target) -> None:
    with pytest.raises(InvalidRequest):
        change(committed, wanted)


@pytest.mark.parametrize(
    "given", [{}, {"earliest": True, "latest": True}, {"offset": 0, "shift": 0}]
)
def test_one_target_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        target(**given).check()
