"""Fetch sessions over a socket: what is named, what is answered, and what it counts for."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.kafka.fetch.fetch_session import PartitionFetch
from streamlog.kafka.fetch.session_cache import SessionCache
from streamlog.kafka.handlers import fetch
from streamlog.model import NodeId, TopicPartition
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, Sent, at, wanted

FOLLOWER = NodeId(8)
NODE_EPOCH = 40
LONG_MS = 60_000


async def stream(node: KafkaNode, partitions: int) -> list[FakePartition]:
    """Of ten records each; the one replica beside us is in sync."""
    await node.add_stream("flights", partitions)
    found = [node.partition(TopicPartition("flights", n)) for n in range(partitions)]
    for partition in found:
        partition.append([b"x"] * 10)
        partition.node_epochs = {FOLLOWER: NODE_EPOCH}
    return found


class Caller:
    """Keeps to the rules of sessions, unless a test says otherwise."""

    def __init__(self, client: RawClient, **fields: Any) -> None:
        self.client = client
        self.session_id = self.epoch = 0
        self._fields = fields

    def request(self, *partitions: FetchPartition, **more: Any) -> FetchRequest:
        request = wanted(*partitions, **{**self._fields, **more})
        topics = request.topics if partitions else []
        request = request._replace(
            topics=topics, session_id=self.session_id, session_epoch=self.epoch
        )
        self.epoch += 1
        return request

    def send(self, *partitions: FetchPartition, **more: Any) -> Sent:
        return self.client.send_fetch(self.request(*partitions, **more))

    async def fetch(self, *partitions: FetchPartition, **more: Any) -> list[int]:
        """The partitions that are answered."""
        return numbers(await self.answer(*partitions, **more))

    async def answer(self, *partitions: FetchPartition, **more: Any) -> FetchResponse:
        answer = await self.client.fetch(self.request(*partitions, **more))
        assert answer.error_code == 0
        self.session_id = self.session_id or answer.session_id
        assert answer.session_id == self.session_id
        return answer


def consumer(client: RawClient) -> Caller:
    return Caller(client)


def replica(client: RawClient) -> Caller:
    return Caller(client, replica_id=FOLLOWER, replica_epoch=NODE_EPOCH)


def all_at(offset: int, count: int, **more: int) -> Sequence[FetchPartition]:
    return [at(offset, partition=n, **more) for n in range(count)]


def numbers(answer: FetchResponse) -> list[int]:
    return [it.fetched.partition for it in answer.partitions]


@pytest.mark.parametrize("make", [consumer, replica])
async def test_only_what_has_changed_is_answered(node: KafkaNode, make: Any) -> None:
    partitions = await stream(node, 5)
    async with RawClient(node.port) as client:
        caller = make(client)
        assert await caller.fetch(*all_at(10, 5)) == [0, 1, 2, 3, 4]
        assert caller.session_id > 0
        assert await caller.fetch() == []
        partitions[3].append([b"new"])
        assert await caller.fetch() == [3]
        assert await caller.fetch() == [3], "until it is asked for from elsewhere"
        assert await caller.fetch(at(11, partition=3)) == []
        assert await caller.fetch(at(5, partition=1)) == [1]
        assert await caller.fetch(at(10, partition=1)) == []


async def test_what_has_no_room_comes_the_next_time_and_before_others(node: KafkaNode) -> None:
    await stream(node, 4)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        found = []
        full = await caller.answer(*all_at(0, 4), max_bytes=1)
        found.append([it.fetched.partition for it in full.partitions if len(it.records)])
        for _ in range(4):
            last = found[-1][0]
            found.append(await caller.fetch(at(0, partition=last), max_bytes=1))
    assert found == [[0], [1], [2], [3], [0]]


async def test_a_forgotten_partition_is_not_answered(node: KafkaNode) -> None:
    partitions = await stream(node, 3)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(*all_at(10, 3))
        gone = [TopicPartition("flights", 1), TopicPartition("flights", 9)]
        assert await caller.fetch(forgotten=gone) == []
        for partition in partitions:
            partition.append([b"new"])
        assert await caller.fetch() == [0, 2]
        assert not partitions[1].watchers


async def test_a_partition_is_added_with_all_that_is_known(node: KafkaNode) -> None:
    await stream(node, 3)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        assert await caller.fetch(at(10, partition=2)) == [2]
        assert await caller.fetch() == []


async def test_a_wait_ends_with_news_of_what_is_not_named(node: KafkaNode) -> None:
    partitions = await stream(node, 3)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(*all_at(10, 3))
        sent = caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        partitions[2].append([b"new"])
        assert numbers(await client.fetched(sent)) == [2]


async def test_a_request_costs_what_has_changed(node: KafkaNode) -> None:
    """A hundred rest; one of them grows."""
    partitions = await stream(node, 100)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(*all_at(10, 100))
        for _ in range(5):
            await caller.fetch()
        partitions[37].append([b"new"])
        await caller.fetch()
        await caller.fetch(at(11, partition=37))
    looks = [len(partition.fetches) for partition in partitions]
    assert (looks[37], sum(looks)) == (3, 102)


async def test_an_error_is_news_each_time(node: KafkaNode) -> None:
    await stream(node, 2)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(*all_at(10, 2))
        for named in ([at(99)], []):
            (found,) = (await caller.answer(*named, max_wait_ms=LONG_MS)).partitions
            assert found.fetched.error_code == 1
        assert await caller.fetch(at(10)) == [0], "the high watermark again"
        assert await caller.fetch() == []


async def test_another_leader_epoch_is_news(node: KafkaNode) -> None:
    """It was right when it was asked for."""
    partitions = await stream(node, 2)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(*all_at(10, 2, current_leader_epoch=0))
        sent = caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        partitions[1].leader_epoch = 1
        partitions[1].wake()
        (found,) = (await client.fetched(sent)).partitions
        assert (found.fetched.partition, found.fetched.error_code) == (1, 74)
        partitions[0].is_leader = False
        partitions[0].wake()
        assert await caller.fetch() == [0, 1]


async def test_a_deleted_stream_is_news(node: KafkaNode) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        await node.metadata.delete_stream("flights")
        (found,) = (await caller.answer()).partitions
        assert found.fetched.error_code == 3
        partitions = await stream(node, 1)
        (found,) = (await caller.answer(at(0))).partitions
        assert (found.fetched.error_code, len(found.records) > 0) == (0, True)
        assert await caller.fetch(at(10)) == []
        partitions[0].append([b"new"])
        assert await caller.fetch() == [0], "the new one is watched, not the one that is gone"


async def test_a_session_that_is_not_kept_is_unknown(node: KafkaNode) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        unknown = caller.request()._replace(session_id=caller.session_id + 1)
        other = caller.request(replica_id=FOLLOWER)
        for request in (unknown, other):
            answer = await client.fetch(request)
            assert (answer.error_code, answer.partitions, answer.session_id) == (70, [], 0)


@pytest.mark.parametrize("epoch", [0, -1, 1])
async def test_nobody_else_ends_a_session(node: KafkaNode, epoch: int) -> None:
    """0 begins another one in its place, and -1 ends it."""
    await stream(node, 2)
    stranger = RawClient(node.port, own_address="127.0.0.2")
    async with RawClient(node.port) as client, stranger:
        caller = consumer(client)
        await caller.fetch(*all_at(10, 2))
        theirs = wanted(at(10))._replace(session_id=caller.session_id, session_epoch=epoch)
        assert (await stranger.fetch(theirs)).session_id != caller.session_id
        assert await caller.fetch() == [], "it goes on where it was"


async def test_a_client_ends_its_session_over_another_connection(node: KafkaNode) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client, RawClient(node.port) as again:
        caller = consumer(client)
        await caller.fetch(at(10))
        ending = wanted(at(10))._replace(session_id=caller.session_id, session_epoch=-1)
        await again.fetch(ending)
        assert (await client.fetch(caller.request())).error_code == 70


@pytest.mark.parametrize("epoch", [1, 3, 2**31 - 1, -2])
async def test_a_wrong_epoch_is_refused_and_changes_nothing(node: KafkaNode, epoch: int) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        await caller.fetch()
        request = caller.request(at(0))._replace(session_epoch=epoch)
        assert (await client.fetch(request)).error_code == 71
        caller.epoch = 2
        assert await caller.fetch() == []


async def test_the_epoch_goes_round(node: KafkaNode) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        (slot,) = node.listener._context.fetch_sessions._kept.values()
        session = slot.session
        session.epoch = caller.epoch = 2**31 - 1
        await caller.fetch()
        caller.epoch = 1
        await caller.fetch()


async def test_a_session_serves_one_request_at_a_time(node: KafkaNode) -> None:
    partitions = await stream(node, 1)
    async with RawClient(node.port) as client, RawClient(node.port) as another:
        caller = consumer(client)
        await caller.fetch(at(10))
        sent = caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        assert (await another.fetch(caller.request())).error_code == 71
        partitions[0].append([b"new"])
        assert numbers(await client.fetched(sent)) == [0]


async def test_a_full_request_ends_the_session_that_it_names(node: KafkaNode) -> None:
    partitions = await stream(node, 2)
    async with RawClient(node.port) as client:
        for epoch in (0, -1):
            caller = consumer(client)
            await caller.fetch(*all_at(10, 2))
            before = caller.session_id
            request = caller.request(at(10))._replace(session_epoch=epoch)
            answer = await client.fetch(request)
            assert numbers(answer) == [0]
            assert (answer.session_id == 0) == (epoch == -1)
            assert answer.session_id != before
            assert (await client.fetch(caller.request())).error_code == 70
        assert not partitions[1].watchers


async def test_who_wants_no_session_has_none_and_leaves_nothing(node: KafkaNode) -> None:
    partitions = await stream(node, 2)
    async with RawClient(node.port) as client:
        for version in (4, 7, 12):
            answer = await client.fetch(wanted(*all_at(10, 2), max_wait_ms=10), version)
            assert (numbers(answer), answer.session_id) == ([0, 1], 0)
    assert len(node.listener._context.fetch_sessions) == 0
    assert not any(it.watchers for it in partitions)


async def test_without_room_there_is_no_session(node: KafkaNode) -> None:
    partitions = await stream(node, 1)
    sessions: Any = SessionCache(0)
    object.__setattr__(node.listener._context, "fetch_sessions", sessions)
    async with RawClient(node.port) as client:
        answer = await client.fetch(consumer(client).request(at(10), max_wait_ms=10))
    assert (numbers(answer), answer.session_id) == ([0], 0)
    assert not partitions[0].watchers


async def test_topics_are_answered_together(node: KafkaNode) -> None:
    for name in ("a", "b"):
        (await node.add_stream(name, 2)).append([b"x"] * 3)
    topics = [FetchTopic(name, [at(0, partition=n)]) for n in (0, 1) for name in ("a", "b")]
    async with RawClient(node.port) as client:
        answer = await client.fetch(FetchRequest(topics, 0, 1, 1 << 20, session_epoch=0))
    found = [(it.topic, it.fetched.partition, len(it.records) > 0) for it in answer.partitions]
    assert found == [("a", 0, True), ("a", 1, False), ("b", 0, True), ("b", 1, False)]


# Followers


async def test_a_fetch_counts_for_what_rests(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the last request the follower had all; what came later it may not have."""
    now_s = 100.0
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=lambda: now_s))
    partitions = await stream(node, 2)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(*all_at(10, 2))
        now_s += 4
        await caller.fetch()
        now_s += 2
        partitions[1].append([b"new"])
        assert partitions[1].had_all == [(FOLLOWER, 2_000)]
        assert partitions[0].had_all == []
        await caller.fetch()
        partitions[1].append([b"new"])
        await caller.fetch()
        assert len(partitions[1].had_all) == 1, "it did not rest meanwhile"


