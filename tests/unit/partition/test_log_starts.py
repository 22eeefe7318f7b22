"""A log start is acknowledged when every in-sync replica has it, durably."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamlog.control.messages.purge import purge
from streamlog.errors import NotEnoughReplicas, NotLeader, RequestTimedOut, StreamNotFound
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.storage.disk import OsDisk
from streamlog.metadata import commands as c
from streamlog.partition.partition import Partition
from tests.partition_world import World, publish, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import TP, ReplicaNode, ReplicaWorld, replicas, until

CHECKPOINT = "log-start-offset-checkpoint"


async def filled(world: ReplicaWorld, count: int = 10) -> Partition:
    """What the leader keeps."""
    for number in range(count):
        await publish(world.leader.partition(), b"%d" % number)
    return world.leader.partition()


def checkpointed(world: ReplicaWorld, node: ReplicaNode) -> int:
    """What the file says, or 0."""
    offsets = OffsetCheckpoint(world.path / str(node.node_id) / CHECKPOINT, OsDisk()).read()
    return offsets.get(node.partition().log_id, 0)


async def test_an_acknowledged_purge_outlives_its_leader(tmp_path: Path) -> None:
    async with replicas(tmp_path, fetch_wait_max_ms=30_000) as world:
        partition = await filled(world)
        assert await partition.purge(7) == 7
        starts = {node.partition().log_start_offset for node in world.nodes.values()}
        on_disk = {checkpointed(world, node) for node in world.nodes.values()}
        assert (starts, on_disk) == ({7}, {7})
        await world.stop(world.leader.node_id)
        assert await values_of(world.leader.partition()) == [b"7", b"8", b"9"]


def in_manifest(node: ReplicaNode) -> int:
    stored = node.partition().state.log.manifest.stored
    return 0 if stored is None else stored.log_start_offset


async def test_a_purge_is_soon_in_the_manifests_of_all_replicas(tmp_path: Path) -> None:
    """Else a follower that loses its checkpoint, and leads, would bring back what was purged."""
    async with replicas(tmp_path) as world:
        partition = await filled(world)
        await partition.purge(3)
        await until(lambda: {in_manifest(node) for node in world.nodes.values()} == {3})
        await partition.purge(7)
        await until(lambda: {in_manifest(node) for node in world.nodes.values()} == {7})


async def test_a_log_start_is_not_reported_before_it_is_durable(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1) as world:
        follower = await world.start(2, disk)
        await world.create(replicas=2)
        if world.leader is follower:
            await world.elect(1)
        partition = await filled(world)
        disk.faults.break_("write_small", path=CHECKPOINT)
        with pytest.raises(RequestTimedOut):
            await partition.purge(7, timeout_s=0.05)
        assert (partition.log_start_offset, follower.partition().log_start_offset) == (7, 0)
        assert checkpointed(world, follower) == 0
        disk.faults.mend()
        assert await partition.purge(7) == 0, "asked again"
        assert checkpointed(world, follower) == follower.partition().log_start_offset == 7


async def test_purge_of_a_subject_waits_for_the_log_start_that_it_found(tmp_path: Path) -> None:
    """Below it nothing was looked for: a follower that begins earlier, and leads next, would show it."""
    async with replicas(tmp_path, 2) as world:
        partition, follower = await filled(world), world.followers[0]
        later = follower.registry._tasks._later
        want, heard = later.want, list[tuple[Partition, int]]()
        later.want = lambda *it: heard.append(it)  # type: ignore[method-assign]
        purging = asyncio.create_task(partition.purge(7))
        await until(lambda: partition.state.starts)
        of_subject = asyncio.create_task(purge(partition, pattern="none"))
        await until(lambda: len(partition.state.starts) == 2 or of_subject.done())
        assert not of_subject.done()
        await until(lambda: heard)
        want(*heard[0])
        assert (await purging, await of_subject) == (7, 0)
        assert follower.partition().log_start_offset == 7


async def test_who_leaves_the_isr_is_waited_for_no_longer(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        partition, gone = await filled(world), world.followers[0]
        await gone.stop()  # and nobody has noticed
        purging = asyncio.create_task(partition.purge(7))
        await until(lambda: partition.state.starts)
        await until(lambda: world.followers[0].partition().log_start_offset == 7)
        assert not purging.done()
        world.controller.live.discard(gone.node_id)
        epoch = world.controller.epoch(gone.node_id)
        await world.ask(c.FenceNode(node_id=gone.node_id, node_epoch=epoch))
        assert await purging == 7


async def test_too_few_in_sync_acknowledge_nothing(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2) as world:
        await world.create(min_isr=2)
        partition = await filled(world)
        gone = world.followers[0].node_id
        await world[gone].stop()
        purging = asyncio.create_task(partition.purge(7))
        await until(lambda: partition.state.starts)
        world.controller.live.discard(gone)
        await world.ask(c.FenceNode(node_id=gone, node_epoch=world.controller.epoch(gone)))
        with pytest.raises(NotEnoughReplicas):
            await purging
        with pytest.raises(NotEnoughReplicas):
            await partition.purge(7)
        await world.start(gone)
        await until(lambda: world.isr() == {1, 2})
        assert await partition.purge(7) == 0


async def test_another_leader_ends_the_wait(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        partition, new = await filled(world), world.followers[0]
        new.registry._tasks._later.want = lambda *_: None  # type: ignore[method-assign]
        waiting = asyncio.create_task(partition.purge(7))
        await until(lambda: partition.state.starts)
        await world.elect(new.node_id)
        with pytest.raises(NotLeader):
            await waiting
        assert new.partition().log_start_offset == 0
        assert await new.partition().purge(7) == 7, "asked again, where it is led now"


async def test_a_purge_of_a_deleted_stream_says_nothing_of_its_namesake(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as world:
        partition, follower = await filled(world), world.followers[0]
        follower.registry._tasks._later.want = lambda *_: None  # type: ignore[method-assign]
        waiting = asyncio.create_task(partition.purge(7))
        await until(lambda: partition.state.starts)
        await world.ask(c.DeleteStream(name="s"))
        with pytest.raises(StreamNotFound):
            await waiting
        await world.create()
        for node in world.nodes.values():
            upkeep = node.registry._tasks
            with pytest.raises(NotLeader):
                await upkeep.persist_log_start(partition, 9)
            await upkeep._persist_starts({partition: 9})
            assert checkpointed(world, node) == 0
        await publish(world.leader.partition(), b"x")
        assert await values_of(world.leader.partition()) == [b"x"]


async def test_who_begins_below_what_was_acknowledged_does_not_join(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 2) as world:
        late = await world.start(3, disk)
        await world.create(replicas=3)
        if world.leader is late:
            await world.elect(1)
        partition = await filled(world)
        await world.stop(late.node_id)
        assert await partition.purge(7) == 7
        disk.faults.break_("write_small", path=CHECKPOINT)
        late = await world.start(3, disk)
        await publish(partition, b"x")
        await until(lambda: late.partition().log_end_offset == 11)
        progress = partition.state.progress
        assert progress is not None
        await until(lambda: progress.followers[late.node_id].end_offset == 11)
        assert not progress.may_join(late.node_id)
        disk.faults.mend()
        await until(lambda: world.isr() == {1, 2, 3})
        assert late.partition().log_start_offset == checkpointed(world, late) == 7


async def test_no_file_goes_before_the_log_start_is_durable(tmp_path: Path) -> None:
    """By retention."""
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 0) as world:
        await world.start(1, disk, segment_bytes=4096, retention_check_ms=10)
        world.controller.create("s", replicas=1, retention_messages=3)
        await world.spread()
        disk.faults.break_("write_small", path=CHECKPOINT)
        partition = world.leader.partition()
        for _ in range(20):
            await publish(partition, b"x" * 1000)
        files = tmp_path / "1" / "streams" / "s" / "0"
        later = world.leader.registry._tasks._later
        await until(lambda: later._wanted)
        assert partition.log_start_offset == 0
        assert (files / f"{0:020}.log").exists()
        disk.faults.mend()
        await until(lambda: partition.log_start_offset > 0)
        assert checkpointed(world, world.leader) == partition.log_start_offset
        assert not (files / f"{0:020}.log").exists()


async def test_a_follower_that_begins_anew_says_first_where(tmp_path: Path) -> None:
    """What it had lies below all that its leader has."""
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 1, replica_lag_time_max_ms=60_000) as world:
        follower = await world.start(2, disk)
        await world.create(replicas=2, min_isr=1)
        if world.leader is follower:
            await world.elect(1)
        await filled(world, 4)
        await world.stop(2)
        partition = await filled(world)
        assert await partition.purge(12) == 12
        said: list[int] = []
        inner = disk.unlink

        def unlink(path: str) -> None:
            if path.endswith(".log"):
                said.append(checkpointed(world, world[2]))
            inner(path)

        disk.unlink = unlink  # type: ignore[method-assign]
        follower = await world.start(2, disk)
        await until(lambda: world.isr() == {1, 2})
        assert said == [12]
        assert follower.partition().log_start_offset == 12
        assert await values_of(follower.partition()) == [b"8", b"9"]
        assert TP in {it.tp for it in follower.registry.partitions()}


@pytest.mark.parametrize("segment_bytes", [1 << 20, 4096], ids=["one segment", "several"])
@pytest.mark.parametrize("start", [1, 7, 10])
async def test_a_purge_of_an_idle_log_outlives_a_kill_and_the_loss_of_its_checkpoint(
    tmp_path: Path, start: int, segment_bytes: int
) -> None:
    """There is no other replica, and nothing is appended after it."""
    world = World(tmp_path)
    partition = await ten_records(world, segment_bytes=segment_bytes)
    await partition.purge(start)
    await until(lambda: is_idle(partition))
    (tmp_path / CHECKPOINT).unlink()
    partition = (await world.started()).partition(TP)
    assert (partition.log_start_offset, partition.log_end_offset) == (start, 10)
    assert not partition.is_ailing
    assert [value and value[:1] for value in await values_of(partition)] == [
        b"%d" % number for number in range(start, 10)
    ]


async def ten_records(world: World, **settings: Any) -> Partition:
    """Nothing but a purge has them synced."""
    registry = await world.started(**settings)
    await world.create("s", sync="os")
    for number in range(10):
        await publish(registry.partition(TP), b"%d" % number + bytes(1000))
    return registry.partition(TP)


def is_idle(partition: Partition) -> bool:
    """The node is doing nothing with its log, and is not about to."""
    return partition.is_quiet and not partition.to_sync


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_start_writes_a_manifest_that_is_behind_the_checkpoint(
    tmp_path: Path, is_lost: bool
) -> None:
    """The node was killed between the two, or the manifest was lost since."""
    world = World(tmp_path)
    partition = await ten_records(world)
    manifest = tmp_path / "streams" / "s" / "0" / MANIFEST_NAME
    await partition.purge(1)
    await until(lambda: is_idle(partition))
    before = manifest.read_bytes()
    await partition.purge(7)
    await until(lambda: is_idle(partition))
    if is_lost:
        manifest.unlink()
    else:
        manifest.write_bytes(before)
    partition = (await world.started()).partition(TP)
    assert partition.log_start_offset == 7
    await until(lambda: is_idle(partition))
    (tmp_path / CHECKPOINT).unlink()
    assert (await world.started()).partition(TP).log_start_offset == 7
