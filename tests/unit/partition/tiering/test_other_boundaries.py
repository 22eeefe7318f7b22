"""The next leader's segments begin and end elsewhere than those in the store: it copies the end of one of them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamlog.clock import wall_ms
from streamlog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from streamlog.log.storage.disk import OsDisk
from streamlog.partition.partition import Partition
from streamlog.partition.replication.partition_follower import Truncation
from streamlog.partition.replication.truncation import LOG_CUT, _truncate
from streamlog.partition.tiering.sealed_segment import make_ready
from streamlog.partition.tiering.segment_history import PRODUCERS_PART, decode_producers
from streamlog.record.batch import batches, read_header
from streamlog.tier.segment_transactions import SegmentTransactions
from tests.unit.kafka.test_committed_readers import end, produce
from tests.unit.partition.replica_world import ReplicaWorld, until
from tests.unit.partition.test_producer_state_manager import batch_of
from tests.unit.partition.test_producer_state_manager import produce as produce_batch
from tests.unit.partition.tiering.test_tiered_encryption import ONLY_K1, files_in_the_clear
from tests.unit.partition.tiering.test_tiered_partition import (
    all_of,
    fill,
    tiered,
    until_front_is_gone,
    value,
)

FIRST = 40


def bases(partition: Partition) -> list[int]:
    return [it.base_offset for it in partition.state.log.segments]


async def shift_boundaries(world: ReplicaWorld) -> Partition:
    """Of the follower: its log begins again in the middle of its leader's first segment."""
    (other,) = world.followers
    await fill(world, 0, 5)
    partition = other.partition()
    await until(lambda: partition.log_end_offset == 5 and partition.high_watermark == 5)
    with ThreadPoolExecutor(1) as workers:
        await _truncate(partition, Truncation(5, whole=True), workers, LOG_CUT)
    return partition


def temporary_files(folder: Path) -> list[Path]:
    return [it for it in folder.rglob("*.tier.*") if it.is_file()]


@pytest.mark.parametrize("encrypted", [False, True])
async def test_the_end_of_a_segment_is_copied(tmp_path: Path, encrypted: bool) -> None:
    keys = ONLY_K1 if encrypted else None
    async with tiered(
        tmp_path, 2, keys=keys, encrypted=encrypted, index_interval_bytes=500
    ) as world:
        partition = await shift_boundaries(world)
        old = world.leader.partition()
        await fill(world, 5, FIRST)
        await until(lambda: old.tiered.tiered_end_offset == old.state.log.sealed_end)
        await until(lambda: partition.high_watermark == FIRST)
        copied = old.state.log.sealed_end
        await world.elect(partition._surroundings.node_id)
        assert copied not in bases(partition)
        middle_ms = wall_ms()
        await fill(world, FIRST, 80)
        await until_front_is_gone(partition, 60)
        manifest = await partition.tiered.read_manifest()
        after = next(it for it in manifest.segments if it.base_offset == copied)
        whole = next(it for it in manifest.segments if it.base_offset == after.end_offset)
        assert after.end_offset - copied < whole.end_offset - whole.base_offset
        assert manifest.leader_epoch == partition.leader_epoch
        for node in world.nodes.values():
            here = node.partition()
            await all_of(here, 0, 80)
            for offset in range(copied, after.end_offset):
                await all_of(here, offset, 80)
        found = await partition.offset_for_timestamp(middle_ms)
        assert found is not None
        assert found[0] == FIRST
        assert after.base_offset <= FIRST
        assert temporary_files(tmp_path) == []
        assert not encrypted or files_in_the_clear(tmp_path) == []


async def test_what_comes_before_the_end_is_not_told_twice(tmp_path: Path) -> None:
    """The parts that say what producers and transactions did are of what is copied alone."""
    async with tiered(tmp_path, 2) as world:
        partition = await shift_boundaries(world)
        old = world.leader.partition()
        await fill(world, 5, 20)
        await produce(old, b"aborted", producer=7)
        await end(old, 7, is_commit=False)
        await produce_batch(old, batch_of(0, value(0), producer=8, time_ms=wall_ms()))
        for number in range(23, 41):
            await produce_batch(
                old, batch_of(number - 22, value(number), producer=8, time_ms=wall_ms())
            )
        await until(lambda: old.tiered.tiered_end_offset == old.state.log.sealed_end)
        copied = old.state.log.sealed_end
        await world.elect(partition._surroundings.node_id)
        await until(lambda: partition.high_watermark_known)
        for number in range(41, 80):
            await produce_batch(
                partition, batch_of(number - 22, value(number), producer=8, time_ms=wall_ms())
            )
        await until_front_is_gone(partition, 60)
        manifest = await partition.tiered.read_manifest()
        storage = world[partition._surroundings.node_id].storage
        place = partition.tiered.place
        assert storage is not None
        assert place is not None
        for it in manifest.segments:
            data = await storage.read_part(place, it, PRODUCERS_PART)
            told = [header.base_offset for header, _ in decode_producers(data, it.name)]
            assert all(it.base_offset <= offset < it.end_offset for offset in told)
            assert it.base_offset != copied or told[0] == copied
        assert copied in [it.base_offset for it in manifest.segments]
        last = await produce_batch(
            partition, batch_of(57, value(79), producer=8, time_ms=wall_ms())
        )
        assert last == 79
        part, aborted = await partition.read_committed(20, 1 << 20)
        part.close()
        assert [it[:3] for it in aborted] == [(7, 20, 21)]


async def test_the_copy_of_an_end_has_indexes_of_its_own(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1, local_retention_ms=-1, index_interval_bytes=500) as world:
        await fill(world, 0, 30)
        segment = world.leader.partition().state.log.segments.first
        start = segment.base_offset + 3
        ready = make_ready(
            segment, start=start, epochs=(), transactions=SegmentTransactions(), disk=OsDisk()
        )
        whole = Path(segment.path).read_bytes()  # noqa: ASYNC240
        log, index, times = (read_and_remove(it) for it in ready.temporary)
        bases = [it.base_offset for it, _ in batches(whole) if it.base_offset >= start]
        assert log == whole[-len(log) :]
        assert [it.base_offset for it, _ in batches(log)] == bases
        assert bases[0] == start
        assert len(log) == ready.files.size_bytes
        entries = list(OFFSET_ENTRY.iter_unpack(index))
        assert len(entries) > 1
        for relative, position in entries:
            header = read_header(memoryview(log)[position:])
            assert header.base_offset <= start + relative < header.next_offset
        found = list(TIME_ENTRY.iter_unpack(times))
        times_of = {it.base_offset: it.max_timestamp_ms for it, _ in batches(log)}
        assert found
        assert all(times_of[start + relative] == time_ms for time_ms, relative in found)


def read_and_remove(path: str) -> bytes:
    file = Path(path)
    data = file.read_bytes()
    file.unlink()
    return data
