"""Produce, with Kafka's DelayedProduce, and InitProducerId."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from streamlog.acl.rules import Operation
from streamlog.errors import (
    CorruptBatch,
    InconsistentTopicId,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    NoTransactions,
    ProducerRefused,
    ProtocolViolation,
    RecordsWithoutKey,
    RequestTimedOut,
    StreamlogError,
    UnknownTopicId,
    UnsupportedVersion,
)
from streamlog.fairness import stepwise
from streamlog.kafka.advertised_listeners import current_leader, endpoints
from streamlog.kafka.auth.resource_checks import led_partition
from streamlog.kafka.context import Context
from streamlog.kafka.producer_ids import EPOCH_MAX
from streamlog.kafka.refusal import RequestRefused
from streamlog.kafka.transaction_support import why_no_transactions
from streamlog.log.segment.append_validation import check_batch_size
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import check_writable_by_clients
from streamlog.metadata.stream.write_state import check_takes_records
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.producer_state_manager import VerifiedTransaction
from streamlog.partition.state import UNAWAITED, Acknowledgement
from streamlog.record.batch import read_header
from streamlog.record.codec import opened_at_once
from streamlog.record.produced import ProducedBatch, check_inside, check_outside, check_plain
from streamlog.wire import produce as wire
from streamlog.wire.api_messages import AT_ONCE_BYTES, Message
from streamlog.wire.compiled.single_produce import SingleProduce, read_single_produce
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.header import encode_response_header
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.produce import NO_OFFSET, NO_TIME, ProduceResult, encode_response
from streamlog.wire.registry import APIS, PRODUCE

TARGETS_MAX: Final = 1_000
"""Partitions that a connection remembers; with more it forgets all of them."""
NO_KEY: Final = "it has no key, and the topic is compacted"


def _nobody() -> None:
    pass


class PartitionProduce:
    """What becomes of one partition's batch. An ``Acknowledgement``.

    Invariant: ``result`` is there if and only if nothing is waited for; it never changes.
    """

    __slots__ = ("_base_offset", "_number", "_partition", "_told", "append_time_ms", "result")

    def __init__(self, number: int, told: Callable[[], None]) -> None:
        """``told`` is called when there is a result."""
        self.result: ProduceResult | None = None
        self.append_time_ms: int | None = None
        """Of the records, where it is not their own."""
        self._number = number
        self._told = told
        self._partition: Partition | None = None

    def appended(self, partition: Partition) -> None:
        """The commit is still to come, and ``partition`` will tell of it."""
        self._partition = partition

    def committed(self, base_offset: int, log_start_offset: int | None = None) -> None:
        if log_start_offset is None:
            log_start_offset = -1 if self._partition is None else self._partition.log_start_offset
        self._end(ProduceResult(self._number, 0, base_offset, log_start_offset))

    def failed(self, error: StreamlogError, leader: CurrentLeader | None = None) -> None:
        """``leader``: whom to ask instead."""
        first = error.first_offset if isinstance(error, ProducerRefused) else NO_OFFSET
        code = error.code if isinstance(error, RequestRefused) else code_of(error)
        result = ProduceResult(self._number, code, first, error_message=str(error))
        if isinstance(error, RecordsWithoutKey):
            result = result._replace(faulty=error.places, fault=NO_KEY)
        self._end(result._replace(leader=leader))

    def give_up(self) -> None:
        """The time is over; the records may yet be committed."""
        if self.result is None:
            short = self._partition is not None and self._partition.below_min_isr
            self.failed(
                NotEnoughReplicasAfterAppend("fewer replicas in sync than min_isr")
                if short
                else RequestTimedOut("not committed in the time allowed")
            )

    def told(self) -> ProduceResult:
        """What the producer is told, once there is a result."""
        assert self.result is not None
        if self.append_time_ms is None or self.result.error_code:
            return self.result
        return self.result._replace(append_time_ms=self.append_time_ms)

    def _end(self, result: ProduceResult) -> None:
        if self.result is None:
            self.result = result
            self._told()


class DelayedProduce:
    """A response that is not there yet, while the requests after it are looked at already: due when
    each partition has its result, or the time is over.

    ``wake``, which its receiver sets, is called when ``is_due`` has become true, once. ``throttle_ms``
    counts from the request on, not from the response.
    """

    def __init__(self, header: bytes, version: int) -> None:
        self.wake: Callable[[], None] = _nobody
        self.throttle_ms = 0
        self._header = header
        self._version = version
        self.nodes: Sequence[NodeEndpoint] = ()
        """Where the leaders are that it tells of."""
        self._topics: list[tuple[str | bytes, list[PartitionProduce]]] = []
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_due(self) -> bool:
        return self._waiting == 0

    def topic(self, topic: str | bytes) -> None:
        """What is added from now on belongs to it: the topic's name, or its id."""
        self._topics.append((topic, []))

    def add(self, number: int) -> PartitionProduce:
        self._waiting += 1
        part = PartitionProduce(number, self._told)
        self._topics[-1][1].append(part)
        return part

    def wait_at_most(self, timeout_ms: int) -> None:
        """From now on."""
        if not self.is_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self.end)

    def end(self) -> None:
        for _, parts in self._topics:
            for part in parts:
                part.give_up()

    def failures(self) -> list[ProduceResult]:
        results = (part.result for _, parts in self._topics for part in parts)
        return [it for it in results if it is not None and it.error_code]

    def frame(self) -> bytes:
        topics = [(topic, [part.told() for part in parts]) for topic, parts in self._topics]
        return encode_response(
            self._header, topics, self._version, throttle_ms=self.throttle_ms, nodes=self.nodes
        )

    def _told(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            if self._timer is not None:
                self._timer.cancel()
            self.wake()


class DelayedSingleProduce:
    """The same for what one partition was sent (``produce_single``), and an ``Acknowledgement`` itself."""

    __slots__ = (
        "_asked", "_base_offset", "_nodes", "_partition", "_refused", "_timer", "append_time_ms", "is_due",
        "wake",
    )  # fmt: skip

    def __init__(self, asked: SingleProduce, partition: Partition) -> None:
        self.wake: Callable[[], None] = _nobody
        self.is_due = False
        self.append_time_ms: int | None = None
        self._asked = asked
        self._partition = partition
        self._base_offset = NO_OFFSET
        self._refused: ProduceResult | None = None
        self._nodes: Sequence[NodeEndpoint] = ()
        self._timer: asyncio.TimerHandle | None = None

    def committed(self, base_offset: int) -> None:
        if not self.is_due:
            self._base_offset = base_offset
            self._end()

    def failed(self, error: StreamlogError) -> None:
        self._refuse(lambda part: part.failed(error))

    def failed_for_another(self, error: NotLeader, image: MetadataImage) -> None:
        """The client hears who leads."""
        leader = current_leader(self._partition.tp, image)
        self._refuse(lambda part: part.failed(error, leader))
        self._nodes = endpoints([leader], image)

    def end(self) -> None:
        """The time is over; the records may yet be committed."""
        self._refuse(lambda part: part.give_up())

    def wait_at_most(self, timeout_ms: int) -> None:
        """From now on."""
        if not self.is_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self.end)

    def frame(self) -> bytes:
        asked, refused = self._asked, self._refused
        if refused is None:
            append_time_ms = NO_TIME if self.append_time_ms is None else self.append_time_ms
            return asked.encode_answer(
                self._base_offset, self._partition.log_start_offset, append_time_ms
            )
        header = encode_response_header(APIS[PRODUCE], asked.version, asked.correlation_id)
        return encode_response(header, [(asked.topic, [refused])], asked.version, nodes=self._nodes)

    def _refuse(self, say: Callable[[PartitionProduce], None]) -> None:
        if self.is_due:
            return
        part = PartitionProduce(self._asked.partition, _nobody)
        part.appended(self._partition)
        say(part)
        self._refused = part.told()
        self._end()

    def _end(self) -> None:
        self.is_due = True
        if self._timer is not None:
            self._timer.cancel()
        self.wake()


