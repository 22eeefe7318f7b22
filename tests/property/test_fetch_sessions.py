"""Whoever keeps to a fetch session knows what full fetches would tell; and counts as they would."""

import asyncio
import random
from typing import Any

import pytest

from streamlog.kafka.fetch.fetch_session import FetchSession, PartitionFetch, Steps
from streamlog.kafka.handlers import fetch as handler
from streamlog.kafka.net.channel import RequestWait
from streamlog.model import NodeId, TopicPartition
from streamlog.replication.leader import LeaderProgress
from streamlog.wire.cursor import Cursor
from streamlog.wire.fetch import (
    FetchedRecords,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    TopicIdPartition,
    encode_request,
    read_response,
)
from tests.fake_metadata import first_id
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode

FOLLOWER, NODE_EPOCH = NodeId(8), 40
TOPIC_ID = first_id("s").bytes
PARTITIONS = 6
STEPS = 250
SEEDS = 16
Told = tuple[int, int, int, bytes, object]


class Pair:
    """A caller with a session, and its twin that asks for everything each time."""

    def __init__(self, node: KafkaNode, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node = node
        self.is_replica = seed % 2 == 0
        self.session_id = self.epoch = 0
        self.wanted: dict[int, FetchPartition] = {}
        self.known: dict[int, tuple[int, int]] = {}
        """High watermark and log start, as last told."""
        self.refusals = 0

    def partition(self, number: int) -> FakePartition:
        return self.node.partition(TopicPartition("s", number))

    async def step(self) -> None:
        for _ in range(self.rng.randrange(4)):
            self.change(self.partition(self.rng.randrange(PARTITIONS)))
        named, forgotten = self.named(), self.forgotten()
        if self.rng.random() < 0.03:
            self.session_id = self.epoch = 0
        if self.epoch == 0:
            named, forgotten = dict(self.wanted), []
        if self.rng.random() < 0.03:
            self.epoch += 1
        answer = await self.fetch(named, forgotten, self.session_id, self.epoch)
        if answer.error_code:
            self.refusals += 1
            self.epoch = 0
            self.known.clear()
            answer = await self.fetch(self.wanted, [], self.session_id, 0)
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        self.compare(answer, await self.fetch(self.wanted, [], 0, -1))

    def change(self, partition: FakePartition) -> None:
        match self.rng.randrange(9):
            case 0 | 1 | 2:
                partition.append([b"x"], commit=self.rng.random() < 0.5)
            case 3 | 4:
                partition.commit()
            case 5:
                partition.log_start_offset = self.rng.randint(0, partition.high_watermark)
                partition.wake()
            case 6:
                partition.leader_epoch += 1
                partition.wake()
            case 7:
                partition.is_leader = not partition.is_leader
                partition.wake()
            case 8:
                partition.lagging ^= {FOLLOWER}
                partition.tell(partition.watchers)

    def named(self) -> dict[int, FetchPartition]:
        named: dict[int, FetchPartition] = {}
        for number in self.rng.sample(range(PARTITIONS), self.rng.randrange(PARTITIONS)):
            partition = self.partition(number)
            end = partition.log_end_offset
            offset = self.rng.choice([end, end, end, self.rng.randint(0, end + 1)])
            epoch = self.rng.choice([-1, -1, partition.leader_epoch, 0])
            named[number] = FetchPartition(number, offset, 1 << 20, epoch)
        self.wanted.update(named)
        return named

    def forgotten(self) -> list[TopicPartition | TopicIdPartition]:
        gone = [it for it in self.wanted if self.rng.random() < 0.05 and len(self.wanted) > 1]
        for number in gone[:1]:
            del self.wanted[number]
            self.known.pop(number, None)
        if self.is_replica:
            return [TopicIdPartition(TOPIC_ID, number) for number in gone[:1]]
        return [TopicPartition("s", number) for number in gone[:1]]

    async def fetch(
        self,
        named: dict[int, FetchPartition],
        forgotten: list[TopicPartition | TopicIdPartition],
        session_id: int,
        epoch: int,
    ) -> FetchResponse:
        named = {number: it for number, it in named.items() if number in self.wanted}
        request = FetchRequest(
            [FetchTopic("s", list(named.values()), TOPIC_ID)] if named else [],
            0, 1, 1 << 30,
            replica_id=FOLLOWER if self.is_replica else -1,
            replica_epoch=NODE_EPOCH if self.is_replica else -1,
            session_id=session_id,
            session_epoch=epoch,
            forgotten=forgotten,
        )  # fmt: skip
        version = 18 if self.is_replica else 12
        cursor, context = Cursor(encode_request(request, version)), self.node.listener._context
        never: Any = None
        answer = await handler.fetch(cursor, version, b"", context, RequestWait(never))
        frame = b""
        for number, piece in enumerate(answer.pieces):
            frame += piece + b"".join(it.read() for it in answer.slices[number : number + 1])
        answer.close()
        return read_response(Cursor(frame[4:]), version)

    def compare(self, answer: FetchResponse, full: FetchResponse) -> None:
        told = {it.fetched.partition: it for it in answer.partitions}
        assert told.keys() <= self.wanted.keys()
        assert [it.fetched.partition for it in full.partitions] == list(self.wanted)
        for expected in full.partitions:
            number = expected.fetched.partition
            if number in told:
                assert content(told[number]) == content(expected)
            else:
                assert content(expected) == (0, *self.known[number], b"", None)
            self.known[number] = expected.fetched.high_watermark, expected.fetched.log_start_offset


def content(found: FetchedRecords) -> Told:
    it = found.fetched
    return (
        it.error_code,
        it.high_watermark,
        it.log_start_offset,
        bytes(found.records),
        it.diverging,
    )


async def play(seed: int) -> Pair:
    node = KafkaNode()
    node.metadata.register(port=9092)
    await node.add_stream("s", PARTITIONS)
    pair = Pair(node, seed)
    for number in range(PARTITIONS):
        pair.partition(number).append([b"x"] * 3)
        pair.partition(number).node_epochs = {FOLLOWER: NODE_EPOCH}
    pair.wanted = {0: FetchPartition(0, 3, 1 << 20)}
    try:
        for _ in range(STEPS):
            await pair.step()
    finally:
        node.close()
    return pair


def test_a_session_tells_what_full_fetches_tell() -> None:
    refusals = 0
    for seed in range(SEEDS):
        try:
            refusals += asyncio.run(play(seed)).refusals
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert refusals > SEEDS


def rests_with_an_old_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionFetch, "_state", lambda self, it: (True, 0, it.log_end_offset), raising=True
    )
    patch.setattr(FakePartition, "wake", lambda self: None)


