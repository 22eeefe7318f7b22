"""However files of segments go, the event loop does not wait for it."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import StorageFull
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.storage.disk import OsFile
from streamlog.partition import replica_manager as registry_module
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from tests.partition_world import World, publish, tp
from tests.unit.partition.freeing_disk import FreeingDisk
from tests.unit.partition.maintenance.test_log_cleaner import COMPACT, all_clean, put
from tests.unit.partition.replica_world import ReplicaWorld, until

SMALL: dict[str, Any] = {"segment_bytes": 16_384}


async def filled(world: World, registry: ReplicaManager, name: str, **settings: Any) -> Partition:
    """Ten segments."""
    await world.create(name, **settings)
    partition = registry.partition(tp(name))
    for _ in range(10):
        await publish(partition, bytes(16_000))
    assert partition.state.log.segment_count == 10
    return partition


async def read_all(partition: Partition) -> list[FileSlice]:
    """As consumers do whose sockets are full: a piece of each segment stays open."""
    ends = [it.base_offset for it in partition.state.log.segments]
    return [await partition.read(offset, 100_000) for offset in ends]


async def assert_freed(disk: FreeingDisk, count: int) -> None:
    await until(lambda: len(disk.freed) >= count)
    assert disk.freed_in(threading.get_ident()) == []
    assert len(disk.freed) == count


def names(world: World, name: str) -> list[str]:
    folder = world.data_dir / "streams" / name / "0"
    return sorted(it.name for it in folder.iterdir() if ".log" in it.name)


async def test_a_purge(world: World) -> None:
    disk = FreeingDisk()
    async with world.node(disk, **SMALL) as registry:
        partition = await filled(world, registry, "s")
        await partition.purge(9)
        await assert_freed(disk, 9)
        assert names(world, "s") == ["00000000000000000009.log"]
        await partition.purge(10)  # the active one, too
        await assert_freed(disk, 10)


async def test_a_purge_of_what_is_being_read(world: World) -> None:
    disk = FreeingDisk()
    async with world.node(disk, **SMALL) as registry:
        partition = await filled(world, registry, "s")
        pieces = await read_all(partition)
        await partition.purge(10)
        await until(lambda: names(world, "s") == ["00000000000000000010.log"])
        assert disk.freed == []
        for piece in pieces:
            assert len(piece.read()) > 16_000
            piece.close()
        await assert_freed(disk, 10)


async def test_retention(world: World) -> None:
    disk = FreeingDisk()
    async with world.node(disk, **{**SMALL, "retention_check_ms": 10}) as registry:
        partition = await filled(world, registry, "s")
        await world.update("s", retention_bytes=33_000)
        await until(lambda: partition.log_start_offset > 0)
        await assert_freed(disk, partition.log_start_offset)


async def test_a_stream_is_deleted(world: World) -> None:
    disk = FreeingDisk()
    async with world.node(disk, **SMALL) as registry:
        pieces = await read_all(await filled(world, registry, "s"))
        await filled(world, registry, "t")
        await world.delete("s")
        await world.delete("t")
        await assert_freed(disk, 10)
        for piece in pieces:
            piece.close()
        await assert_freed(disk, 20)
        await until(lambda: not list((world.data_dir / "deleted").iterdir()))


async def test_compaction(world: World) -> None:
    disk = FreeingDisk()
    async with world.node(disk, **SMALL, compaction_interval_ms=20) as registry:
        await world.create(
            "s", **{**COMPACT, "segment_age_ms": 3_600_000, "cleanup_policy": "delete"}
        )
        partition = registry.partition(tp("s"))
        for number in range(10):
            await put(partition, (b"k", b"%d" % number * 16_000))
        pieces = await read_all(partition)
        await world.update("s", cleanup_policy="compact", segment_age_ms=100)
        await until(lambda: all_clean(partition))
        for piece in pieces:
            piece.close()
        await until(lambda: len(disk.freed) >= 10)
        assert disk.freed_in(threading.get_ident()) == []


async def test_a_compaction_that_is_called_off(world: World) -> None:
    """What was written anew is of no use."""
    disk = FreeingDisk()
    async with world.node(disk, **SMALL, compaction_interval_ms=20) as registry:
        await world.create("s", **COMPACT)
        partition = registry.partition(tp("s"))
        partition.state.log.is_swapping = True
        for number in range(10):
            await put(partition, (b"k", b"%d" % number * 16_000))
        await until(lambda: disk.freed)
        assert disk.freed_in(threading.get_ident()) == []
        partition.state.log.is_swapping = False


async def test_a_follower(tmp_path: Path) -> None:
    """It begins later as its leader does; and anew, where it was away for too long."""
    async with ReplicaWorld(tmp_path, 0) as world:
        disks = {number: FreeingDisk() for number in (1, 2, 3)}
        for number, disk in disks.items():
            await world.start(number, disk, **SMALL)
        world.controller.create("s", replicas=3)
        await world.spread()
        for _ in range(10):
            await publish(world.leader.partition(), bytes(16_000))
        await world.leader.partition().purge(9)
        for disk in disks.values():
            await assert_freed(disk, 9)
        away = world.followers[0].node_id
        await world.stop(away)
        for _ in range(2):
            await publish(world.leader.partition(), bytes(16_000))
        await world.leader.partition().purge(12)
        disks[away] = FreeingDisk()
        await world.start(away, disks[away], **SMALL)
        await until(lambda: world[away].partition().log_start_offset == 12)
        for disk in disks.values():
            await assert_freed(disk, 1 if disk is disks[away] else 12)


async def test_what_a_killed_process_has_not_unlinked(world: World) -> None:
    """A start has it removed; so it does with what a stop has left."""
    async with world.node(**SMALL) as registry:
        await filled(world, registry, "s")
    folder = world.data_dir / "streams" / "s" / "0"
    left = [folder / f"{number:020d}.log.{number}.deleted" for number in range(100, 103)]
    for path in left:
        path.write_bytes(bytes(16_000))
    disk = FreeingDisk()
    async with world.node(disk, **SMALL) as registry:
        partition = registry.partition(tp("s"))
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 10)
        await assert_freed(disk, 3)
        assert not any(path.exists() for path in left)
        assert not partition.is_ailing


async def test_a_full_disk_has_room_only_when_files_are_unlinked(world: World) -> None:
    """Nobody looks for room while they still take it."""
    gate = threading.Event()

    class Slow(FreeingDisk):
        tried: list[bool]

        def unlink(self, path: str) -> None:
            if path.endswith(".deleted"):
                gate.wait()
            super().unlink(path)

        def create(self, path: str) -> OsFile:
            if path.endswith("space.tmp"):
                looked.append(gate.is_set())
            return super().create(path)

    looked: list[bool] = []
    async with world.node(Slow(), **SMALL, disk_check_interval_ms=10) as registry:
        partition = await filled(world, registry, "s")
        await partition.purge(9)
        partition.disk_refused(StorageFull("full"))
        assert not registry.has_room
        await asyncio.sleep(0.1)  # ten intervals
        assert looked == []
        gate.set()
        await until(lambda: registry.has_room)
        assert looked == [True]


async def test_a_stop_leaves_the_rest_to_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the file in hand."""
    monkeypatch.setattr(registry_module, "REMOVAL_STOP_S", 0.0)
    begun, registries = threading.Event(), list[ReplicaManager]()

    class Slow(FreeingDisk):
        def unlink(self, path: str) -> None:
            if path.endswith(".deleted"):
                begun.set()
                while not registries[0]._removal.is_over:
                    time.sleep(0.001)
            super().unlink(path)

    async with world.node(Slow(), **SMALL) as registry:
        partition = await filled(world, registry, "s")
        registries.append(registry)
        await partition.purge(9)
        await asyncio.to_thread(begun.wait)
    folder = world.data_dir / "streams" / "s" / "0"
    assert len(list(folder.glob("*.deleted"))) == 9 * 3 - 1  # with their indexes
    async with world.node(**SMALL):
        await until(lambda: names(world, "s") == ["00000000000000000009.log"])