async def until_due(late: DelayedProduce | DelayedSingleProduce) -> None:
    """Takes its ``wake`` for that long."""
    if late.is_due:
        return
    due = asyncio.get_running_loop().create_future()
    before = late.wake
    late.wake = lambda: None if due.done() else due.set_result(None)
    try:
        await due
    finally:
        late.wake = before


TURN_S: Final = 0.002
"""After looking at partitions for so long, others get their turn of the event loop."""
KNOWN_ACKS: Final = (wire.ACKS_NONE, wire.ACKS_LEADER, wire.ACKS_ALL, wire.ACKS_AS_STORED)
LOOKED_AT_ONCE_BYTES: Final = 1024 * 1024
"""Records that take more are looked at in a thread, compressed or not."""


async def produce(
    cursor: Cursor, version: int, header: bytes, context: Context, threads: Executor
) -> DelayedProduce | None:
    """Produce (0), versions 3 to 13: one record batch v2 for each partition, kept as it was sent.

    Appended as it comes, in the order of the connection; with acks=all answered when it is committed,
    while the requests behind it are appended already, so that they share its sync.

    Before the first batch of a transaction is appended its coordinator is asked, see ``_verify``.

    It is offered from version 0: an old librdkafka compresses only for who offers that (KAFKA-18659).

        v5  the answer tells the log start offset
        v8  the answer says in words what is wrong, and which records are at fault (KIP-467)
        v10 the answer says who leads where this node does not (KIP-951)
        v12 the coordinator adds partitions to a transaction as they come (KIP-890); before that, it says
            whether the producer has done so
        v13 topics are named by their ids (KIP-516)

    All is appended or refused when this returns; None where no answer is wanted.

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
    verified = await _verify(request, version, context)
    for topic, partitions in request.topics:
        answer.topic(topic)
        for asked in partitions:
            part = answer.add(asked.partition)
            try:
                _check_request(request, version, context)
                tp = TopicPartition(_name_of(topic, context), asked.partition)
                sent = _SentRecords(
                    topic, tp, asked.records, request.acks, request.transactional_id
                )
                await _take(sent, part, verified.get(tp), context=context, threads=threads)
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


class ProduceTarget(NamedTuple):
    """A partition that takes records as ``image`` says, and the largest batch that it takes."""

    image: MetadataImage
    name: str
    partition: Partition
    bytes_max: int


class ProduceTargets:
    """Those of a connection, by topic and number: a batch to one that is known already does not look at all of its
    settings again. Another image makes them void.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str | bytes, int], ProduceTarget] = {}

    def find(self, asked: SingleProduce, context: Context) -> ProduceTarget | None:
        """None: it takes none, or more has to be looked at."""
        key, image = (asked.topic, asked.partition), context.metadata.image
        found = self._known.get(key)
        if found is not None and found.image is image and found.partition.is_leader:
            return found
        found = self._looked_up(asked, image, context)
        if found is not None:
            if len(self._known) >= TARGETS_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _looked_up(
        self, asked: SingleProduce, image: MetadataImage, context: Context
    ) -> ProduceTarget | None:
        try:
            name = _name_of(asked.topic, context)
            check_writable_by_clients(name)
            partition = _led(asked.topic, TopicPartition(name, asked.partition), context)
            config = image.stream(name).config
            check_takes_records(config)
        except StreamlogError:
            return None
        if image.quotas or config.is_compacted:
            return None
        most = context.node_settings.log.message_bytes_max
        if config.message_bytes_max != NO_LIMIT:
            most = min(most, config.message_bytes_max)
        return ProduceTarget(image, name, partition, most)


