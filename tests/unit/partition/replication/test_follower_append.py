"""A followed partition, and what is damaged: it is fetched again from whoever has it."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, NotLeader, StorageFailed, StorageFull
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.layout import base_offset_of
from streamlog.log.segment.batch_scan import Damage, scan_past_damage
from streamlog.log.storage import disk as disk_module
from streamlog.log.storage.disk import OsDisk
from streamlog.model import NO_LEADER, EpochEnd, NodeId
from streamlog.partition.maintenance.retention_task import retain
from streamlog.partition.partition import Partition
from streamlog.partition.replication import truncation
from streamlog.partition.replication.follower_append import is_cut, take
from streamlog.partition.replication.partition_follower import (
    FetchPosition,
    PartitionFollower,
    Truncation,
)
from streamlog.partition.replication.truncation import repair, truncate
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.fetch import FetchedPartition, FetchedRecords
from tests.log_folder import make_batch
from tests.partition_world import publish, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import TP, ReplicaNode, ReplicaWorld, until

SMALL: dict[str, Any] = {"segment_bytes": 4096}
COUNT = 20


async def filled(world: ReplicaWorld) -> list[bytes | None]:
    """Several segments on each of three nodes; the values."""
    for number in (1, 2, 3):
        await world.start(number, **SMALL)
    world.controller.create("s", replicas=3)
    await world.spread()
    values: list[bytes | None] = [bytes([65 + i]) * 1000 for i in range(COUNT)]
    for value in values:
        await publish(world.leader.partition(), value or b"")
    return values


def damage(path: Path, number: int) -> None:
    """Flip a byte in the second segment of a node."""
    file = sorted((path / str(number) / "streams" / "s" / "0").glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def folder(path: Path, number: int) -> Path:
    return path / str(number) / "streams" / "s" / "0"


def contents(path: Path, number: int) -> dict[str, bytes]:
    """A node's segments."""
    return {file.name: file.read_bytes() for file in folder(path, number).glob("*.log")}


async def read_all(world: ReplicaWorld, number: int) -> list[bytes | None]:
    return await values_of(world[number].partition())


async def test_a_follower_that_finds_damage_fetches_it_again(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        follower = int(world.followers[0].node_id)
        await world.stop(follower)
        damage(tmp_path, follower)
        await world.start(follower, **SMALL)
        await until(lambda: world.isr() == {1, 2, 3})
        with pytest.raises(CorruptBatch):
            await read_all(world, follower)
        partition = world[follower].partition()
        assert partition.is_damaged
        assert world[follower].offline == {TP}
        assert partition.following.position() is None, "it must not count as having all"
        await world.beat(follower)
        assert follower not in world.isr()
        await until(lambda: not partition.is_damaged)
        assert world[follower].offline == set()
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, follower) == values
        assert contents(tmp_path, 1) == contents(tmp_path, 2) == contents(tmp_path, 3)
        assert [damage.offset for _, damage in kept_aside(tmp_path, follower)] == [4]
        assert world[follower].metrics.log_repairs._value.get() == 1


def kept_aside(path: Path, number: int) -> list[tuple[Path, Damage]]:
    """What is damaged in the files that a node has kept."""
    found: list[tuple[Path, Damage]] = []
    for kept in folder(path, number).glob("*.damaged"):
        file = OsDisk().open(str(kept), writable=False)
        start = base_offset_of(kept.name) or 0
        items = scan_past_damage(file, 0, file.size(), start)
        found += [(kept, item) for item in items if isinstance(item, Damage)]
        file.close()
    return found


async def test_the_scrub_finds_what_nobody_reads_and_a_follower_mends_it(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        follower = int(world.followers[0].node_id)
        partition = world[follower].partition()
        await until(lambda: partition.high_watermark == COUNT)
        damage(tmp_path, follower)
        await partition.reader.scrub(1 << 30)
        assert partition.is_damaged
        assert world[follower].offline == {TP}
        await world.beat(follower)
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, follower) == values
        assert contents(tmp_path, 1) == contents(tmp_path, 2) == contents(tmp_path, 3)
        await partition.reader.scrub(1 << 30)
        assert not partition.is_damaged


async def test_the_scrub_finds_damage_on_a_leader_which_gives_way_and_mends_it(
    tmp_path: Path,
) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        damage(tmp_path, number)
        await world.leader.partition().reader.scrub(1 << 30)
        with pytest.raises(CorruptBatch):
            await read_all(world, number)
        await world.beat(number)
        assert world.leader is not world[number]
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, number) == values
        assert contents(tmp_path, 1) == contents(tmp_path, 2) == contents(tmp_path, 3)


