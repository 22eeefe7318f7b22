"""Retention by interest and work queues of three nodes, through failures: nothing goes that a consumer still needs,
nothing comes again whose acknowledgement was confirmed, and at the end every replica is empty.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from tests.integration.test_consumers_cluster import (
    FAILED,
    SETTINGS,
    assert_no_faults,
    connected,
    elect,
    fill,
    make_stream,
    retried,
    spread,
    state_partition,
    under_load,
    until_delivered,
)
from tests.local_node import until
from tools.nodes.cluster import Cluster, NoNats

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")

INTEREST, QUEUE = api.RetentionPolicy.INTEREST, api.RetentionPolicy.WORK_QUEUE


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


async def add_consumer(js: JetStreamContext, stream: str, name: str) -> None:
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=4.0)
    await retried(lambda: js.add_consumer(stream, config, durable_name=name))


async def prepare(
    cluster: Cluster,
    stream: str,
    retention: api.RetentionPolicy,
    *consumers: str,
    leader: int,
    coordinator: int,
) -> None:
    async with connected(cluster, 1) as client:
        js = client.jetstream()
        await make_stream(js, stream, retention=retention)
        for name in consumers:
            await add_consumer(js, stream, name)
    await spread(cluster, stream, leader=leader, coordinator=coordinator)


async def delete(js: JetStreamContext, stream: str) -> None:
    """The answer may be late."""
    while True:
        try:
            await js.delete_stream(stream)
        except NotFoundError:
            return
        except FAILED:
            continue
        return


async def messages(js: JetStreamContext, stream: str) -> int:
    info = await retried(lambda: js.stream_info(stream))
    return int(info.state.messages)


async def drain(client: Client, stream: str, consumer: str) -> list[int]:
    """All that there is for it, each acknowledged."""
    js, found = client.jetstream(), list[int]()
    subscription = await js.pull_subscribe_bind(consumer, stream)
    async with asyncio.timeout(40):
        while True:
            info = await retried(lambda: js.consumer_info(stream, consumer))
            if not info.num_pending and not info.num_ack_pending:
                return found
            with contextlib.suppress(*FAILED):
                for it in await subscription.fetch(50, timeout=2):
                    await it.ack_sync(timeout=3)
                    found.append(int(it.data))


async def until_empty(js: JetStreamContext, stream: str) -> None:
    for _ in range(100):
        left = await messages(js, stream)
        if not left:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{left} messages are left")


async def assert_empty_everywhere(cluster: Cluster, stream: str) -> None:
    """Whatever replica leads."""
    async with connected(cluster, 1, 2, 3) as client:
        js = client.jetstream()
        await until_empty(js, stream)
        await asyncio.sleep(1.5)  # the start of the log moves twice a second
        for node in (1, 2, 3):
            await asyncio.to_thread(elect, cluster, (stream, 0), node)
            assert await messages(js, stream) == 0


ROLES = {"coordinator": 3, "leader": 2, "leader and coordinator": 2}


@pytest.mark.parametrize("role", ROLES)
async def test_work_queue_is_emptied_through_kill_9(trio: Cluster, role: str) -> None:
    struck = ROLES[role]
    coordinator = 2 if role == "leader and coordinator" else 3
    await prepare(trio, "jobs", QUEUE, "worker", leader=2, coordinator=coordinator)
    async with under_load(trio, "jobs", publisher=1, worker=1) as load:
        for turn in range(2):
            await until_delivered(load, 200)
            trio.kill(struck)
            await until_delivered(load, 100)
            await asyncio.to_thread(trio.start, struck)
            if turn < 1:
                await spread(trio, "jobs", leader=2, coordinator=coordinator)
    trio.wait_settled([("jobs", 0), state_partition("jobs")])
    await assert_empty_everywhere(trio, "jobs")


@pytest.mark.parametrize("role", ROLES)
async def test_slow_consumer_loses_nothing_through_kill_9(trio: Cluster, role: str) -> None:
    struck = ROLES[role]
    coordinator = 2 if role == "leader and coordinator" else 3
    await prepare(trio, "news", INTEREST, "worker", "slow", leader=2, coordinator=coordinator)
    async with under_load(trio, "news", publisher=1, worker=1) as load:
        await until_delivered(load, 200)
        trio.kill(struck)
        await until_delivered(load, 200)
        await asyncio.to_thread(trio.start, struck)
    trio.wait_settled([("news", 0), state_partition("news")])
    async with connected(trio, 1) as client:
        assert await messages(client.jetstream(), "news") >= len(load.published)
        found = await drain(client, "news", "slow")
        assert load.published <= set(found)
    await assert_empty_everywhere(trio, "news")


async def test_consumer_that_is_made_under_load_has_all_from_then_on(trio: Cluster) -> None:
    """Others are quick, and the coordinator is another one each time."""
    await prepare(trio, "news", INTEREST, "worker", leader=2, coordinator=3)
    async with (
        under_load(trio, "news", publisher=1, worker=1) as load,
        connected(trio, 2, 1, 3) as client,
    ):
        js = client.jetstream()
        known_before = dict[str, set[int]]()
        for turn in range(6):
            await until_delivered(load, 50)
            if turn in (1, 3):
                node = 1 if turn == 1 else 3
                await asyncio.to_thread(elect, trio, state_partition("news"), node)
            name = f"late{turn}"
            await add_consumer(js, "news", name)
            known_before[name] = set(load.published)
        await until(lambda: len(load.published) > max(known_before["late5"]) + 400)
    async with connected(trio, 1, 2, 3) as client:
        for name, known in known_before.items():
            # What is numbered above by more than was under way was published after the consumer was made.
            first = max(known) + 200
            wanted = {it for it in load.published if it >= first}
            assert wanted <= set(await drain(client, "news", name))
    await assert_empty_everywhere(trio, "news")


async def test_coordinator_that_stood_still_removes_nothing(trio: Cluster) -> None:
    """It does not know of a consumer that was made meanwhile."""
    await prepare(trio, "news", INTEREST, "worker", leader=1, coordinator=3)
    async with connected(trio, 1, 2) as client:
        js = client.jetstream()
        await fill(js, "news", 20)
        subscription = await js.pull_subscribe_bind("worker", "news")
        early = await subscription.fetch(20, timeout=5)
        for it in early[:10]:
            await it.ack_sync(timeout=5)
        trio[3].pause()
        try:
            await asyncio.sleep(4)  # longer than its lease
            await add_consumer(js, "news", "late")
            await fill(js, "news", 20, first=100)
            for it in early[10:]:
                await it.ack()  # node 3 hears it as well, once it goes on
        finally:
            trio[3].resume()
        await drain(client, "news", "worker")
        await asyncio.sleep(1)
        found = await drain(client, "news", "late")
        assert {100 + it for it in range(20)} <= set(found)
    await assert_empty_everywhere(trio, "news")


async def test_follower_that_was_away_is_emptied_too(trio: Cluster) -> None:
    await prepare(trio, "jobs", QUEUE, "worker", leader=1, coordinator=2)
    async with connected(trio, 1, 2) as client:
        js = client.jetstream()
        await fill(js, "jobs", 50)
        subscription = await js.pull_subscribe_bind("worker", "jobs")
        early = await subscription.fetch(50, timeout=5)
        trio.kill(3)
        for it in early[1:]:
            await it.ack_sync(timeout=5)
        assert await messages(js, "jobs") == 1
        await asyncio.to_thread(trio.start, 3)
        trio.wait_settled([("jobs", 0), state_partition("jobs")])
        assert await messages(js, "jobs") == 1
        await early[0].ack_sync(timeout=5)
    await assert_empty_everywhere(trio, "jobs")


async def test_queue_of_the_same_name_is_another_one(trio: Cluster) -> None:
    """The leader of the old one learns of it late."""
    await prepare(trio, "jobs", QUEUE, "worker", leader=3, coordinator=1)
    async with connected(trio, 1) as client:
        js = client.jetstream()
        await fill(js, "jobs", 20)
        assert len(await drain(client, "jobs", "worker")) == 20
        trio[3].pause()
        try:
            await delete(js, "jobs")
            make = partial(js.add_stream, name="jobs", subjects=["jobs.>"], num_replicas=2)
            await retried(lambda: make(retention=QUEUE))
            await add_consumer(js, "jobs", "worker")
            await fill(js, "jobs", 5, first=100)
        finally:
            trio[3].resume()
        await asyncio.to_thread(elect, trio, state_partition("jobs"), 3)
        assert await messages(js, "jobs") == 5
        assert await drain(client, "jobs", "worker") == [100, 101, 102, 103, 104]


async def test_partitions_are_emptied_each_by_its_own_sequences(trio: Cluster) -> None:
    async with connected(trio, 1) as client:
        js = client.jetstream()
        metadata = {"streamlog.partitions": "5", "streamlog.partition_by": "tokens:2"}
        await make_stream(js, "parts", metadata=metadata, retention=INTEREST)
        for name in ("a", "b"):
            await add_consumer(js, "parts", name)
        for number in range(100):
            subject = f"parts.{number % 20}"
            await retried(partial(js.publish, subject, b"%d" % number))
        assert sorted(await drain(client, "parts", "a")) == list(range(100))
        assert await messages(js, "parts") == 100
        assert sorted(await drain(client, "parts", "b")) == list(range(100))
        await until_empty(js, "parts")


async def test_leader_that_was_restarted_is_told_again(trio: Cluster) -> None:
    """It keeps the only replica, and leads again; the coordinator lives on."""
    async with connected(trio, 1) as client:
        js = client.jetstream()
        make = partial(js.add_stream, name="lone", subjects=["lone.>"], num_replicas=1)
        await retried(lambda: make(retention=INTEREST))
        await add_consumer(js, "lone", "worker")
        leader = trio.leader(("lone", 0))
        assert leader is not None
        coordinator = leader % 3 + 1
        await asyncio.to_thread(elect, trio, state_partition("lone"), coordinator)
    async with connected(trio, coordinator) as client:
        js = client.jetstream()
        await fill(js, "lone", 10)
        assert len(await drain(client, "lone", "worker")) == 10
        await js.delete_consumer("lone", "worker")
        trio.kill(leader)
        await asyncio.to_thread(trio.start, leader)
        trio.wait_settled([("lone", 0)])
        await fill(js, "lone", 10)
        await until_empty(js, "lone")


@pytest.mark.parametrize("retention", [api.RetentionPolicy.LIMITS, INTEREST, QUEUE])
async def test_what_takes_the_place_of_lost_messages_is_delivered(
    trio: Cluster, retention: api.RetentionPolicy
) -> None:
    """A leader is elected that lacks what the consumer has read and acknowledged."""
    async with connected(trio, 1, 2, 3) as client:
        js = client.jetstream()
        config = api.StreamConfig(
            name="jobs", subjects=["jobs.>"], num_replicas=2, retention=retention
        )
        await retried(lambda: js.add_stream(config))
        await add_consumer(js, "jobs", "worker")
    place = ("jobs", 0)
    await asyncio.to_thread(trio.command, "stream", "edit", "jobs", "--min-isr", "1")
    leader, follower = trio.leader(place), 0
    follower = next(it for it in trio.view().partitions[place].replicas if it != leader)
    third = 6 - leader - follower
    await asyncio.to_thread(elect, trio, state_partition("jobs"), third)
    async with connected(trio, third) as client:
        js = client.jetstream()
        await fill(js, "jobs", 10)
        assert sorted(await drain(client, "jobs", "worker")) == [*range(10)]
        trio.kill(follower)
        await fill(js, "jobs", 20, first=10)
        assert sorted(await drain(client, "jobs", "worker")) == [*range(10, 30)]
        trio.kill(leader)
        await asyncio.to_thread(trio.start, follower)
        await asyncio.to_thread(
            trio.command, "cluster", "elect-leader", "jobs", "0", "--unclean", "--yes"
        )
        await fill(js, "jobs", 8, first=100)
        assert sorted(await drain(client, "jobs", "worker")) == [*range(100, 108)]
        await fill(js, "jobs", 4, first=200)
        assert sorted(await drain(client, "jobs", "worker")) == [*range(200, 204)]
        assert "a consumer goes back in its stream" in trio[third].log_text()
    await asyncio.to_thread(trio.start, leader)