async def test_who_is_not_in_sync_fetches_each_time(node: KafkaNode) -> None:
    """With each fetch it may be proposed."""
    (partition,) = await stream(node, 1)
    partition.lagging = frozenset({FOLLOWER})
    async with RawClient(node.port) as client:
        caller = replica(client)
        for number in range(3):
            await caller.fetch(*([at(10)] if not number else []))
            assert len(partition.fetches) == number + 1
        partition.lagging = frozenset()
        await caller.fetch()
        await caller.fetch()
        assert len(partition.fetches) == 4
        partition.lagging = frozenset({FOLLOWER})
        partition.wake()
        await caller.fetch()
        await caller.fetch()
        assert len(partition.fetches) == 6


async def test_a_consumer_at_a_follower_is_looked_at_each_time(node: KafkaNode) -> None:
    """Nobody tells when the follower may serve reads no longer."""
    (partition,) = await stream(node, 1)
    partition.is_leader, partition.in_sync = False, True
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(at(10))
        assert await caller.fetch() == []
        partition.in_sync = False
        (found,) = (await caller.answer(max_wait_ms=LONG_MS)).partitions
    assert found.fetched.error_code == 6


async def test_a_replica_hears_once_of_what_was_committed(node: KafkaNode) -> None:
    (partition,) = await stream(node, 1)
    partition.append([b"y"], commit=False)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(at(11, high_watermark=10, log_start_offset=0))
        assert await caller.fetch(max_wait_ms=30) == []
        sent = caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        partition.high_watermark = 11
        partition.tell(partition.watchers)
        (found,) = (await client.fetched(sent)).partitions
        assert (found.fetched.high_watermark, len(found.records)) == (11, 0)
        assert await caller.fetch(max_wait_ms=30) == []
        assert len(partition.fetches) == 1, "it has not been looked at"


