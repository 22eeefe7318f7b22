"""A message that a person publishes: its record, its right, and what becomes of it."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest

from streamlog.control.control import Control
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.local_leader import LocalLeader, StreamPartition
from streamlog.control.leaders.node_requests import Fields, NodeAnswer
from streamlog.control.messages.publication import PUBLISHED_BYTES_MAX, MessageHeader, batch_of
from streamlog.control.operation import UNSURE
from streamlog.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidStreamName,
    InvalidSubject,
    NotEnoughReplicas,
    NotLeader,
    PartitionNotFound,
    RecordTooLarge,
    RequestTimedOut,
    StreamNotFound,
    StreamStandsStill,
    TopicForbidden,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.record.batch import PUBLISHED, read_header
from streamlog.record.codec import Record, iter_records
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode, until
from tests.unit.control.test_streams import control


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as made:
        yield made


def mine(node: KafkaNode) -> Control:
    return control(node, restricted=False)


async def batch_in(partition: FakePartition, offset: int = 0) -> bytes:
    with await partition.read(offset, 1) as part:
        return bytes(part.read())


async def record_in(partition: FakePartition, offset: int = 0) -> Record:
    (record,) = iter_records(await batch_in(partition, offset))
    return record


async def test_it_is_stored_as_a_kafka_producer_would(node: KafkaNode) -> None:
    partition = await node.add_stream("orders", subjects=("orders.*.*", "orders.new"))
    found = await mine(node).messages.publish(
        "orders", "Grüße", key="k", headers=(MessageHeader("Nats-Msg-Id", "1"),)
    )
    assert (found.stream, found.partition, found.offset) == ("orders", 0, 0)
    record = await record_in(partition)
    assert (record.key, record.value) == (b"k", "Grüße".encode())
    assert list(record.headers) == [("subject", b"orders.new"), ("Nats-Msg-Id", b"1")]
    assert not read_header(await batch_in(partition)).attributes & PUBLISHED, "it asks for nothing"
    again = await mine(node).messages.publish("orders", encoding="base64", payload="/wA=")
    assert again.offset == 1
    assert (await record_in(partition, 1)).value == b"\xff\x00"


async def test_its_subject(node: KafkaNode) -> None:
    partition = await node.add_stream("orders", subjects=("orders.*",))
    messages = mine(node).messages
    await messages.publish("orders")
    assert list((await record_in(partition)).headers) == []
    await messages.publish("orders", subject="orders.new")
    assert list((await record_in(partition, 1)).headers) == [("subject", b"orders.new")]
    for refused in ("other", "orders.*", "orders.>", "orders", "a b", ""):
        with pytest.raises(InvalidSubject):
            await messages.publish("orders", subject=refused)
    for name in ("subject", "reply", ""):
        with pytest.raises(InvalidRequest, match="headers"):
            await messages.publish("orders", headers=(MessageHeader(name, "x"),))
    assert partition.log_end_offset == 2


@pytest.mark.parametrize(
    ("partition_by", "taken", "refused"),
    [("subject", "orders.1", "orders.0"), ("key", "orders", "orders.1")],
)
async def test_its_subject_is_one_of_its_partition(
    node: KafkaNode, partition_by: str, taken: str, refused: str
) -> None:
    """Each partition has subjects of its own, or all have the stream's."""
    await node.add_stream("orders", partitions=2, partition_by=partition_by)
    partition, messages = node.local[TopicPartition("orders", 1)], mine(node).messages
    await messages.publish("orders", partition=1)
    await messages.publish("orders", partition=1, subject=taken)
    for offset in (0, 1):
        assert list((await record_in(partition, offset)).headers) == [("subject", taken.encode())]
    with pytest.raises(InvalidSubject):
        await messages.publish("orders", partition=1, subject=refused)


async def test_its_partition_is_that_of_kafkas_partitioner(node: KafkaNode) -> None:
    await node.add_stream("s", partitions=10)
    messages = mine(node).messages
    # As Kafka's own UtilsTest has it: murmur2 of "foobar" is -790332482, of "a-little-bit-long-string" -985981536.
    assert (await messages.publish("s", key="foobar")).partition == (-790332482 & 0x7FFFFFFF) % 10
    long = await messages.publish("s", key="a-little-bit-long-string")
    assert long.partition == (-985981536 & 0x7FFFFFFF) % 10
    assert (await messages.publish("s")).partition == 0
    assert (await messages.publish("s", key="foobar", partition=7)).partition == 7
    with pytest.raises(PartitionNotFound):
        await messages.publish("s", partition=10)


