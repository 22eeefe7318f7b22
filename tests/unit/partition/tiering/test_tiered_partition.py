"""Partitions of a tiered stream on real nodes: with a store in a folder, and with the controller that decides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import wall_ms
from streamlog.config import TierSection
from streamlog.errors import (
    NotLeader,
    ObjectStoreUnavailable,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
)
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.metadata import commands as c
from streamlog.model import NO_EPOCH, EpochEnd
from streamlog.partition.partition import Partition
from streamlog.partition.tiering.tier_plan import cut_at
from streamlog.partition.tiering.tiered_log import NO_LAG
from streamlog.wire.errors import code_of
from tests.partition_world import publish, values_of
from tests.unit.partition.replica_world import ReplicaWorld, until

SETTINGS: dict[str, Any] = {
    "tiered": True,
    "segment_bytes": 4096,
    "local_retention_ms": 0,
    "duplicate_window_ms": 100,
}
COUNT = 60


def value(number: int) -> bytes:
    return b"%04d" % number + b"x" * 400


@asynccontextmanager
async def tiered(
    path: Path,
    count: int = 2,
    *,
    keys: KeyRing | None = None,
    orphan_grace_ms: int = 1_000,
    **settings: Any,
) -> AsyncIterator[ReplicaWorld]:
    world = ReplicaWorld(path, count)
    world.keys = keys
    url = (path / "bucket").as_uri()
    world.tier = TierSection(url=url, interval_ms=10, orphan_grace_ms=orphan_grace_ms)
    world.log = {"retention_check_ms": 20}
    async with world:
        await world.create(**{**SETTINGS, **settings})
        yield world


async def fill(world: ReplicaWorld, first: int = 0, end: int = COUNT) -> None:
    await until(lambda: world.leader.partition().high_watermark_known)
    for number in range(first, end):
        await publish(world.leader.partition(), value(number))


def objects(world: ReplicaWorld, kind: str = "segments") -> list[str]:
    return sorted(it.name for it in (world.path / "bucket").glob(f"c/*/0/{kind}/*"))


async def until_front_is_gone(partition: Partition, offset: int = 20) -> None:
    await until(lambda: partition.local_log_start_offset > offset)


async def all_of(partition: Partition, first: int, end: int = COUNT) -> None:
    assert await values_of(partition, first) == [value(number) for number in range(first, end)]


async def test_replicas_read_what_only_the_store_has(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        await fill(world)
        for node in world.nodes.values():
            partition = node.partition()
            await until_front_is_gone(partition)
            assert partition.log_start_offset == 0
            assert partition.tiered.tiered_end_offset is not None
            assert partition.local_log_start_offset <= partition.tiered.tiered_end_offset
            await all_of(partition, 0)
            await all_of(partition, 17)
        assert world.leader.partition().size_bytes > world.leader.partition().local_bytes


async def test_the_local_limit_of_bytes_keeps_more(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"local_retention_ms": -1, "local_retention_bytes": 10_000}
    async with tiered(tmp_path, 1, **settings) as world:
        await fill(world)
        partition = world.leader.partition()
        await until(lambda: partition.local_bytes < 20_000)
        await asyncio.sleep(0.1)
        assert partition.local_bytes >= 10_000


async def test_without_local_limits_all_stays_here_and_is_in_the_store(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1, local_retention_ms=-2) as world:
        await fill(world)
        partition = world.leader.partition()
        await until(lambda: partition.tiered.tiered_end_offset == partition.state.log.sealed_end)
        assert partition.tiered.lag() == NO_LAG
        assert partition.statistics().tier_lag_bytes == 0
        await asyncio.sleep(0.1)
        assert partition.local_log_start_offset == 0


async def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        before = _named(world.leader.partition())
        await world.stop(1)
        await world.start(1)
        await all_of(world.leader.partition(), 0)
        await fill(world, COUNT, 2 * COUNT)
        await until_front_is_gone(world.leader.partition(), COUNT)
        await all_of(world.leader.partition(), 0, 2 * COUNT)
        assert before <= set(objects(world)), "nothing is uploaded again"


async def test_the_next_leader_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2) as world:
        await fill(world)
        await until(lambda: len(objects(world)) > 3)
        await world.elect(2)
        await fill(world, COUNT, 2 * COUNT)
        partition = world[2].partition()
        await until_front_is_gone(partition, COUNT)
        await all_of(partition, 0, 2 * COUNT)
        manifest = await partition.tiered.read_manifest()
        assert manifest.leader_epoch == partition.leader_epoch
        epochs = [it.epoch for it in manifest.leader_epochs]
        assert epochs == [0, 1]
        end = await partition.find_epoch_end(0)
        assert end == EpochEnd(0, COUNT)
        assert partition.epoch_end(0) == EpochEnd(NO_EPOCH, -1) or end == partition.epoch_end(0)


async def test_what_a_deposed_leader_uploads_is_an_orphan(tmp_path: Path) -> None:
    # Both keep their segments: this test calls for one of them itself.
    async with tiered(tmp_path, 2, local_retention_ms=-2) as world:
        old = world.leader
        await fill(world)
        await until(partial(_all_is_tiered, old.partition()))
        # The next leader tells what is committed without the old one, which does not hear that it follows.
        await until(lambda: world[2].partition().high_watermark == COUNT)
        world.deaf.add(old.node_id)
        await world.elect(2)
        leader = world[2].partition()
        await until(lambda: leader.is_leader and leader.tiered.manifest is not None)
        # It believes that it leads, and copies what has come meanwhile.
        storage: Any = old.storage
        assert storage is not None
        before, partition = objects(world), old.partition()
        manager: Any = old.registry._tier_manager
        work = manager._work_of(partition)
        manifest = await partition.tiered.read_manifest()
        segment = partition.state.log.segments.floor(manifest.segments[-1].base_offset)
        cut = cut_at(manifest, segment.base_offset)
        with pytest.raises(NotLeader):
            await manager._upload(partition, work, cut, segment)
        assert set(objects(world)) - set(before) - _named(leader), "it has no owner"
        assert leader.tiered.image is not None
        assert leader.tiered.image.end_offset >= manifest.end_offset
        await until(partial(_all_is_tiered, leader))
        count = len(objects(world))
        await asyncio.sleep(0.2)
        assert len(objects(world)) - count < 2, "it copies the same again and again"
        world.deaf.clear()
        await world.spread()
        await until(lambda: set(objects(world)) == _named(leader))


def _all_is_tiered(partition: Partition) -> bool:
    return partition.tiered.tiered_end_offset == partition.state.log.sealed_end


def _begins_at(partition: Partition, offset: int) -> bool:
    return partition.local_log_start_offset == offset


def _named(partition: Partition) -> set[str]:
    manifest = partition.tiered.manifest
    return set() if manifest is None else {it.name for it in manifest.segments}


async def test_a_purge_reaches_what_is_in_the_store(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2) as world:
        await fill(world)
        partition = world.leader.partition()
        for node in world.nodes.values():
            await until_front_is_gone(node.partition())
        assert await partition.purge(15) == 15
        assert partition.log_start_offset == 15
        await all_of(partition, 15)
        with pytest.raises(OffsetOutOfRange):
            await partition.read(14, 1)
        count = len(objects(world))
        assert await partition.purge(COUNT) == COUNT - 15
        assert partition.log_start_offset == partition.local_log_start_offset == COUNT
        await until(lambda: len(objects(world)) == 0)
        assert count > 0
        for partition_here in [it.partition() for it in world.nodes.values()]:
            await until(partial(_begins_at, partition_here, COUNT))
        await fill(world, COUNT, 2 * COUNT)
        await until_front_is_gone(partition, COUNT)
        await all_of(partition, COUNT, 2 * COUNT)


async def test_retention_by_bytes_holds_for_both_parts(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"retention_bytes": 12_000, "local_retention_bytes": 100}
    async with tiered(tmp_path, 1, **settings) as world:
        await fill(world)
        partition = world.leader.partition()
        await until(lambda: partition.log_start_offset > 20)
        await until(lambda: len(objects(world)) < 6)
        await asyncio.sleep(0.1)
        assert partition.size_bytes >= 12_000
        await all_of(partition, partition.log_start_offset)


async def test_retention_by_age_holds_for_both_parts(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1, retention_ms=4_000) as world:
        await fill(world)
        partition = world.leader.partition()
        await until_front_is_gone(partition)
        assert partition.log_start_offset == 0
        await until(lambda: partition.log_start_offset > 20)
        await until(lambda: objects(world) == [])


async def test_a_store_that_is_away_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        bucket = tmp_path / "bucket"
        storage: Any = world.leader.storage
        upload, is_away = storage.upload, True

        async def fail(*arguments: Any, **settings: Any) -> Any:
            if is_away:
                raise ObjectStoreUnavailable("503")
            return await upload(*arguments, **settings)

        storage.upload = fail
        await fill(world)
        partition = world.leader.partition()
        await asyncio.sleep(0.2)
        assert partition.local_log_start_offset == 0
        assert partition.tiered.tiered_end_offset is None
        assert partition.statistics().tier_lag_segments > 3
        await all_of(partition, 0)
        is_away = False
        await until_front_is_gone(partition)
        await all_of(partition, 0)
        assert bucket.exists()


async def test_an_answer_that_does_not_come_is_asked_for_again(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        node, lost = world.leader, 0
        ask = node.request

        async def lose(command: c.Command) -> Any:
            nonlocal lost
            granted = await ask(command)
            if isinstance(command, c.AlterTier) and lost < 5:
                lost += 1
                raise ObjectStoreUnavailable("the answer is lost")
            return granted

        node.request = lose  # type: ignore[method-assign]
        await fill(world)
        await until_front_is_gone(node.partition())
        assert lost == 5
        await all_of(node.partition(), 0)


async def test_a_refusal_that_the_metadata_have_overtaken_stops_no_copy(tmp_path: Path) -> None:
    """The leader lost its place, and has it again when the answer comes."""
    async with tiered(tmp_path, 2, orphan_grace_ms=60_000) as world:
        node = world.leader
        other = 2 if node.node_id == 1 else 1
        ask, verdicts, filled = node.request, list[str](), asyncio.Event()

        async def overtake(command: c.Command) -> Any:
            if not isinstance(command, c.AlterTier) or verdicts or not command.changes[0].version:
                return await ask(command)
            await filled.wait()
            await world.elect(other)
            refused = await ask(command)
            verdicts.extend(refused.result["verdicts"])
            await world.elect(node.node_id)
            return refused

        async def copy_nothing(command: c.Command) -> Any:
            if isinstance(command, c.AlterTier):
                raise ObjectStoreUnavailable("503")
            return await world.ask(command)

        node.request = overtake  # type: ignore[method-assign]
        world[other].request = copy_nothing  # type: ignore[method-assign]
        await fill(world)
        filled.set()
        async with asyncio.timeout(20):
            await until_front_is_gone(node.partition())
        assert verdicts == ["stale"]
        await all_of(node.partition(), 0)


async def test_a_new_replica_fetches_only_what_is_not_in_the_store(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2, replicas=1) as world:
        await fill(world)
        leader = world.leader
        await until_front_is_gone(leader.partition())
        first = leader.partition().local_log_start_offset
        other = 2 if leader.node_id == 1 else 1
        config = world.controller.image.stream("s").config.changed(replicas=2)
        await world.ask(c.UpdateStream(config=config))
        await until(lambda: world.isr() == {1, 2})
        partition = world[other].partition()
        assert partition.local_log_start_offset >= first
        leader_state = leader.partition().state
        assert isinstance(leader_state._out_of_range(0), OffsetMovedToTieredStorage)
        assert code_of(leader_state._out_of_range(0)) == 109
        assert code_of(leader_state._out_of_range(10**6)) == 1
        assert partition.log_start_offset == 0
        await all_of(partition, 0)
        await world.elect(other)
        await fill(world, COUNT, 2 * COUNT)
        await until_front_is_gone(partition, COUNT)
        await all_of(partition, 0, 2 * COUNT)


async def test_offsets_by_time_are_found_in_the_store(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        await fill(world, 0, 30)
        await asyncio.sleep(0.05)
        middle_ms = wall_ms()
        await asyncio.sleep(0.05)
        await fill(world, 30, 90)
        partition = world.leader.partition()
        await until_front_is_gone(partition, 40)
        found = await partition.offset_for_timestamp(middle_ms)
        assert found is not None
        assert found[0] == 30
        first = await partition.offset_for_timestamp(0)
        assert first is not None
        assert first[0] == 0
        latest = await partition.latest_timestamp()
        assert latest is not None
        assert latest[0] >= 80


async def test_orphans_go_after_their_grace_time(tmp_path: Path) -> None:
    async with tiered(tmp_path, 1) as world:
        await fill(world)
        partition = world.leader.partition()
        await until_front_is_gone(partition)
        named = objects(world)
        folder = next((tmp_path / "bucket").glob("c/*/0/segments"))
        orphan = f"{5:020d}-{0:010d}-{'ab' * 16}"
        (folder / orphan).write_bytes(b"of a crash")
        await until(lambda: orphan not in objects(world))
        assert set(named) <= set(objects(world))
        await all_of(partition, 0)
