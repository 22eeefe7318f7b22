"""Numbered batches on a real partition: once each, also after a restart or a cut."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import (
    InvalidProducerEpoch,
    InvalidTimestamp,
    NotLeader,
    OutOfOrderSequence,
)
from streamlog.log.segment.time_search import latest_time
from streamlog.partition.partition import Partition
from streamlog.partition.producer_state_manager import _first_young
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.produced import ProducedBatch, check_inside, check_outside
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.replication.producer_table import PRODUCERS_MAX
from tests.partition_world import Told, World, publish, run_of, tp, values_of
from tests.record_batches import HandRecord, hand_batch
from tests.unit.partition.replica_world import ReplicaWorld

TIME_MS = 1_700_000_000_000
SMALL: dict[str, Any] = {"segment_bytes": 4096}


def batch_of(
    sequence: int, *values: bytes, epoch: int = 0, producer: int = 7, time_ms: int = TIME_MS
) -> ProducedBatch:
    data = hand_batch(
        [HandRecord(value) for value in values or (b"%d" % sequence,)],
        base_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        producer=(producer, epoch, sequence),
    )
    return check_inside(check_outside(data), data)


async def produce(partition: Partition, batch: ProducedBatch) -> int:
    """Its base offset, once it is committed."""
    await partition.know_producers()
    told = Told()
    partition.produce(batch, told)
    return await told.answer


async def test_what_is_there_already_is_not_stored_again(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        assert await publish(partition, b"nats") == 0
        offsets = [await produce(partition, batch_of(i)) for i in range(7)]
        assert offsets == list(range(1, 8))
        assert await produce(partition, batch_of(4)) == 5
        with pytest.raises(OutOfOrderSequence):
            await produce(partition, batch_of(1))  # too long ago to be known
        with pytest.raises(OutOfOrderSequence):
            await produce(partition, batch_of(9))
        assert await produce(partition, batch_of(0, epoch=1)) == 8
        with pytest.raises(InvalidProducerEpoch):
            await produce(partition, batch_of(7))
        values = await values_of(partition)
        assert values == [b"nats", *(b"%d" % i for i in range(7)), b"0"]
        assert world.metrics.registry.get_sample_value("streamlog_produce_duplicates_total") == 1


async def test_who_takes_a_producer_over_goes_on_where_it_ended(world: World) -> None:
    """And is refused if the other one has written since; a refusal tells where to look."""
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"nats")
        for i in range(7):
            await produce(partition, batch_of(500 + i))
        with pytest.raises(OutOfOrderSequence) as late:
            await produce(partition, batch_of(506, epoch=9))
        assert await produce(partition, batch_of(507, epoch=9)) == 8
        assert await produce(partition, batch_of(507, epoch=9)) == 8  # its answer was lost
        with pytest.raises(InvalidProducerEpoch) as fenced:
            await produce(partition, batch_of(507))
        with pytest.raises(OutOfOrderSequence) as stranger:
            await produce(partition, batch_of(33, epoch=9))
        refusals = (late, fenced, stranger)
        assert [refused.value.first_offset for refused in refusals] == [1, 1, 1]
        assert await produce(partition, batch_of(508, epoch=9)) == 9


async def test_a_repetition_is_acknowledged_no_sooner_than_the_first(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        first, again = Told(), Told()
        assert partition.produce(batch_of(0), first) == (0, None, False)
        assert partition.produce(batch_of(0), again) == (0, None, True)
        assert not again.answer.done()
        assert await first.answer == 0
        assert await again.answer == 0
        assert partition.log_end_offset == 1


async def test_a_restart_forgets_nobody(world: World) -> None:
    async with world.node(**SMALL) as registry:
        await world.create("s")
        for i in range(30):
            await produce(registry.partition(tp("s")), batch_of(i, bytes(1000)))
            await publish(registry.partition(tp("s")), b"between")
    async with world.node(**SMALL) as registry:
        partition = registry.partition(tp("s"))
        assert not partition.producing.complete
        with pytest.raises(NotLeader):
            partition.produce(batch_of(30), Told())
        assert await asyncio.gather(
            produce(partition, batch_of(28, bytes(1000))),
            produce(partition, batch_of(29, bytes(1000))),
        ) == [56, 58]
        assert await produce(partition, batch_of(30)) == 60
        with pytest.raises(OutOfOrderSequence):
            await produce(partition, batch_of(32))


@pytest.mark.parametrize("expired", [False, True])
async def test_a_restart_reads_all_segments_that_are_young_enough(
    world: World, expired: bool
) -> None:
    now_ms = time.time_ns() // 1_000_000
    time_ms = now_ms - 2 * 86_400_000 if expired else now_ms
    early = batch_of(5, bytes(3000), time_ms=time_ms)  # with a segment of its own
    async with world.node(**SMALL) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await produce(partition, early)
        for _ in range(20):
            await publish(partition, bytes(3000))
        assert partition._log.segment_count > 10
    async with world.node(**SMALL) as registry:
        offset = await produce(registry.partition(tp("s")), early)
        assert offset == (21 if expired else 0)


def flip_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def test_damage_hides_no_producer_of_another_segment(world: World) -> None:
    now_ms = time.time_ns() // 1_000_000  # what is old is not read
    async with world.node(**SMALL) as registry:
        await world.create("s")
        first = batch_of(0, producer=8, time_ms=now_ms)
        assert await produce(registry.partition(tp("s")), first) == 0
        for sequence in range(11):
            batch = batch_of(sequence, bytes(1000), time_ms=now_ms)
            await produce(registry.partition(tp("s")), batch)
        segments = [segment.path for segment in registry.partition(tp("s"))._log.segments]
        assert len(segments) > 3
    flip_in_the_middle(Path(segments[1]))
    async with world.node(**SMALL) as registry:
        partition = registry.partition(tp("s"))
        assert await produce(partition, batch_of(10, bytes(1000))) == 11
        with pytest.raises(OutOfOrderSequence):
            await produce(partition, batch_of(12))
        assert await produce(partition, batch_of(11)) == 12
        assert await produce(partition, first) == 0


async def test_no_transaction_ends_before_producers_are_known(world: World) -> None:
    marker = TransactionMarker(7, 1, True, 0, 2)
    async with world.node(**SMALL) as registry:
        await world.create("s")
        await produce(registry.partition(tp("s")), batch_of(0))
    async with world.node(**SMALL) as registry:
        partition = registry.partition(tp("s"))
        with pytest.raises(NotLeader, match="producers are not known"):
            partition.producing.end(marker, Told())
        assert partition.log_end_offset == 1
        await partition.end_transaction(marker)
        assert partition.log_end_offset == 2


async def test_no_more_transactions_are_kept_as_verified_than_producers(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        producing = registry.partition(tp("s")).producing
        first = producing.verify_producer(0, 0)
        assert first is producing.verify_producer(0, 0)
        for producer_id in range(1, PRODUCERS_MAX + 1):
            producing.verify_producer(producer_id, 0)
        assert producing.verify_producer(PRODUCERS_MAX, 0) is producing.verify_producer(
            PRODUCERS_MAX, 0
        )
        assert producing.verify_producer(0, 0) is not first, "its batch is verified again"


async def test_followers_know_what_they_fetched(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 3) as world:
        world.controller.create("s", replicas=3)
        await world.spread()
        leader = world.leader.partition()
        for i in range(3):
            await produce(leader, batch_of(i))
        for number in (1, 2, 3):
            producing = world[number].partition().producing
            assert producing.complete
            assert producing._table.check_sequence(batch_of(2).header).base_offset == 2  # type: ignore[union-attr]


async def test_a_cut_that_takes_a_batch_forgets_it(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for i in range(3):
            await produce(partition, batch_of(i))
        partition._log.truncate_to(2)
        partition.producing.was_cut()
        assert not partition.producing.complete
        partition.state.high_watermark = 2
        assert await produce(partition, batch_of(1)) == 1
        assert await produce(partition, batch_of(2)) == 2
        partition._log.truncate_to(3)
        partition.producing.was_cut()
        assert partition.producing.complete
        partition._log.truncate_fully_to(50)
        partition.producing.was_cut()
        assert partition.producing.complete
        partition.state.high_watermark = 50
        assert await produce(partition, batch_of(90)) == 50  # nobody knows what was cut


async def header_at(partition: Partition, offset: int) -> BatchHeader:
    with await partition.read(offset, 1) as part:
        return read_header(part.read())


async def test_times_are_the_producers_but_not_far_ahead_of_ours(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await produce(partition, batch_of(0))
        ahead = batch_of(1)._replace(max_timestamp_ms=1 << 50)
        with pytest.raises(InvalidTimestamp):
            await produce(partition, ahead)
        timeless = batch_of(1)._replace(max_timestamp_ms=-1)
        await produce(partition, timeless)
        first, second = [await header_at(partition, offset) for offset in (0, 1)]
        assert (first.max_timestamp_ms, first.is_log_append_time) == (TIME_MS, False)
        assert second.is_log_append_time
        assert second.max_timestamp_ms > TIME_MS


async def test_a_stream_may_have_the_leaders_time(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", timestamp_type="LogAppendTime")
        partition = registry.partition(tp("s"))
        told = Told()
        appended = partition.produce(batch_of(0)._replace(max_timestamp_ms=1 << 50), told)
        assert await told.answer == 0
        header = await header_at(partition, 0)
        assert header.is_log_append_time
        assert header.max_timestamp_ms == appended.append_time_ms


async def test_who_does_not_lead_takes_nothing(world: World) -> None:
    registry = await world.started()
    await world.create("s")
    partition = registry.partition(tp("s"))
    partition.state.follow(partition.leader_epoch + 1)
    with pytest.raises(NotLeader):
        partition.produce(batch_of(0), Told())
    with pytest.raises(NotLeader):
        partition.append(run_of(b"x"), Told())
    await registry.close()


async def test_the_time_0_is_a_time(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await partition.know_producers()
        told = Told()
        assert partition.produce(batch_of(0, time_ms=0), told).append_time_ms is None
        await told.answer


async def test_a_segment_counts_as_young_to_the_millisecond(world: World) -> None:
    async with world.node(**SMALL) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for sequence in range(20):
            await produce(partition, batch_of(sequence, bytes(3000), time_ms=TIME_MS + sequence))
        segments = list(partition._log.segments)
        starts = [it.base_offset for it in segments]
        latest_ms = latest_time(segments[1])
        assert latest_ms is not None
        assert _first_young(segments, latest_ms) == starts[1]
        assert _first_young(segments, latest_ms + 1) == starts[2]


async def test_a_marker_that_is_there_takes_no_room_while_it_waits(world: World) -> None:
    marker = TransactionMarker(7, 1, True, 0, 2)
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await produce(partition, batch_of(0))
        await partition.end_transaction(marker)
        before, told = partition.state.in_flight_bytes, Told()
        end = partition.log_end_offset
        partition.producing.end(marker, told)
        assert (partition.log_end_offset, partition.state.in_flight_bytes) == (end, before)
