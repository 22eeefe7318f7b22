"""Markers to the leaders of partitions, on this node and others, until each has them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamlog.errors import (
    NodeUnreachable,
    NotLeader,
    PartitionNotFound,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.transactions import marker_sender
from streamlog.transactions.marker_sender import REQUESTS_MAX, TOLD_AFTER, MarkerSender
from streamlog.transactions.requests import SendMarkers
from streamlog.transactions.transaction import PartitionId, ProducerEpoch
from tests.kafka_node import until

HERE = NodeId(1)
SENT = SendMarkers("x", ProducerEpoch(7, 3), True, frozenset({("t", 0), ("t", 1), ("t", 2)}), 2)


@dataclass
class Shard:
    """A leadership of the coordinator's partition."""

    leader_epoch: int = 12
    leads: bool = True
    told: set[PartitionId] = field(default_factory=set)
    sent: SendMarkers = SENT

    def marked(self, sent: SendMarkers, partition: PartitionId) -> None:
        assert sent is self.sent
        assert partition not in self.told
        self.told.add(partition)


@dataclass
class Image:
    """The leaders of the partitions of t."""

    leaders: list[int]
    is_deleted: bool = False

    @property
    def streams(self) -> dict[str, Any]:
        @dataclass
        class Partition:
            leader: int

        @dataclass
        class Stream:
            partitions: list[Partition]

        return {} if self.is_deleted else {"t": Stream([Partition(it) for it in self.leaders])}

    @property
    def nodes(self) -> dict[int, PeerAddress]:
        return {it: PeerAddress(f"host{it}", 9092) for it in (1, 2, 3)}


class World:
    def __init__(self) -> None:
        self.image = Image([1, 2, 3])
        self.here: list[tuple[TopicPartition, TransactionMarker]] = []
        self.requests: list[tuple[str, list[Any]]] = []
        self.errors: list[StreamlogError | int] = []
        """What becomes of the next requests."""
        self.here_fails: StreamlogError | None = None
        self.is_newest = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.shard: Any = Shard()
        image: Any = lambda: self.image  # noqa: E731
        self.sender = MarkerSender(HERE, image, self, here=self.end_here, catch_up=self.catch_up)

    async def catch_up(self) -> bool:
        return self.is_newest

    async def end_here(self, tp: TopicPartition, marker: TransactionMarker) -> None:
        if self.here_fails is not None:
            raise self.here_fails
        self.here.append((tp, marker))

    async def write_markers(
        self, address: PeerAddress, values: Any, timeout_ms: int, *, purpose: str
    ) -> Any:
        self.requests.append((address.host, values["markers"]))
        await self.answers.wait()
        error = self.errors.pop(0) if self.errors else 0
        if isinstance(error, StreamlogError):
            raise error
        return {
            "markers": [
                {
                    "producer_id": it["producer_id"],
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {"partition_index": number, "error_code": error}
                                for number in topic["partition_indexes"]
                            ],
                        }
                        for topic in it["topics"]
                    ],
                }
                for it in values["markers"]
            ]
        }

    def close(self) -> None:
        pass


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(marker_sender, "RETRY_S", 0.01)
    world = World()
    running = asyncio.create_task(world.sender.run())
    yield world
    running.cancel()
    await asyncio.wait([running])


async def test_each_leader_is_told_of_its_partitions(world: World) -> None:
    world.sender.send(world.shard, SENT)
    await until(lambda: not world.sender.unsent)
    assert world.shard.told == SENT.partitions
    assert world.here == [(TopicPartition("t", 0), TransactionMarker(7, 3, True, 12, 2))]
    asked = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": [1]}],
        "coordinator_epoch": 12,
        "transaction_version": 2,
    }
    assert ("host2", [asked]) in world.requests


@pytest.mark.parametrize("error", [NodeUnreachable("x"), 6, 7, 52])
async def test_what_is_not_taken_is_sent_again(world: World, error: Any) -> None:
    world.errors = [error, error, error]
    world.here_fails = NotLeader("another leads")
    world.sender.send(world.shard, SENT)
    await until(lambda: not world.errors)
    world.here_fails = None
    await until(lambda: not world.sender.unsent)
    assert world.shard.told == SENT.partitions


