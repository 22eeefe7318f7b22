"""What a new position comes to in a partition whose log holds offsets 10 to 49."""

import pytest

from streamlog.cli.group.reset import Change, LogExtent, Shift, Target, change_of
from streamlog.client.groups import CommittedInfo
from streamlog.client.position import EARLIEST, LATEST, Offset, Timestamp
from streamlog.errors import InvalidRequest
from streamlog.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
EXTENT = LogExtent(10, 50)


def change(committed: int | None, target: Target, at_time: int | None = None) -> Change:
    before = None if committed is None else CommittedInfo(committed, 3, "mine")
    return change_of(ORDERS, before, EXTENT, target, at_time)


@pytest.mark.parametrize(
    ("committed", "target", "offset", "effect"),
    [
        (30, EARLIEST, 10, "repeats 20 records"),
        (30, LATEST, 50, "skips 20 records"),
        (30, Offset(30), 30, "no change"),
        (30, Offset(50), 50, "skips 20 records"),
        (30, Shift(-5), 25, "repeats 5 records"),
        (30, Shift(-1), 29, "repeats 1 record"),
        (30, Shift(5), 35, "skips 5 records"),
        (30, Shift(-25), 10, "repeats 20 records (the log begins at 10)"),
        (30, Shift(25), 50, "skips 20 records (the log ends at 50)"),
        (3, EARLIEST, 10, "skips nothing"),
        (3, Offset(12), 12, "skips 2 records"),
        (None, EARLIEST, 10, "nothing was committed yet"),
        (None, LATEST, 50, "nothing was committed yet"),
    ],
)
def test_changes(committed: int | None, target: Target, offset: int, effect: str) -> None:
    found = change(committed, target)
    assert (found.offset, found.effect) == (offset, effect)


def test_a_time() -> None:
    assert change(30, Timestamp(1), 20).effect == "repeats 10 records"
    assert change(30, Timestamp(1)).effect == "skips 20 records (no record is so late)"


@pytest.mark.parametrize("offset", [0, 9, 51])
def test_an_offset_that_is_not_there(offset: int) -> None:
    with pytest.raises(InvalidRequest, match=f"orders-0 has no offset {offset}, only 10 to 50; "):
        change(30, Offset(offset))


def test_nothing_to_count_from() -> None:
    with pytest.raises(InvalidRequest, match="nothing is committed in orders-0 to count from"):
        change(None, Shift(1))


def test_json_keeps_what_there_was() -> None:
    assert change(30, EARLIEST).as_json() == {
        "stream": "orders",
        "partition": 0,
        "committed_offset": 30,
        "metadata": "mine",
        "new_offset": 10,
        "skipped": 0,
        "repeated": 20,
        "note": None,
    }