async def test_its_right(node: KafkaNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    partition = await node.add_stream("s")
    for rules in (("describe topic s",), ("read topic s", "alter topic s", "delete topic s")):
        with pytest.raises(TopicForbidden):
            await control(node, *rules).messages.publish("s", "hidden-payload")
    with pytest.raises(StreamNotFound):
        await control(node, "write topic other").messages.publish("s")
    assert partition.log_end_offset == 0
    await control(node, "write topic s").messages.publish(
        "s", "hidden-payload", key="hidden-key", headers=(MessageHeader("h", "hidden-header"),)
    )
    assert partition.log_end_offset == 1
    acts = [it for it in caplog.records if it.name == "streamlog.audit" and it.msg == "act"]
    assert [vars(it)["act"] for it in acts] == ["messages.publish"]
    assert "hidden" not in str([vars(it) for it in caplog.records])


async def test_what_is_refused(node: KafkaNode) -> None:
    messages = mine(node).messages
    small = await node.add_stream("small")
    small.config = StreamConfig.of(name="small", message_bytes_max=1_000)
    still = await node.add_stream("still")
    still.config = StreamConfig.of(name="still", readonly=True)
    short = await node.add_stream("short")
    short.below_min_isr = True
    with pytest.raises(RecordTooLarge):
        await messages.publish("small", "x" * 1_001)
    with pytest.raises(RecordTooLarge):
        await messages.publish("short", "x" * (PUBLISHED_BYTES_MAX + 1))
    with pytest.raises(StreamStandsStill):
        await messages.publish("still")
    with pytest.raises(NotEnoughReplicas):
        await messages.publish("short")
    with pytest.raises(InvalidRequest, match="not base64"):
        await messages.publish("short", "%", encoding="base64")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        await messages.publish("short", "\ud800")
    for name in ("__activity", "__consumer_offsets"):
        with pytest.raises((InvalidStreamName, StreamNotFound)):
            await messages.publish(name)
    assert {it.log_end_offset for it in node.local.values()} == {0}


async def test_a_compacted_stream_wants_a_key(node: KafkaNode) -> None:
    partition = await node.add_stream("keyed", cleanup_policy="compact")
    partition.config = node.metadata.image.stream("keyed").config
    with pytest.raises(InvalidRecord, match="no key"):
        await mine(node).messages.publish("keyed", "x")
    await mine(node).messages.publish("keyed", None, key="gone")
    assert (await record_in(partition)).value is None


async def test_it_waits_for_the_commit(node: KafkaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await node.add_stream("s")
    partition.commits = False
    asked = asyncio.create_task(mine(node).messages.publish("s"))
    await until(lambda: bool(partition.waiting))
    assert not asked.done()
    partition.commit_produced()
    assert (await asked).offset == 0
    monkeypatch.setattr("streamlog.control.messages.publication.COMMIT_TIMEOUT_S", 0.01)
    with pytest.raises(RequestTimedOut):
        await mine(node).messages.publish("s")


async def test_a_leader_that_loses_its_office_is_not_asked_again(node: KafkaNode) -> None:
    """The record may be in the log of the next one."""
    partition = await node.add_stream("s")
    partition.commits = False
    asked = asyncio.create_task(mine(node).messages.publish("s"))
    await until(lambda: bool(partition.waiting))
    ((_, ack),) = partition.waiting
    ack.failed(NotLeader("another one leads"))
    with pytest.raises(UNSURE, match="whether it is stored is not known"):
        await asked
    assert partition.log_end_offset == 1, "once"


class Remote:
    """The only other node: it leads, and answers by its own ``LocalLeader``."""

    def __init__(self, leader: LocalLeader) -> None:
        self.handlers: dict[str, Any] = {}
        self.times = 0
        self.fails: Exception | None = None
        leader.register(cast(Any, self))

    def register(self, name: str, handler: Any) -> None:
        self.handlers[name] = handler

    async def ask(self, _: NodeId, name: str, fields: Fields, *, timeout_s: float) -> NodeAnswer:
        self.times += 1
        if self.fails is not None:
            raise self.fails
        return cast(NodeAnswer, await self.handlers[name](fields))


async def test_another_node_that_leads_is_asked_once(node: KafkaNode) -> None:
    partition = await node.add_stream("s")
    service = node.context.control_service
    assert service is not None
    remote = Remote(service.leader)
    service.leaders = LeaderRouter(
        NodeId(99), service.leader, cast(Any, remote), image=lambda: node.metadata.image
    )
    found = await mine(node).messages.publish("s", "over there", key="k")
    assert (found.partition, found.offset) == (0, 0)
    assert (await record_in(partition)).value == b"over there"
    remote.fails, remote.times = RequestTimedOut("node 1: silence"), 0
    with pytest.raises(RequestTimedOut):
        await mine(node).messages.publish("s")
    assert remote.times == 1


async def test_a_leader_judges_what_another_node_sends(node: KafkaNode) -> None:
    await node.add_stream("s")
    service = node.context.control_service
    assert service is not None
    remote = Remote(service.leader)
    stream = node.metadata.image.stream("s")
    fields = {"stream": "s", "partition": 0, "stream_id": str(stream.stream_id)}
    with pytest.raises(InvalidRequest):
        await remote.handlers["PUBLISH"](
            {**fields, "records": base64.b64encode(bytes(80)).decode()}
        )
    assert node.local[TopicPartition("s", 0)].log_end_offset == 0


async def test_a_stream_that_has_the_name_by_now_gets_nothing(node: KafkaNode) -> None:
    partition = await node.add_stream("s")
    service = node.context.control_service
    assert service is not None
    records = batch_of(subject=None, key=None, headers=(), payload=b"x", now_ms=1)
    gone = StreamPartition(TopicPartition("s", 0), UUID(int=1))
    with pytest.raises(NotLeader):
        await service.leader.publish(gone, records)
    assert partition.log_end_offset == 0
    here = StreamPartition.of(node.metadata.image.stream("s"), 0)
    assert await service.leader.publish(here, records) == 0
