"""A followed partition, and what is damaged: it is fetched again from whoever has it."""

import asyncio
import errno
from pathlib import Path

import pytest

from streamlog.errors import CorruptBatch, StorageFailed, StorageFull
from streamlog.partition.following import Cut
from streamlog.partition.replica import mend, take
from streamlog.wire.fetch import FetchedPartition, FetchedRecords
from tests.failing_disk import FailingDisk
from tests.log_folder import make_batch
from tests.partition_world import publish, values_of
from tests.replica_world import TP, ReplicaWorld, until

SMALL = {"segment_bytes": 4096}
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
            assert partition.following.repair() == Cut(3)


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
        disk.faults.break_("sync", code=errno.EIO, path="streams/s/0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition.state.log), "damaged_from", property(lambda _: 0))
            with pytest.raises(StorageFailed):
                await mend(partition, world[3].registry._workers)
        assert partition.failure is not None
        assert world[3].offline == {TP}
        assert partition.syncing.is_quiet


FULL = {"space_check_ms": 10, "reserve_bytes": 64 * 1024}


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
        world.controller.create("s", replicas=2, retention_bytes=6_000, min_isr=1)
        await world.spread()
        for i in range(COUNT):
            await publish(world.leader.partition(), bytes([65 + i]) * 1000)
        follower = world.followers[0].partition()
        await until(lambda: follower.high_watermark == COUNT)
        follower.retain(0)
        assert follower.log_start_offset == 0, "the leader says what goes"
        follower.ran_out_of_room(StorageFull("now"))
        follower.retain(0)
        assert follower.log_start_offset > 0


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