async def test_the_last_holder_serves_the_rest(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        for node in list(world.followers):
            await world.stop(int(node.node_id))
        assert world.isr() == {number}
        damage(tmp_path, number)
        partition = world.leader.partition()
        await partition.reader.scrub(1 << 30)
        await world.beat(number)
        assert world.leader is world[number]
        with pytest.raises(CorruptBatch):
            await values_of(partition, 4)
        high_watermark = partition.high_watermark
        assert high_watermark == COUNT
        assert await values_of(partition, 8) == values[8:]
        assert contents(tmp_path, number).keys(), "nothing is cut"
        assert not kept_aside(tmp_path, number)


async def test_damaged_bytes_of_a_leader_are_refused_by_its_followers(tmp_path: Path) -> None:
    """It does not know of the damage yet: it has written these batches itself."""
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        leader, follower = world.leader, int(world.followers[0].node_id)
        await world.stop(follower)
        shutil.rmtree(folder(tmp_path, follower))
        damage(tmp_path, int(leader.node_id))
        node = await world.start(follower, **SMALL)
        await until(lambda: node.partition().log_end_offset == 3)
        with await leader.partition().read_appended(3, 1 << 20) as piece:
            records = piece.read()
        with pytest.raises(CorruptBatch, match="checksum"):
            node.partition().following.append(memoryview(records))
        assert follower not in world.isr()
        await until(lambda: leader.offline == {TP})  # who asks so often makes it look
        await world.beat(int(leader.node_id))
        assert world.leader is not leader
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, follower) == values
        assert contents(tmp_path, 1) == contents(tmp_path, 2) == contents(tmp_path, 3)


async def test_who_has_lost_its_end_neither_leads_nor_counts(tmp_path: Path) -> None:
    """All are killed at once; the first to come back has lost what was acknowledged."""
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        for node in list(world.nodes.values()):
            await node.stop()
        world.controller.fence(1, 2, 3)
        known = world.isr()
        assert known == {1, 2, 3}
        last = sorted(folder(tmp_path, number).glob("*.log"))[-1]
        last.write_bytes(b"")
        await world.start(number, **SMALL)
        assert world.controller.partition().leader == NO_LEADER
        assert world.isr() == {1, 2, 3} - {number}
        for other in sorted(world.isr()):
            await world.start(other, **SMALL)
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, number) == values


