"""Messages are looked for a little at a time, and found all the same."""

import asyncio
from typing import Any

import pytest

from streamlog.control.messages import matching
from streamlog.control.messages.matching import Matching
from streamlog.errors import Overloaded
from streamlog.record.compiled.subjects import NOTHING
from tests.record_batches import HandRecord, record_bytes
from tests.unit.control.messages.watched_index import (
    MESSAGES,
    SUBJECTS,
    WatchedIndex,
    WatchedPartition,
)

PATTERNS = {
    "x.7": [7, 107, 207],
    "*.7": [7, 107, 207],
    "x.*": list(range(MESSAGES)),
    ">": list(range(MESSAGES)),
    "y.*": [],
    "y": [],
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "LOOKS_AT_ONCE", 11)
    monkeypatch.setattr(matching, "LOOKED_AT_ONCE", 13)


def is_held_up_by(index: WatchedIndex) -> bool:
    return max(index.compared, default=0) > 11 or max(index.looked, default=0) > 13


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("below", [MESSAGES, 200, 5])
async def test_whatever_is_asked_is_found_in_small_steps(pattern: str, below: int) -> None:
    partition = WatchedPartition()
    it = Matching(partition.subjects, pattern, below)
    wanted = [at for at in PATTERNS[pattern] if at < below]
    for limit in (1, 4, 1_000):
        found, low = list[int](), 0
        while low < MESSAGES:
            some, low = await it.offsets(low, MESSAGES, limit=limit)
            assert len(some) <= limit
            found += some
        assert found == wanted
    for offset in (0, 7, 8, 150, 299, 1_000):
        assert await it.next(offset) == min((at for at in wanted if at >= offset), default=NOTHING)
        before = [at for at in wanted if at < offset]
        assert await it.last(offset) == max(before, default=NOTHING)
        assert await it.count(offset) == len(wanted) - len(before)
    assert not is_held_up_by(partition.watched)
    assert len(partition.first.compared) + len(partition.first.looked) <= 1, "asked no more"


async def test_between_two_steps_others_are_served() -> None:
    partition = WatchedPartition()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await Matching(partition.subjects, "y.*", MESSAGES).last(MESSAGES) == NOTHING
    task.cancel()
    assert turns >= SUBJECTS // 11


async def test_an_index_that_does_not_stay_is_given_up() -> None:
    class Restless:
        async def know(self) -> Any:
            return WatchedIndex()

    with pytest.raises(Overloaded):
        await Matching(Restless(), "x.*", MESSAGES).next(0)  # type: ignore[arg-type]


async def test_a_subject_that_gets_another_ones_number_is_not_taken_for_it() -> None:
    """It has no messages among those that are looked for."""
    index = WatchedIndex()
    partition: Any = type("One", (), {"know": lambda self: asyncio.sleep(0, index)})()
    it = Matching(partition, "*.7", MESSAGES)
    assert await it.count(0) == 3
    number = index.number_of(b"x.7")
    for offset in PATTERNS["x.7"]:
        index.index.erase(offset)
    for at, name in ((MESSAGES, b"other"), (MESSAGES + 1, b"x.7")):
        record = HandRecord(b"v", headers=[(b"subject", name)])
        index.index.note(record_bytes(record, 0), 1, at, at + 1)
    assert index.number_of(b"other") == number
    assert (await it.count(0), await it.next(0), await it.last(1_000)) == (0, NOTHING, NOTHING)
