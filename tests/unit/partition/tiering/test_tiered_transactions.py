"""Transactions of a tiered partition: what a reader of committed records is told where only the object store has them.

Producer 7 aborts what begins, and ends, in the front; producer 8 commits there; producer 9 aborts what begins in the
front and goes on to the last segment, which stays on the disks.
"""

from functools import partial
from pathlib import Path
from typing import Any

from streamlog.metadata import commands as c
from streamlog.partition.partition import Partition
from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import iter_records
from streamlog.record.transaction_marker import marker_of
from tests.partition_world import publish
from tests.unit.kafka.test_committed_readers import end, produce
from tests.unit.partition.replica_world import ReplicaWorld, until
from tests.unit.partition.test_transactions import batch_of, write
from tests.unit.partition.tiering.test_tiered_partition import (
    tiered,
    until_front_is_gone,
    value,
)

FILLER = [value(number) for number in range(80)]
"""Of no transaction: some segments."""
COMMITTED = [*FILLER[:20], b"committed", *FILLER[20:]]


async def fill(partition: Partition) -> None:
    await until(lambda: partition.high_watermark_known)
    await produce(partition, b"aborted", b"too", producer=7)
    await produce(partition, b"spans, first", producer=9)
    for it in FILLER[:20]:
        await publish(partition, it)
    await end(partition, 7, is_commit=False)
    await produce(partition, b"committed", producer=8)
    await end(partition, 8, is_commit=True)
    for it in FILLER[20:]:
        await publish(partition, it)
    await write(partition, batch_of(1, producer=9))
    await end(partition, 9, is_commit=False)


def first_kept(partition: Partition) -> bool:
    """All but the last segment is gone here."""
    log = partition.state.log
    return len(log.segments) == 1 and partition.local_log_start_offset > 20


async def committed(partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[Any]:
    """As a Kafka client of isolation level read_committed takes it."""
    found: list[Any] = []
    while offset < partition.stable_offset:
        part, aborted = await partition.read_committed(offset, max_bytes)
        with part:
            data = part.read()
        assert data
        waiting = sorted(aborted, key=lambda it: it.first_offset)
        passed: set[int] = set()
        for header, batch in batches(data):
            while waiting and waiting[0].first_offset <= header.last_offset:
                passed.add(waiting.pop(0).producer_id)
            found += _records(header, batch, passed, offset)
            offset = header.next_offset
    return found


def _records(header: BatchHeader, batch: memoryview, passed: set[int], offset: int) -> list[Any]:
    if header.is_control:
        marker = marker_of(batch, header)
        if marker is not None and not marker.is_commit:
            passed.discard(header.producer_id)
        return []
    if header.is_transactional and header.producer_id in passed:
        return []
    return [it.value for it in iter_records(batch) if it.offset >= offset]


async def all_read(partition: Partition) -> None:
    assert await committed(partition) == COMMITTED
    assert await committed(partition, 1) == COMMITTED
    assert await committed(partition, max_bytes=1) == COMMITTED
    assert await committed(partition, 2, max_bytes=600) == COMMITTED
    local = partition.local_log_start_offset
    assert await committed(partition, local) == COMMITTED[local + 2 - partition.log_end_offset :]


async def test_what_was_aborted_is_told_from_the_store(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2) as world:
        await fill(world.leader.partition())
        for node in world.nodes.values():
            partition = node.partition()
            await until(partial(first_kept, partition))
            await all_read(partition)


async def test_what_was_aborted_is_told_after_a_restart(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        await fill(world.leader.partition())
        await until(lambda: first_kept(world.leader.partition()))
        await world.stop(1)
        await world.start(1)
        partition = world.leader.partition()
        assert first_kept(partition)
        await all_read(partition)


async def test_a_leader_that_never_had_the_segments_tells_what_was_aborted(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2, replicas=1) as world:
        await fill(world.leader.partition())
        await until(lambda: first_kept(world.leader.partition()))
        other = await with_new_replica(world)
        await world.elect(other)
        partition = world[other].partition()
        assert partition.is_leader
        assert first_kept(partition)
        await all_read(partition)


async def with_new_replica(world: ReplicaWorld) -> int:
    other = 2 if world.leader.node_id == 1 else 1
    config = world.controller.image.stream("s").config.changed(replicas=2)
    await world.ask(c.UpdateStream(config=config))
    await until(lambda: world.isr() == {1, 2})
    return other


async def test_what_goes_to_the_store_while_it_is_read_is_told_as_well(tmp_path: Path) -> None:
    """The local log may forget aborted transactions with the segments that had them."""
    async with tiered(tmp_path, 1, local_retention_ms=-1) as world:
        partition = world.leader.partition()
        await fill(partition)
        reader: Any = partition.reader
        read = reader.read

        async def slowly(*arguments: Any, **settings: Any) -> Any:
            part = await read(*arguments, **settings)
            config = world.controller.image.stream("s").config.changed(local_retention_ms=0)
            await world.ask(c.UpdateStream(config=config))
            await until(lambda: first_kept(partition))
            log = partition.state.log
            log.transactions.forget_below(log.log_start_offset)
            return part

        assert partition.local_log_start_offset == 0
        reader.read = slowly
        assert await committed(partition) == COMMITTED


async def test_an_open_transaction_is_not_copied(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        partition = world.leader.partition()
        for number in range(20):
            await publish(partition, value(number))
        await produce(partition, b"open", producer=7)
        for number in range(20, 80):
            await publish(partition, value(number))
        await until_front_is_gone(partition, 8)
        assert partition.tiered.tiered_end_offset is not None
        assert partition.tiered.tiered_end_offset <= 20
        assert await committed(partition) == [value(number) for number in range(20)]
        await end(partition, 7, is_commit=False)
        await until_front_is_gone(partition, 60)
        assert await committed(partition) == [value(number) for number in range(80)]