@pytest.mark.parametrize(("version", "is_late"), [(0, True), (2, False)])
async def test_a_marker_that_may_be_on_its_way_is_not_overtaken(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int, is_late: bool
) -> None:
    """It would end the producer's next transaction, if that has the same epoch."""
    monkeypatch.setattr(marker_sender, "LATE_S", 0.3)
    sent = SENT._replace(version=version, partitions=frozenset({("t", 1)}))
    world.shard.sent = sent
    world.errors = [RequestTimedOut("no answer")]
    world.sender.send(world.shard, sent)
    await until(lambda: not world.errors)
    await asyncio.sleep(0.1)
    assert (world.sender.unsent == 1) == is_late
    await until(lambda: not world.sender.unsent)


async def test_the_next_leader_is_told(world: World) -> None:
    world.image.leaders = [NO_LEADER, NO_LEADER, 1]
    world.sender.send(world.shard, SENT)
    await until(lambda: world.sender.unsent == 2)
    world.image.leaders = [3, 3, 1]
    await until(lambda: not world.sender.unsent)
    assert {host for host, _ in world.requests} == {"host3"}


async def test_a_leader_whose_address_is_not_known_is_told_later(world: World) -> None:
    world.image.leaders = [9, 9, 1]
    world.sender.send(world.shard, SENT)
    await until(lambda: world.sender.unsent == 2)
    await asyncio.sleep(0.05)
    world.image.leaders = [3, 2, 1]
    await until(lambda: not world.sender.unsent)
    assert world.shard.told == SENT.partitions
    assert {host for host, _ in world.requests} == {"host2", "host3"}


async def test_markers_that_are_not_taken_for_long_are_told_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sent = SENT._replace(partitions=frozenset({("t", 1)}))
    world.shard.sent = sent
    world.errors = [6] * TOLD_AFTER
    world.sender.send(world.shard, sent)
    await until(lambda: not world.sender.unsent)
    told = [it for it in caplog.records if it.levelno >= logging.WARNING]
    assert len(told) == 1
    assert vars(told[0])["transactional_id"] == "x"


async def test_a_stream_that_is_gone_needs_no_marker(world: World) -> None:
    world.image.is_deleted = True
    world.here_fails = PartitionNotFound("t/0")
    world.is_newest = False
    world.sender.send(world.shard, SENT)
    await asyncio.sleep(0.05)
    assert world.sender.unsent == 3  # it may be one that was made a moment ago
    world.is_newest = True
    await until(lambda: not world.sender.unsent)
    assert world.shard.told == SENT.partitions


async def test_a_partition_that_is_gone_needs_no_marker(world: World) -> None:
    """The stream was made anew, with fewer."""
    world.image.leaders = [3]
    world.here_fails = PartitionNotFound("t")
    world.sender.send(world.shard, SENT)
    await until(lambda: not world.sender.unsent)
    assert world.shard.told == SENT.partitions
    assert {host for host, _ in world.requests} == {"host3"}


async def test_another_coordinator_sends_what_is_left(world: World) -> None:
    world.here_fails = NotLeader("x")
    world.errors = [6] * 100
    world.sender.send(world.shard, SENT)
    await until(lambda: len(world.errors) < 98)
    world.shard.leads = False
    await until(lambda: not world.sender.unsent)
    assert not world.shard.told


async def test_markers_of_one_node_share_requests(world: World) -> None:
    world.answers.clear()
    world.image.leaders = [2, 2, 2]
    shards = [Shard() for _ in range(100)]
    for shard in shards:
        world.sender.send(shard, SENT)  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await until(lambda: len(world.requests) == REQUESTS_MAX)
    world.answers.set()
    await until(lambda: not world.sender.unsent)
    assert len(world.requests) <= 2 * REQUESTS_MAX
    assert all(it.told == SENT.partitions for it in shards)


async def test_what_waits_for_a_request_is_let_go_of_with_the_leadership(world: World) -> None:
    world.answers.clear()
    world.image.leaders = [2, 2, 2]
    shards = [Shard() for _ in range(20)]
    for shard in shards:
        world.sender.send(shard, SENT)  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await until(lambda: len(world.requests) == REQUESTS_MAX)
    for shard in shards:
        shard.leads = False
    count = len(world.requests)
    world.answers.set()
    await until(lambda: not world.sender.unsent)
    assert len(world.requests) == count
