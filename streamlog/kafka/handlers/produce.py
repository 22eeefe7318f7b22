"""Produce (0), versions 3 to 13: one record batch v2 for each partition, kept as it was sent.

Appended as it comes, in the order of the connection; with acks=all answered when it is committed,
while the requests behind it are appended already, so that they share its sync. No transactions.

It is offered from version 0: an old librdkafka compresses only for who offers that (KAFKA-18659).

    v5  the answer tells the log start offset
    v8  the answer says in words what is wrong (KIP-467)
    v10 the answer says who leads where this node does not (KIP-951)
    v13 topics are named by their ids (KIP-516)
"""

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.errors import (
    CorruptBatch,
    InconsistentTopicId,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    NotEnoughReplicas,
    NotLeader,
    NoTransactions,
    ProtocolViolation,
    RecordTooLarge,
    StreamlogError,
    UnknownTopicId,
    UnsupportedVersion,
)
from streamlog.fairness import stepwise
from streamlog.kafka.auth.resource_checks import led_partition
from streamlog.kafka.context import Context
from streamlog.kafka.interfaces import LocalPartition
from streamlog.kafka.produce.delayed_produce import UNAWAITED, DelayedProduce, PartitionProduce
from streamlog.kafka.topology import current_leader, endpoints
from streamlog.metadata.stream.config import NO_LIMIT, check_writable_by_clients
from streamlog.metadata.stream.write_state import check_takes_records
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.record.codec import opened_at_once
from streamlog.record.produced import ProducedBatch, check_inside, check_outside
from streamlog.wire import produce as wire
from streamlog.wire.control import AT_ONCE_BYTES
from streamlog.wire.cursor import Cursor
from streamlog.wire.leaders import CurrentLeader

TURN_S: Final = 0.002
"""After looking at partitions for so long, others get their turn of the event loop."""
KNOWN_ACKS: Final = (wire.ACKS_NONE, wire.ACKS_LEADER, wire.ACKS_ALL, wire.ACKS_AS_STORED)
LOOKED_AT_ONCE_BYTES: Final = 1024 * 1024
"""Records that take more are looked at in a thread, compressed or not."""


async def handle(
    cursor: Cursor, version: int, header: bytes, context: Context, threads: Executor
) -> DelayedProduce | None:
    """All is appended or refused when this returns; None where no answer is wanted.

    Then only a closed connection can tell of an error: raises ProtocolViolation.
    """
    if cursor.end - cursor.position <= AT_ONCE_BYTES:
        request = wire.read_request(cursor, version)
    else:
        request = await stepwise(wire.read_request_in_steps(cursor, version))
    answer = DelayedProduce(header, version)
    leaders: list[CurrentLeader | None] = []
    loop = asyncio.get_running_loop()
    turn_ends = loop.time() + TURN_S
    for topic, partitions in request.topics:
        answer.topic(topic)
        for asked in partitions:
            part = answer.add(asked.partition)
            try:
                _check_request(request, version)
                tp = TopicPartition(_name_of(topic, context), asked.partition)
                await _take(
                    topic, tp, asked.records, request.acks, part, context=context, threads=threads
                )
            except NotLeader as error:
                leaders.append(current_leader(tp, context.metadata.image))
                part.failed(error, leaders[-1])
            except StreamlogError as error:
                part.failed(error)
            if loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + TURN_S
    if request.acks == wire.ACKS_NONE:
        for failure in answer.failures():
            raise ProtocolViolation(f"Produce without an answer: {failure.error_message}")
        return None
    if leaders:
        answer.nodes = endpoints(leaders, context.metadata.image)
    answer.wait_at_most(min(request.timeout_ms, context.settings.idle_timeout_ms))
    return answer


def _check_request(request: wire.ProduceRequest, version: int) -> None:
    if version < wire.VERSION_MIN:
        raise UnsupportedVersion(f"Produce version {version}: 3 and later are served")
    if request.transactional_id is not None:
        raise NoTransactions("transactions are not supported")
    if request.acks not in KNOWN_ACKS:
        raise InvalidRequiredAcks(f"acks of {request.acks}: -1, 0 and 1 are known")