def produce_single(
    request: bytes, targets: ProduceTargets, context: Context
) -> DelayedSingleProduce | None:
    """As ``produce``, at once, for the request that is sent most: uncompressed records for one partition, outside
    transactions, of which nothing is wrong. None, and nothing was done: it is another one.
    """
    asked = read_single_produce(request)
    if asked is None or asked.client_id != context.session.client_id:
        return None
    target = targets.find(asked, context)
    if target is None or len(asked.records) > target.bytes_max:
        return None
    partition, access = target.partition, context.access
    if access is not None and not access.allows_topic(Operation.WRITE, target.name):
        return None
    batch = check_plain(asked.records)
    if batch is None or (batch.header.producer_id >= 0 and not partition.knows_producers):
        return None
    context.metrics.requests["Produce"].count += 1
    answer = DelayedSingleProduce(asked, partition)
    try:
        ack: Acknowledgement = UNAWAITED
        if asked.acks == wire.ACKS_ALL:
            partition.check_min_isr()
            ack = answer
        base_offset = partition.produce_plain(batch, ack)
        if base_offset < 0:
            appended = partition.produce(batch, ack)
            base_offset, answer.append_time_ms = appended.base_offset, appended.append_time_ms
        if ack is UNAWAITED:
            answer.committed(base_offset)
    except NotLeader as error:
        answer.failed_for_another(error, target.image)
    except StreamlogError as error:
        answer.failed(error)
    asked.release_records()
    answer.wait_at_most(min(asked.timeout_ms, context.settings.idle_timeout_ms))
    return answer


