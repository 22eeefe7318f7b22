"""What a passage reads of the log."""

from typing import Any

import pytest

from streamlog.control.messages.passage import NEAR, messages_from
from streamlog.errors import OffsetOutOfRange
from tests.readable_partition import FakePartition


async def sequences(partition: Any, pattern: str, offset: int = 0) -> list[int]:
    return [it.sequence async for it in messages_from(partition, pattern, offset)]


async def test_neighbours_are_read_together() -> None:
    partition = FakePartition([["a"]] * 100)
    assert await sequences(partition, "a") == list(range(1, 101))
    assert partition.reads == 1


async def test_what_lies_between_is_not_read() -> None:
    partition = FakePartition([["a"], *[["b"]] * (2 * NEAR), ["a", "b"], *[["b"]] * NEAR])
    assert await sequences(partition, "a") == [1, 2 * NEAR + 2]
    assert partition.reads == 2
    assert await sequences(partition, "c") == []
    assert partition.reads == 2


async def test_what_retention_takes_meanwhile_is_left_out() -> None:
    partition = FakePartition([["a"], ["b"] * NEAR, ["a"], ["b"] * NEAR, ["a"]])
    found = messages_from(partition, "a", 0)  # type: ignore[arg-type]
    assert (await anext(found)).sequence == 1
    partition.log_start_offset = 2 * NEAR
    assert [it.sequence async for it in found] == [2 * NEAR + 3]


async def test_what_is_not_there_is_no_reason_to_try_for_ever() -> None:
    partition = FakePartition([["a"], ["a"]])

    async def read(*_: object) -> Any:
        raise OffsetOutOfRange(0, 0, 0)

    partition.read = read  # type: ignore[assignment, method-assign]
    with pytest.raises(OffsetOutOfRange):
        await sequences(partition, "a")