def _name_of(topic: str | bytes, context: Context) -> str:
    """Raises UnknownTopicId."""
    if isinstance(topic, str):
        return topic
    name = context.metadata.image.names.get(topic)
    if name is None:
        raise UnknownTopicId(f"no stream has the id {topic.hex()}")
    return name


def _led(topic: str | bytes, tp: TopicPartition, context: Context) -> LocalPartition:
    """Raises PartitionNotFound, NotLeader, InconsistentTopicId."""
    partition = led_partition(tp, NO_EPOCH, context)
    if isinstance(topic, bytes) and partition.topic_id != topic:
        raise InconsistentTopicId(f"{tp}: the log here is another stream's of that name")
    return partition


async def _take(
    topic: str | bytes,
    tp: TopicPartition,
    records: memoryview | None,
    acks: int,
    part: PartitionProduce,
    *,
    context: Context,
    threads: Executor,
) -> None:
    """Nothing is looked into where this node does not lead; but it may lose that meanwhile."""
    check_writable_by_clients(tp.stream)
    partition = _led(topic, tp, context)
    if context.access is not None:
        context.access.check_topic(Operation.WRITE, tp.stream)
        if acks == wire.ACKS_AS_STORED:  # offsets and times as the sender says
            context.access.check_topic(Operation.ALTER, tp.stream)
    if acks == wire.ACKS_AS_STORED:
        _restore(tp, partition, records, part, context)
        return
    check_takes_records(context.metadata.image.stream(tp.stream).config)
    batch = await _checked(tp, records, context, threads)
    partition = _led(topic, tp, context)
    if batch.is_sequenced:
        await partition.know_producers()
    if acks == wire.ACKS_ALL:
        if partition.below_min_isr:
            raise NotEnoughReplicas(f"{tp} has fewer replicas in sync than min_isr")
        part.appended(partition)
        part.append_time_ms = partition.produce(batch, part).append_time_ms
        return
    appended = partition.produce(batch, UNAWAITED)
    part.append_time_ms = appended.append_time_ms
    part.committed(appended.base_offset, partition.log_start_offset)


def _restore(
    tp: TopicPartition,
    partition: LocalPartition,
    records: memoryview | None,
    part: PartitionProduce,
    context: Context,
) -> None:
    """What a backup has, into a stream that nobody else writes to meanwhile."""
    if records is None:
        raise InvalidRecord("no records")
    if not context.metadata.image.stream(tp.stream).config.readonly:
        raise InvalidRequest(f"{tp.stream} is not read-only: others may write to it meanwhile")
    if partition.below_min_isr:
        raise NotEnoughReplicas(f"{tp} has fewer replicas in sync than min_isr")
    part.appended(partition)
    partition.restore(records, part)


async def _checked(
    tp: TopicPartition, records: memoryview | None, context: Context, threads: Executor
) -> ProducedBatch:
    """Raises CorruptBatch, InvalidRecord, RecordTooLarge, NoTransactions."""
    if records is None:
        raise InvalidRecord("no records")
    header = check_outside(records)
    keyed = context.metadata.image.stream(tp.stream).config.is_compacted
    try:
        body = opened_at_once(header, records)
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from None
    if body is not None and len(body) <= LOOKED_AT_ONCE_BYTES:
        batch = check_inside(header, records, keyed=keyed, body=body)
    else:
        most = context.node_settings.log.uncompressed_bytes_max
        check = partial(check_inside, header, records, keyed=keyed, bytes_max=most)
        batch = await asyncio.get_running_loop().run_in_executor(threads, check)
    _check_size(tp, batch, context)
    return batch


def _check_size(tp: TopicPartition, batch: ProducedBatch, context: Context) -> None:
    """A limit is on a batch, as Kafka's is; but a stream's own, which is one on messages for NATS,
    does not refuse a batch of many small ones that the node would take.
    """
    size, node = batch.header.size_bytes, context.node_settings.log.message_bytes_max
    stream = context.metadata.image.stream(tp.stream).config.message_bytes_max
    limit = node if stream == NO_LIMIT else stream
    if size > limit and (size > node or batch.largest_bytes > limit):
        raise RecordTooLarge(f"a batch of {size} bytes, {limit} are allowed")