def _check_request(request: wire.ProduceRequest, version: int, context: Context) -> None:
    if version < wire.VERSION_MIN:
        raise UnsupportedVersion(f"Produce version {version}: 3 and later are served")
    if request.transactional_id is not None:
        reason = why_no_transactions(context)
        if reason is not None:
            raise NoTransactions(reason)
        if context.access is not None:
            context.access.check_transactional_id(Operation.WRITE, request.transactional_id)
        if request.acks != wire.ACKS_ALL:
            raise InvalidRequiredAcks(f"acks of {request.acks}, where a transaction's are -1")
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


def _led(topic: str | bytes, tp: TopicPartition, context: Context) -> Partition:
    """Raises PartitionNotFound, NotLeader, InconsistentTopicId."""
    partition = led_partition(tp, NO_EPOCH, context)
    if isinstance(topic, bytes) and partition.topic_id != topic:
        raise InconsistentTopicId(f"{tp}: the log here is another stream's of that name")
    return partition


class _SentRecords(NamedTuple):
    """What a request has for one partition."""

    topic: str | bytes
    tp: TopicPartition
    records: memoryview | None
    acks: int
    transactional_id: str | None


class _Verification(NamedTuple):
    """What the coordinator says of a partition; ``verified`` is what the append needs."""

    verified: VerifiedTransaction
    code: ErrorCode


_ABORTABLE_FROM: Final = 11
"""Producers of earlier versions do not know TRANSACTION_ABORTABLE (KIP-890)."""
_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
    }
)
"""Errors of the coordinator that pass by themselves: producers of all versions send the batch again for
NOT_ENOUGH_REPLICAS, and only for what is a partition's."""


async def _verify(
    request: wire.ProduceRequest, version: int, context: Context
) -> dict[TopicPartition, _Verification]:
    """What the coordinator says of those partitions in which the producer's transaction is not open yet. It is asked
    once for all of them. A marker that comes between its answer and the append makes the answer void.
    """
    transactions, name = context.transaction_partitions, request.transactional_id
    if transactions is None or name is None or version < wire.VERSION_MIN:
        return {}
    asked: dict[TopicPartition, VerifiedTransaction] = {}
    for topic, partitions in request.topics:
        for it in partitions:
            with suppress(StreamlogError):  # which ``_take`` tells of
                tp = TopicPartition(_name_of(topic, context), it.partition)
                header = read_header(b"" if it.records is None else it.records)
                if not header.is_transactional or header.producer_id < 0:
                    continue
                partition = _led(topic, tp, context)
                await partition.know_producers()
                verified = partition.verify_transaction(header)
                if verified is not None:
                    asked[tp] = verified
    found: dict[TopicPartition, _Verification] = {}
    producers = {(it.producer_id, it.epoch) for it in asked.values()}
    for producer_id, epoch in producers:
        wanted = [
            tp for tp, it in asked.items() if (it.producer_id, it.epoch) == (producer_id, epoch)
        ]
        codes = await transactions.add(
            name, producer_id, epoch, wanted, verify_only=version < wire.TRANSACTIONS_2_FROM
        )
        for tp in wanted:
            code = codes.get(tp, ErrorCode.invalid_txn_state)
            if code is ErrorCode.transaction_abortable and version < _ABORTABLE_FROM:
                code = ErrorCode.invalid_txn_state
            found[tp] = _Verification(asked[tp], code)
    return found


