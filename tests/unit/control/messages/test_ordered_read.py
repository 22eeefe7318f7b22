"""What a passage reads of the log."""

from typing import Any

import pytest

from streamlog.control.messages import ordered_read
from streamlog.control.messages.ordered_read import (
    NEAR,
    PassageQuery,
    messages_from,
    read_passage,
    read_run,
)
from streamlog.errors import OffsetOutOfRange
from tests.readable_partition import TIME_MS, FakePartition


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


async def read(partition: Any, **query: Any) -> tuple[list[int], int]:
    """The offsets, and where the next ones begin."""
    found = await read_passage(partition, PassageQuery(**query))
    return [it.sequence - 1 for it in found.messages], found.next_offset


async def test_a_passage_is_read_page_by_page() -> None:
    partition = FakePartition([["a", "b"]] * 5)
    assert await read(partition, limit=4) == ([0, 1, 2, 3], 4)
    assert await read(partition, offset=8, limit=4) == ([8, 9], 10)
    assert await read(partition, offset=10) == ([], 10)
    assert await read(partition, offset=1, subject="a", limit=2) == ([2, 4], 5)
    assert await read(partition, offset=0, subject="c") == ([], 10)
    with pytest.raises(OffsetOutOfRange):
        await read(partition, offset=11)
    partition.log_start_offset = 6
    assert await read(partition, offset=0) == ([6, 7, 8, 9], 10)


async def test_a_passage_begins_at_a_time_or_with_the_last_messages() -> None:
    partition = FakePartition([["a", "b"]] * 5)
    assert await read(partition, start_ms=TIME_MS + 4, limit=1) == ([4], 5)
    assert await read(partition, start_ms=TIME_MS + 100) == ([], 10)
    assert await read(partition, last=3) == ([7, 8, 9], 10)
    assert await read(partition, last=0) == ([], 10)
    assert await read(partition, last=99) == (list(range(10)), 10)
    for pattern in ("a", "*"):
        assert (await read(partition, last=99, subject=pattern))[0][0] == 0
    assert await read(partition, last=2, subject="a") == ([6, 8], 10)
    assert await read(partition, last=2, subject="c") == ([], 10)
    partition.erased.add(8)
    assert await read(partition, last=2, subject="a") == ([4, 6], 10)
    assert await read(partition, last=2) == ([7, 9], 10)


async def test_a_passage_ends_with_the_message_that_makes_it_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordered_read, "PASSAGE_BYTES_MAX", 2 * ordered_read.RECORD_BYTES)
    assert await read(FakePartition([["a"] * 9])) == ([0, 1], 2)


@pytest.mark.parametrize("patterns", [(), (b"a",)])
async def test_runs_take_whole_batches_where_they_can(patterns: tuple[bytes, ...]) -> None:
    """A batch of which a run took a part is read again for the next one."""
    count = 40
    partition: Any = FakePartition([["a"] * count] * 7)
    batch, _ = await read_run(partition, range(count), bytes_max=1 << 20)
    bytes_max, offset, runs = batch.size_bytes * 11 // 4, 0, []
    while offset < 7 * count:
        wanted = range(offset, 7 * count)
        run, offset = await read_run(partition, wanted, patterns, bytes_max=bytes_max)
        runs.append(run.count)
    assert runs == [2 * count, 2 * count, 2 * count, count]


async def test_a_run_ends_within_a_batch_that_is_larger_than_it_may_be() -> None:
    partition: Any = FakePartition([["a"] * 100])
    whole, _ = await read_run(partition, range(100), bytes_max=1 << 20)
    run, upper = await read_run(partition, range(100), bytes_max=whole.size_bytes // 10)
    assert run.count == upper == 10
