"""Producers of a tiered partition: a leader knows what they have written where only the object store has it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import wall_ms
from streamlog.errors import InvalidProducerEpoch, OutOfOrderSequence
from streamlog.partition.partition import Partition
from streamlog.partition.replication.partition_follower import Truncation
from streamlog.partition.replication.truncation import LOG_CUT, _truncate
from tests.unit.partition.replica_world import until
from tests.unit.partition.test_producer_state_manager import batch_of, produce
from tests.unit.partition.tiering.test_tiered_partition import (
    fill,
    tiered,
    until_front_is_gone,
    value,
)
from tests.unit.partition.tiering.test_tiered_transactions import with_new_replica


def now(sequence: int, **settings: Any) -> Any:
    return batch_of(sequence, time_ms=wall_ms(), **settings)


async def check_known(partition: Partition) -> None:
    """Of producer 7, whose batches 0 to 2 are at offsets 0 to 2, and of 8, which is in epoch 1."""
    end = partition.log_end_offset
    for sequence in range(3):
        assert await produce(partition, now(sequence)) == sequence
    with pytest.raises(OutOfOrderSequence):
        await produce(partition, now(5))
    with pytest.raises(InvalidProducerEpoch):
        await produce(partition, now(0, producer=8))
    assert await produce(partition, now(0, producer=8, epoch=1)) == 4
    assert partition.log_end_offset == end
    assert await produce(partition, now(3)) == end
    assert await produce(partition, now(1, producer=8, epoch=1)) == end + 1


async def write_front(partition: Partition) -> None:
    for sequence in range(3):
        assert await produce(partition, now(sequence)) == sequence
    await produce(partition, now(0, producer=8))
    assert await produce(partition, now(0, producer=8, epoch=1)) == 4


async def test_a_new_replica_that_leads_knows_repetitions(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2, replicas=1) as world:
        await until(lambda: world.leader.partition().high_watermark_known)
        await write_front(world.leader.partition())
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        other = await with_new_replica(world)
        partition = world[other].partition()
        assert partition.local_log_start_offset > 4
        await world.elect(other)
        await until(lambda: partition.high_watermark_known)
        await check_known(partition)


async def test_a_leader_knows_repetitions_after_a_restart(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        await until(lambda: world.leader.partition().high_watermark_known)
        await write_front(world.leader.partition())
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        await world.stop(1)
        await world.start(1)
        partition = world.leader.partition()
        await until(lambda: partition.high_watermark_known)
        await check_known(partition)


async def test_a_replica_whose_log_began_again_knows_repetitions(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2) as world:
        (other,) = world.followers
        leader = world.leader
        await world.elect(other.node_id)
        await until(lambda: any(other.registry.partitions()))
        partition = other.partition()
        await until(lambda: partition.high_watermark_known)
        await partition.know_producers()  # there are none
        await world.elect(leader.node_id)
        await until(lambda: leader.partition().high_watermark_known)
        await write_front(leader.partition())
        await until(lambda: partition.log_end_offset == 5)
        with ThreadPoolExecutor(1) as workers:  # it lacks what its leader has let go of
            await _truncate(partition, Truncation(5, whole=True), workers, LOG_CUT)
        assert partition.state.log.log_start_offset == 5
        await fill(world)
        await until_front_is_gone(partition)
        await world.elect(other.node_id)
        await until(lambda: partition.high_watermark_known)
        await check_known(partition)


async def test_what_is_older_than_a_producer_lives_is_not_known(tmp_path: Path) -> None:
    """As the local log has it: the first segment that is young enough is the first that counts."""
    async with tiered(tmp_path, 2, replicas=1) as world:
        leader = world.leader.partition()
        await until(lambda: leader.high_watermark_known)
        for sequence in range(20):
            await produce(leader, batch_of(sequence, value(sequence)))  # years ago
        for sequence in range(60):
            await produce(leader, now(sequence, producer=8))
            await produce(leader, batch_of(sequence, value(0), producer=9, time_ms=wall_ms()))
        await until_front_is_gone(leader, 60)
        other = await with_new_replica(world)
        partition = world[other].partition()
        await world.elect(other)
        await until(lambda: partition.high_watermark_known)
        await partition.know_producers()
        assert sorted(it.producer_id for it in partition.producing.active()) == [8, 9]
        end = partition.log_end_offset
        assert await produce(partition, now(19, producer=7)) == end
        assert await produce(partition, now(59, producer=8)) == 20 + 2 * 59
