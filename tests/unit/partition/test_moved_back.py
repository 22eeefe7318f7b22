"""A replica that is moved away and back: its log of before does not count, and does not return."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from streamlog.metadata import commands as c
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.controller_world import ids
from tests.partition_world import Told, publish, run_of, values_of
from tests.unit.partition.replica_world import TP, ReplicaWorld, until

RECORDS = 10
VALUES = [b"%d" % number for number in range(RECORDS)]
MOMENT_S = 0.1
"""Enough for many fetches of a follower."""


@asynccontextmanager
async def three(path: Path) -> AsyncIterator[ReplicaWorld]:
    """The stream ``s`` on nodes 1 and 2, led by 1, with some records; node 3 keeps nothing."""
    async with ReplicaWorld(path, 3, fetch_wait_max_ms=10) as world:
        config = StreamConfig.of(name="s", replicas=2, min_isr=1)
        await world.ask(c.PlaceStream(config=config, assignments=(ids(1, 2),)))
        for value in VALUES:
            await publish(world[1].partition(), value)
        await until(lambda: world[2].partition().high_watermark == RECORDS)
        yield world


async def move(world: ReplicaWorld, *replicas: int) -> None:
    await world.ask(c.MovePartition(stream="s", partition=0, replicas=ids(*replicas)))


async def away_and_back(world: ReplicaWorld) -> MetadataImage:
    """Node 2 hears of nothing. The image in between, in which it keeps no replica."""
    world.deaf.add(2)
    await move(world, 1, 3)
    await until(lambda: world.controller.partition().replicas == (1, 3))
    between = world.controller.image
    await move(world, 1, 2)
    return between


async def test_what_it_had_before_does_not_count(tmp_path: Path) -> None:
    """It would let the other copy go, and then delete its own, with its node's next image."""
    async with three(tmp_path) as world:
        between = await away_and_back(world)
        await asyncio.sleep(MOMENT_S)
        assert world.isr() == {1, 3}, "the other copy stays until this one has all again"
        await world[2].hear(between)
        world.deaf.discard(2)
        await world.spread()
        await until(lambda: world.controller.partition().replicas == (1, 2))
        assert world.isr() == {1, 2}
        await world.stop(1)
        assert world.leader is world[2]
        assert await values_of(world[2].partition()) == VALUES


async def test_it_begins_anew_also_where_its_node_never_hears_that_it_was_away(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as world:
        before = world[2].partition()
        await away_and_back(world)
        world.deaf.discard(2)
        await world.spread()
        assert world[2].partition() is not before
        await until(lambda: world.controller.partition().replicas == (1, 2))
        await until(lambda: world[2].partition().high_watermark == RECORDS)
        assert await values_of(world[2].partition()) == VALUES


async def test_it_begins_anew_after_a_restart(tmp_path: Path) -> None:
    async with three(tmp_path) as world:
        await world[2].stop()
        world.deaf.add(2)
        await move(world, 1, 3)
        await until(lambda: world.controller.partition().replicas == (1, 3))
        await move(world, 1, 2)
        world.deaf.discard(2)
        folder = tmp_path / "2" / "streams" / "s" / "0"
        (folder / "of the old replica").touch()
        await world.start(2)
        assert not (folder / "of the old replica").exists()
        await until(lambda: world.controller.partition().replicas == (1, 2))
        await until(lambda: world[2].partition().high_watermark == RECORDS)
        assert await values_of(world[2].partition()) == VALUES


async def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    async with three(tmp_path) as world:
        folder = tmp_path / "2" / "streams" / "s" / "0"
        (folder / "still there").touch()
        known = world[2].partition().incarnation
        for _ in range(2):
            await world.stop(2)
            await world.start(2)
            await until(lambda: world.isr() == {1, 2})
        assert (folder / "still there").exists()
        assert world[2].partition().incarnation == known


async def test_a_leader_that_has_not_heard_of_it_asks_for_patience(tmp_path: Path) -> None:
    """It has the metadata of before: the fetches of the new replica do not count with it, and what
    it proposes is stale.
    """
    async with three(tmp_path) as world:
        world.deaf.add(1)
        await world.ask(c.MovePartition(stream="s", partition=0, replicas=ids(1, 3)))
        partition = world[1].partition()
        progress = partition.state.progress
        assert progress is not None
        await asyncio.sleep(MOMENT_S)
        assert NodeId(3) not in progress.followers
        partition.append(run_of(b"x"), told := Told())
        await told.answer
        world.deaf.discard(1)
        await world.spread()
        await until(lambda: world.controller.partition().replicas == (1, 3))
        assert await values_of(world[3].partition(TP)) == [*VALUES, b"x"]


async def test_a_single_replica_goes_on_over_moves_of_itself(tmp_path: Path) -> None:
    """From node 1 to 2 and back, while node 1 hears of nothing until it is over."""
    async with ReplicaWorld(tmp_path, 2, fetch_wait_max_ms=10) as world:
        config = StreamConfig.of(name="s", replicas=1)
        await world.ask(c.PlaceStream(config=config, assignments=(ids(1),)))
        for value in VALUES:
            await publish(world[1].partition(), value)
        for target in (2, 1, 2, 1):
            await move(world, target)
            await until(lambda target=target: world.controller.partition().replicas == (target,))  # type: ignore[misc]
        assert await values_of(world[1].partition()) == VALUES