async def test_a_leader_that_finds_damage_lets_another_lead_and_follows_it(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        await world.stop(number)
        damage(tmp_path, number)
        await world.start(number, **SMALL)
        await until(lambda: world.isr() == {1, 2, 3})
        await world.elect(number)
        with pytest.raises(CorruptBatch):
            await read_all(world, number)
        assert world.leader is world[number], "nobody has told the controller yet"
        await world.beat(number)
        assert world.leader is not world[number]
        await until(lambda: world.isr() == {1, 2, 3})
        assert await read_all(world, number) == values


async def test_nothing_is_mended_while_in_sync_or_leading_or_whole(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        await filled(world)
        follower = world.followers[0]
        partition = follower.partition()
        assert partition.following.repair() is None
        damaged_from = property(lambda _: 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition.state.log), "damaged_from", damaged_from)
            assert partition.following.repair() is None, "in sync"
            assert world.leader.partition().following.repair() is None
            partition.state.isr = frozenset({world.leader.node_id})
            assert partition.following.repair() is None, "the leader may count what is damaged"
            partition.following.is_damaged = True
            asked = partition.following.position()
            assert asked is not None
            assert asked.offset == 3
            partition.following.release(asked)
            assert partition.following.position() is None
            assert partition.following.repair() == Truncation(3, damaged=True)


async def test_what_comes_too_late_does_nothing(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2) as world:
        await world.create()
        await publish(world.leader.partition(), b"x")
        partition = world.followers[0].partition()
        asked = partition.following.position()
        assert asked is not None
        records = memoryview(make_batch(1, epoch=asked.leader_epoch))
        answer = FetchedRecords("s", FetchedPartition(0, 0, 2, 0, len(records)), records)
        await world.elect(int(world.followers[0].node_id))
        workers = world.leader.registry._workers
        assert await take(partition, asked, answer, workers) == 0
        assert partition.log_end_offset == 1


@asynccontextmanager
async def left_alone(path: Path, disk: FailingDisk | None = None) -> AsyncIterator[ReplicaNode]:
    """A follower with three records of one epoch, whose leader is gone; the controller has not heard of that."""
    async with ReplicaWorld(path, 1) as world:
        await world.start(2, disk, **FULL)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        if world.leader is world[2]:
            await world.elect(1)
        for value in (b"a", b"b", b"c"):
            await publish(world.leader.partition(), value)
        await until(lambda: world[2].partition().high_watermark == 3)
        await world[1].stop()
        yield world[2]


def answered(
    records: bytes = b"", *, high_watermark: int = 3, log_start: int = 0, **more: Any
) -> FetchedRecords:
    error_code = more.pop("error_code", 0)
    part = FetchedPartition(0, error_code, high_watermark, log_start, len(records), **more)
    return FetchedRecords("s", part, memoryview(records))


def asked_by(partition: Partition) -> FetchPosition:
    asked = partition.following.position()
    assert asked is not None
    return asked


async def test_what_is_taken_is_counted_synced_and_told(tmp_path: Path) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        asked = asked_by(partition)
        ends: list[int] = []
        partition.add_watcher(lambda: ends.append(partition.log_end_offset), end=True)
        records = b"".join(make_batch(at, epoch=asked.leader_epoch) for at in (3, 4, 5))
        assert await take(partition, asked, answered(records, high_watermark=4), workers) == len(
            records
        )
        assert (partition.log_end_offset, partition.high_watermark) == (6, 4)
        assert ends
        await until(lambda: partition.following.position() == asked._replace(offset=6))


async def test_an_error_of_the_leader_is_raised_and_takes_nothing(tmp_path: Path) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        asked = asked_by(partition)
        records = make_batch(3, epoch=asked.leader_epoch)
        answer = answered(records, error_code=ErrorCode.not_leader_or_follower)
        with pytest.raises(NotLeader):
            await take(partition, asked, answer, workers)
        assert partition.log_end_offset == 3


async def test_a_history_that_parts_is_cut(tmp_path: Path) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        partition.state.isr = frozenset({NodeId(1)})
        asked = asked_by(partition)
        parted = answered(diverging=EpochEnd(asked.last_epoch, 2))
        beyond = answered(error_code=ErrorCode.offset_out_of_range, log_start=40)
        stored = answered(error_code=ErrorCode.offset_moved_to_tiered_storage, log_start=50)
        failed = answered(error_code=ErrorCode.not_leader_or_follower)
        assert [is_cut(it) for it in (parted, beyond, stored, failed, answered())] == [
            True, True, True, False, False,
        ]  # fmt: skip
        assert await take(partition, asked, parted, workers) == 0
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 2)
        assert await take(partition, asked_by(partition), beyond, workers) == 0
        assert (partition.log_start_offset, partition.log_end_offset) == (40, 40)
        assert node.metrics.log_repairs._value.get() == 0


async def test_committed_records_that_are_cut_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        partition.state.isr = frozenset({NodeId(1)})
        asked = asked_by(partition)
        await truncate(partition, asked, Truncation(1), workers)
        assert partition.log_end_offset == 1
        assert "committed records cut off" in caplog.text
        [told] = [it for it in caplog.records if "committed records cut off" in it.getMessage()]
        assert "2 committed records are not on the new leader" in str(vars(told))


async def test_a_cut_that_is_not_asked_any_more_is_not_made(tmp_path: Path) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        asked = asked_by(partition)
        await truncate(partition, asked._replace(offset=2), Truncation(1), workers)
        await repair(partition, workers)  # nothing is damaged
        assert partition.log_end_offset == 3
        assert node.metrics.log_repairs._value.get() == 0


async def test_a_cut_waits_for_a_sync(tmp_path: Path) -> None:
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        partition.state.isr = frozenset({NodeId(1)})
        epoch = partition.leader_epoch
        partition.following.append(memoryview(make_batch(3, epoch=epoch)))
        partition.state.begin_sync()
        asked = FetchPosition(4, epoch, epoch)
        cutting = asyncio.ensure_future(truncate(partition, asked, Truncation(2), workers))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not cutting.done()
        ticket = partition.state.syncing
        assert ticket is not None
        ticket.run()
        partition.carry_out(partition.state.finish_sync())
        await cutting
        assert partition.log_end_offset == 2


