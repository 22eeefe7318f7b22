"""A stream that is deleted and created again: nothing of one counts for the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamlog.metadata import commands as c
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.partition.replication.replica_fetcher import ReplicaFetcher
from streamlog.replication.isr import IsrProposal
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.partition_world import Told, publish, run_of, values_of
from tests.raw_client import RawClient
from tests.unit.partition.replica_world import ReplicaWorld, until

RECORDS = 5
MOMENT_S = 0.1
"""Enough for many fetches of a follower."""


@asynccontextmanager
async def recreated(path: Path, *, late: int) -> AsyncIterator[ReplicaWorld]:
    """The stream ``s`` on nodes 1 and 2, led by 1; then another of that name, of which node
    ``late`` has not heard.
    """
    async with ReplicaWorld(path, 2, fetch_wait_max_ms=10) as world:
        await create(world)
        for number in range(RECORDS):
            await publish(world[1].partition(), b"old %d" % number)
        await until(lambda: world[2].partition().high_watermark == RECORDS)
        world.deaf.add(late)
        await world.ask(c.DeleteStream(name="s"))
        await create(world)
        yield world


async def create(world: ReplicaWorld) -> None:
    config = StreamConfig.of(name="s", replicas=2, min_isr=2)
    await world.ask(c.PlaceStream(config=config, assignments=((NodeId(1), NodeId(2)),)))


async def catch_up(world: ReplicaWorld, number: int) -> None:
    world.deaf.discard(number)
    await world.spread()


async def test_a_follower_that_has_not_heard_of_it_does_not_count(tmp_path: Path) -> None:
    async with recreated(tmp_path, late=2) as world:
        leader, told = world[1].partition(), [Told() for _ in range(2 * RECORDS)]
        for number, ack in enumerate(told):
            leader.append(run_of(b"new %d" % number), ack)
        await asyncio.sleep(MOMENT_S)
        assert not any(ack.answer.done() for ack in told)
        await catch_up(world, 2)
        await asyncio.gather(*(ack.answer for ack in told))
        expected = [b"new %d" % number for number in range(2 * RECORDS)]
        await until(lambda: world[2].partition().high_watermark == 2 * RECORDS)
        assert await values_of(world[2].partition()) == expected


async def test_a_leader_that_has_not_heard_of_it_gives_nothing(tmp_path: Path) -> None:
    async with recreated(tmp_path, late=1) as world:
        await asyncio.sleep(MOMENT_S)
        assert world[2].partition().log_end_offset == 0
        await catch_up(world, 1)
        await publish(world[1].partition(), b"new")
        await until(lambda: world[2].partition().high_watermark == 1)
        assert await values_of(world[2].partition()) == [b"new"]


async def test_a_leader_that_has_not_heard_of_it_proposes_for_the_old_one(tmp_path: Path) -> None:
    """Its image knows the new stream before the partition is closed."""
    async with recreated(tmp_path, late=1) as world:
        node, known = world[1], world.controller.partition()
        node.image = world.controller.image
        members = ((NodeId(1), world.controller.epoch(1)),)
        proposal = IsrProposal(known.leader_epoch, known.partition_epoch, members)
        replication = node.registry._replication
        assert replication is not None
        await replication._isr_changes._put([(node.partition(), proposal)])
        assert world.controller.partition() == known


async def test_a_replica_is_refused_by_name(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2) as world:
        await create(world)
        await world[2].stop()
        progress = world[1].partition().state.progress
        assert progress is not None
        progress.followers.clear()
        topic = FetchTopic("s", [FetchPartition(0, 0, 1)])
        epoch = world.controller.epoch(2)
        request = FetchRequest([topic], 0, 1, 1, NodeId(2), replica_epoch=epoch)
        _, port = world[1].listener.address
        async with RawClient(port) as client:
            for version in (4, 9, 12):
                answer = await client.fetch(request, version)
                assert [it.fetched.error_code for it in answer.partitions] == [100]
        assert not progress.followers


async def test_an_answer_about_the_old_one_is_not_taken_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is on its way while the follower hears of the new stream."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    inner = ReplicaFetcher._exchange

    async def exchange(self: ReplicaFetcher, request: FetchRequest):  # type: ignore[no-untyped-def]
        answer = await inner(self, request)
        if any(len(it.records) for it in answer.partitions):
            asked.set()
            await go_on.wait()
        return answer

    async with ReplicaWorld(tmp_path, 2, fetch_wait_max_ms=10) as world:
        await create(world)
        monkeypatch.setattr(ReplicaFetcher, "_exchange", exchange)
        world[1].partition().append(run_of(b"old"), ack := Told())
        await asked.wait()
        await world.ask(c.DeleteStream(name="s"))
        await create(world)
        go_on.set()
        with pytest.raises(Exception, match="deleted"):
            await ack.answer
        await publish(world[1].partition(), b"new")
        await until(lambda: world[2].partition().high_watermark == 1)
        assert await values_of(world[2].partition()) == [b"new"]