def _check_verified(answer: _Verification | None, tp: TopicPartition) -> VerifiedTransaction | None:
    """Raises RequestRefused, NotEnoughReplicas."""
    if answer is None:
        return None
    if answer.code in _ASK_AGAIN:
        raise NotEnoughReplicas(f"{tp}: the transaction's coordinator says {answer.code.name}")
    if answer.code != ErrorCode.none:
        raise RequestRefused(
            answer.code, f"{tp}: the transaction's coordinator says {answer.code.name}"
        )
    return answer.verified


async def _take(
    sent: _SentRecords,
    part: PartitionProduce,
    answer: _Verification | None,
    *,
    context: Context,
    threads: Executor,
) -> None:
    """Nothing is looked into where this node does not lead; but it may lose that meanwhile."""
    topic, tp, records, acks, _ = sent
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
    batch = await _checked(sent, context, threads)
    partition = _led(topic, tp, context)
    verified = _check_verified(answer, tp)
    if batch.is_sequenced:
        await partition.know_producers()
    if acks == wire.ACKS_ALL:
        partition.check_min_isr()
        part.appended(partition)
        part.append_time_ms = partition.produce(batch, part, verified=verified).append_time_ms
        return
    appended = partition.produce(batch, UNAWAITED)
    part.append_time_ms = appended.append_time_ms
    part.committed(appended.base_offset, partition.log_start_offset)


def _restore(
    tp: TopicPartition,
    partition: Partition,
    records: memoryview | None,
    part: PartitionProduce,
    context: Context,
) -> None:
    """What a backup has, into a stream that no other client writes to meanwhile."""
    if records is None:
        raise InvalidRecord("no records")
    if not context.metadata.image.stream(tp.stream).config.readonly:
        raise InvalidRequest(f"{tp.stream} is not read-only: others may write to it meanwhile")
    partition.check_min_isr()
    part.appended(partition)
    partition.restore(records, part)


async def _checked(sent: _SentRecords, context: Context, threads: Executor) -> ProducedBatch:
    """Raises CorruptBatch, InvalidRecord, RecordTooLarge, NoTransactions."""
    tp, records = sent.tp, sent.records
    if records is None:
        raise InvalidRecord("no records")
    header = check_outside(records, transactional=sent.transactional_id is not None)
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
    stream_max = context.metadata.image.stream(tp.stream).config.message_bytes_max
    check_batch_size(
        batch.header.size_bytes,
        batch.largest_bytes,
        stream_max=None if stream_max == NO_LIMIT else stream_max,
        node_max=context.node_settings.log.message_bytes_max,
    )
    return batch


NO_PRODUCER = -1


async def init_producer_id(request: Message, _version: int, context: Context) -> Message:
    """InitProducerId without a transactional id: an id that no other producer has, in epoch 0."""
    try:
        _check_may_number(context)
        known, epoch = request.get("producer_id", NO_PRODUCER), request.get("producer_epoch", -1)
        given = 0 <= known < context.metadata.image.producer_ids_end
        if given and 0 <= epoch < EPOCH_MAX:
            return {"error_code": 0, "producer_id": known, "producer_epoch": epoch + 1}
        producer_id = await context.producer_ids.take(context.metadata, context.node_id)
    except StreamlogError as error:
        return {"error_code": code_of(error), "producer_id": NO_PRODUCER, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _check_may_number(context: Context) -> None:
    """A client that may write to any topic may number its records (KIP-679). Raises ClusterForbidden."""
    access = context.access
    if access is not None and not access.allows_some_topic(Operation.WRITE):
        access.check_cluster(Operation.IDEMPOTENT_WRITE)