async def test_the_end_is_cut_without_the_checkpoint_of_log_starts(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with left_alone(tmp_path, disk) as node:
        partition, workers = node.partition(), node.registry._workers
        partition.state.isr = frozenset({NodeId(1)})
        disk.faults.break_("write_small", code=errno.EIO, path="log-start-offset-checkpoint")
        await truncate(partition, asked_by(partition), Truncation(2), workers)
        assert (partition.log_end_offset, partition.failure) == (2, None)
        disk.faults.mend()


async def test_a_checkpoint_of_log_starts_falls_with_the_log(tmp_path: Path) -> None:
    """Records below what it says would be removed at the next start."""
    async with left_alone(tmp_path) as node:
        partition, workers = node.partition(), node.registry._workers
        partition.state.isr = frozenset({NodeId(1)})
        for start in (40, 7):
            await truncate(partition, asked_by(partition), Truncation(start, whole=True), workers)
            assert (partition.log_start_offset, partition.log_end_offset) == (start, start)
            file = tmp_path / "2" / "log-start-offset-checkpoint"
            assert OffsetCheckpoint(file, OsDisk()).read().get(partition.log_id, 0) == start


async def test_an_answer_with_records_of_a_later_epoch_commits_nothing(tmp_path: Path) -> None:
    """Its high watermark is the next leader's, too."""
    async with ReplicaWorld(tmp_path, 2) as world:
        await world.create()
        await publish(world.leader.partition(), b"x")
        partition = world.followers[0].partition()
        await until(lambda: partition.high_watermark == 1)
        asked = partition.following.position()
        assert asked is not None
        epoch = asked.leader_epoch
        records = memoryview(make_batch(1, epoch=epoch) + make_batch(2, epoch=epoch + 1))
        answer = FetchedRecords("s", FetchedPartition(0, 0, 3, 0, len(records)), records)
        workers = world.leader.registry._workers
        with pytest.raises(NotLeader):
            await take(partition, asked, answer, workers)
        assert (partition.log_end_offset, partition.high_watermark) == (2, 1)
        await until(lambda: partition.state.kept_end == 2)


async def test_a_cut_that_fails_takes_the_partition_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 2) as world:
        await world.start(3, disk)
        world.controller.create("s", replicas=3)
        await world.spread()
        if world.leader is world[3]:
            await world.elect(1)
        await publish(world.leader.partition(), b"x")
        await until(lambda: world[3].partition().log_end_offset == 1)
        partition = world[3].partition()
        partition.state.isr = frozenset({world.leader.node_id})
        disk.faults.break_("write_small", code=errno.EIO, path="streams/s/0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition.state.log), "damaged_from", property(lambda _: 0))
            partition.following.release(FetchPosition(0, -1, partition.leader_epoch))
            with pytest.raises(StorageFailed):
                await repair(partition, world[3].registry._workers)
        assert partition.failure is not None
        assert world[3].offline == {TP}
        assert partition.is_quiet


FULL: dict[str, Any] = {"disk_check_interval_ms": 10, "metadata_reserve_bytes": 64 * 1024}


async def test_a_full_follower_leaves_and_comes_back_when_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1) as world:
        await world.start(2, disk, **FULL)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        if world.leader is world[2]:
            await world.elect(1)
        await publish(world.leader.partition(), b"before")
        disk.faults.break_("pwrite", code=errno.ENOSPC)
        publishing = asyncio.ensure_future(publish(world.leader.partition(), b"after"))
        await until(lambda: world[2].full)
        partition = world[2].partition()
        assert partition.failure is None
        assert partition.following.position() is None, "it must not pass for in sync"
        assert not publishing.done()
        await world.beat(2)
        assert world.isr() == {1}
        assert await publishing == 1
        disk.faults.mend()
        await until(lambda: not world[2].full)
        await world.beat(2)
        await until(lambda: world.isr() == {1, 2})
        assert await values_of(partition) == [b"before", b"after"]


async def test_a_full_leader_refuses_and_gives_way_to_who_has_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1) as world:
        await world.start(2, disk, **FULL)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        await world.elect(2)
        await publish(world.leader.partition(), b"before")
        disk.faults.break_("pwrite", code=errno.ENOSPC)
        with pytest.raises(StorageFull):
            await publish(world.leader.partition(), b"refused")
        with pytest.raises(StorageFull):
            await publish(world.leader.partition(), b"refused without a try")
        await world.beat(2)
        assert world.leader is world[1]
        assert world.isr() == {1}
        assert await publish(world.leader.partition(), b"after") == 1
        disk.faults.mend()
        await until(lambda: not world[2].full)
        await world.beat(2)
        await until(lambda: world.isr() == {1, 2})
        assert await values_of(world[2].partition()) == [b"before", b"after"]