def forgets_what_had_an_error(patch: pytest.MonkeyPatch) -> None:
    inner = PartitionFetch.may_rest.fget  # type: ignore[attr-defined]
    patch.setattr(PartitionFetch, "may_rest", property(lambda self: self.final or inner(self)))


def does_not_hear_of_growth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionFetch, "become_due", lambda self: None)


def remembers_what_it_has_not_told(patch: pytest.MonkeyPatch) -> None:
    inner = FetchSession.end

    def end(self: FetchSession) -> Steps:
        looked_at = list(self.looked_at)
        yield from inner(self)
        for fetch in looked_at:
            fetch._told_high_watermark += 1

    patch.setattr(FetchSession, "end", end)


@pytest.mark.parametrize(
    "mistake",
    [
        rests_with_an_old_epoch,
        forgets_what_had_an_error,
        does_not_hear_of_growth,
        remembers_what_it_has_not_told,
    ],
)
def test_a_mistake_is_noticed(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_session_tells_what_full_fetches_tell()


def test_resting_counts_as_fetching_again() -> None:
    """The ISR is judged by when a follower had all: the twin that rests is judged alike."""
    for seed in range(200):
        rng = random.Random(seed)
        leader, follower = NodeId(1), NodeId(2)
        whole, resting = (
            LeaderProgress(leader, (leader, follower), start_offset=0) for _ in range(2)
        )
        now = asked = end = offset = 0
        rests = False
        for _ in range(100):
            now += rng.randrange(300)
            if rng.random() < 0.3:
                end += 1
                if rests:
                    resting.followers[follower].had_all(asked)
                    rests = False
                for progress in (whole, resting):
                    progress.local(end, end)
            else:
                asked = now
                before, offset = offset, min(end, offset + rng.randrange(2))
                whole.follower(follower, offset, node_epoch=1, now_ms=now)
                if not rests or offset != before:
                    resting.follower(follower, offset, node_epoch=1, now_ms=now)
                rests = offset == end
            lags = [it.followers[follower].lag_ms(end, now) for it in (whole, resting)]
            assert lags[0] == lags[1]
            assert whole.high_watermark == resting.high_watermark