async def test_a_replica_hears_of_what_is_gone(node: KafkaNode) -> None:
    (partition,) = await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(at(10, high_watermark=10, log_start_offset=0))
        sent = caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        partition.log_start_offset = 4
        partition.wake()
        (found,) = (await client.fetched(sent)).partitions
        assert found.fetched.log_start_offset == 4
        assert await caller.fetch() == []


async def test_a_replica_that_says_more_is_answered_at_once(node: KafkaNode) -> None:
    await stream(node, 2)
    async with RawClient(node.port) as client:
        caller = replica(client)
        sent = caller.send(*all_at(10, 1, high_watermark=10), max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
        hurry = client.send(18, 0, {})
        caller.session_id = (await client.fetched(sent)).session_id
        await client.answer(hurry)
        sent = caller.send(max_wait_ms=LONG_MS)
        again = caller.send(at(10, partition=1), max_wait_ms=30)
        assert numbers(await client.fetched(sent)) == []
        assert numbers(await client.fetched(again)) == [1]


async def test_a_consumer_that_says_more_waits(node: KafkaNode) -> None:
    await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = consumer(client)
        loop, started = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        sent = caller.send(at(10), max_wait_ms=100)
        hurry = client.send(18, 0, {})
        await client.fetched(sent)
        assert loop.time() - started > 0.09
        await client.answer(hurry)


async def test_a_peer_that_goes_ends_nothing_but_its_request(node: KafkaNode) -> None:
    """The session waits for whoever knows it."""
    partitions = await stream(node, 1)
    async with RawClient(node.port) as client:
        caller = replica(client)
        await caller.fetch(at(10))
        caller.send(max_wait_ms=LONG_MS)
        await asyncio.sleep(0.02)
    await until(lambda: not node.metric("streamlog_connections"))
    async with RawClient(node.port) as client:
        caller.client = client
        partitions[0].append([b"new"])
        assert await caller.fetch() == [0]


async def test_a_session_that_is_put_out_while_its_request_waits_leaves_no_watcher(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = await stream(node, 2)
    sessions = node.context.fetch_sessions
    async with RawClient(node.port) as client:
        caller = consumer(client)
        await caller.fetch(*all_at(10, 2))
        inner = PartitionFetch.look

        async def look(self: PartitionFetch, *args: Any, **more: Any) -> None:
            await inner(self, *args, **more)
            sessions._remove_where(lambda _: True)

        monkeypatch.setattr(PartitionFetch, "look", look)
        await caller.fetch(*all_at(10, 2), max_wait_ms=20)
    assert len(sessions) == 0
    assert not any(it.watchers for it in partitions)


async def test_what_all_sessions_keep_has_a_limit(node: KafkaNode) -> None:
    """Whoever finds no room fetches without a session; nobody fetches without rights by it."""
    await stream(node, 2)
    sessions = SessionCache(partitions_max=1)
    object.__setattr__(node.listener._context, "fetch_sessions", sessions)
    async with RawClient(node.port) as client, RawClient(node.port) as other:
        first = consumer(client)
        assert await first.fetch(at(0)) == [0]
        assert first.session_id != 0
        too_much = consumer(other).request(at(0), at(0, partition=1))
        answer = await other.fetch(too_much)
        assert (answer.session_id, numbers(answer)) == (0, [0, 1])
        # One that names more from request to request has no more room, either.
        assert await first.fetch(at(0, partition=1)) == [0, 1]
        lost = await client.fetch(first.request(at(0, partition=0)))
        assert lost.error_code == 70
    assert len(sessions) == 0