async def test_a_full_follower_deletes_by_itself(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        for number in (1, 2):
            await world.start(number, **SMALL, **FULL)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        for i in range(COUNT):
            await publish(world.leader.partition(), bytes([65 + i]) * 1000)
        follower = world.followers[0].partition()
        await until(lambda: follower.high_watermark == COUNT)
        log = follower.state.log
        log.settings = replace(log.settings, retention_bytes=6_000)  # its leader is not there yet
        retain(follower, 0)
        assert follower.log_start_offset == 0, "the leader says what goes"
        follower.disk_refused(StorageFull("now"))
        retain(follower, 0)
        await until(lambda: follower.log_start_offset > 0)


async def test_what_could_not_be_opened_for_want_of_room_is_when_there_is_some(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1) as world:
        await world.start(2, disk, **FULL)
        disk.faults.break_("make_directory", code=errno.ENOSPC)
        disk.faults.break_("create", code=errno.ENOSPC)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        if world.leader is world[2]:
            await world.elect(1)
        assert world[2].full
        assert world[2].offline == {TP}
        await world.beat(2)
        await publish(world.leader.partition(), b"x")
        disk.faults.mend()
        await until(lambda: not world[2].offline)
        await world.beat(2)
        await until(lambda: world.isr() == {1, 2})
        assert await values_of(world[2].partition()) == [b"x"]


async def test_a_partition_that_rests_leaves_and_comes_back_as_well(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1, fetch_wait_max_ms=20) as world:
        await world.start(2, disk, **FULL)
        world.controller.create("s", replicas=2, min_isr=1)
        await world.spread()
        if world.leader is world[2]:
            await world.elect(1)
        await publish(world.leader.partition(), b"x")
        await until(lambda: world[2].partition().high_watermark == 1)
        replication = world[2].registry._replication
        assert replication is not None
        fetcher = replication._fetchers._fetchers[NodeId(1)]
        await until(lambda: not fetcher._loose)
        disk.faults.break_("pwrite", code=errno.ENOSPC)
        world[2].partition().disk_refused(StorageFull("another has found none"))
        assert world[2].partition().key in fetcher._loose, (
            "its leader must not go on to count it as fetched"
        )
        await world.beat(2)
        assert world.isr() == {1}
        disk.faults.mend()
        await until(lambda: not world[2].full)
        await world.beat(2)
        await until(lambda: world.isr() == {1, 2})


@pytest.mark.parametrize(
    ("code", "operation", "path"),
    [
        (errno.ENOSPC, "write_small", "segment-manifest"),
        (errno.ENOSPC, "write_small", "log-start-offset-checkpoint"),
        (errno.EMFILE, "write_small", "segment-manifest"),
        (errno.EMFILE, "write_small", "log-start-offset-checkpoint"),
    ],
)
async def test_a_cut_that_finds_no_room_is_made_when_there_is_some(
    tmp_path: Path, code: int, operation: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has gone by then, so the partition need not wait for a restart."""
    monkeypatch.setattr(disk_module, "DESCRIPTORS_TRIES", 1)
    monkeypatch.setattr(truncation, "AGAIN_S", 0.01)
    cuts: list[Truncation] = []
    begin = PartitionFollower.begin_cut

    def noting(self: PartitionFollower, cut: Truncation) -> Callable[[], None]:
        cuts.append(cut)
        return begin(self, cut)

    monkeypatch.setattr(PartitionFollower, "begin_cut", noting)
    async with ReplicaWorld(tmp_path, 0) as world:
        await filled(world)
        away = int(world.followers[0].node_id)
        await world.stop(away)
        for value in (b"x" * 1000, b"y" * 1000):
            await publish(world.leader.partition(), value)
        await world.leader.partition().purge(COUNT + 2)
        disk = FailingDisk()
        disk.faults.break_(operation, code=code, path=path)
        node = await world.start(away, disk, **FULL)
        await until(lambda: cuts and not node.partition().state.cutting)
        if code == errno.ENOSPC:
            await until(lambda: node.full)
        assert node.partition().failure is None
        assert node.partition().log_end_offset == COUNT
        disk.faults.mend()
        await until(lambda: node.partition().log_end_offset == COUNT + 2)
        await publish(world.leader.partition(), b"more")
        await until(lambda: node.partition().high_watermark == COUNT + 3)
        assert await values_of(node.partition()) == [b"more"]
