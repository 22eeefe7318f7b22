"""The messages of a stream for its consumers' coordinator: from the partitions' leaders, here or at other nodes.

A coordinator reads on from an offset (``read``), reads single messages that are due again (``message``), waits for
what comes (``wait``), and finds where a consumer begins (``start``). Only committed messages are read.

A leader that was elected although it lacked messages, or whose log was restored from a backup, has a log that ends
before the offset a consumer had come to, and other messages may be there by now. So a coordinator keeps in which
leader epochs the messages were written that it has read. The leader compares them with its own, and says up to where
the two are the same (KIP-320).

Which messages match, the partition's index of subjects knows. To ask it costs a look at each subject of the stream.
So what is found is kept for the next read, and near the end of the partition the messages themselves are compared.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.local_leader import LocalLeader, answer_of, message_of, tp_of
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.control.messages.matching import Matching
from streamlog.control.messages.ordered_read import (
    count_from,
    read_run,
)
from streamlog.control.messages.stored_messages import (
    StoredMessage,
    last_of_many,
    message_at,
)
from streamlog.errors import MessageNotFound, NotLeader, Overloaded
from streamlog.jetstream.consumers.consumer import EPOCHS_MAX
from streamlog.jetstream.consumers.consumer_records import epochs_of
from streamlog.jetstream.consumers.interest_reports import StreamInterest
from streamlog.log.leader_epochs import EpochStart
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.internal_partition import until
from streamlog.partition.partition import Partition
from streamlog.record.compiled.message_run import MessageRun
from streamlog.record.compiled.subjects import NOTHING

READ: Final = "CONSUMER.READ"
WAIT: Final = "CONSUMER.WAIT"
START: Final = "CONSUMER.START"
MESSAGE: Final = "CONSUMER.MESSAGE"
"""Requests of a node that coordinates consumers of a stream that is led elsewhere."""

READ_BYTES: Final = 1024 * 1024
"""A read ends with the message that reaches this size, or with the read of the log that does."""
READ_MIN: Final = 1_000
AHEAD_BYTES: Final = 128 * 1024
"""As many messages are read for a consumer that wants fewer, if they take no more than these bytes: records are read
by the batch, and the next are wanted soon."""
MESSAGE_BYTES: Final = 1024
"""What a message is taken for, before it is read."""
WAIT_S: Final = 1.0
"""How long a leader waits for a message that is not there yet, before it answers."""
NEAR_END: Final = 2_000
"""Fewer messages than these are compared one by one."""
KEPT_MAX: Final = 256
"""Sets of matching subjects that are kept."""
PICKED_MAX: Final = 10_000_000
"""Subjects whose last message a consumer begins with."""


class ConsumerStart(NamedTuple):
    """Where a consumer begins in a partition."""

    offset: int
    picked: list[int] | None = None
    """Before it reads on at ``offset``: just these offsets."""
    epochs: Sequence[EpochStart] = ()
    """In which the last messages before ``offset`` were written, oldest first, as far as they are known."""


class StartQuery(NamedTuple):
    """By deliver policy. ``value``: an offset, or a time in ms."""

    policy: str
    filters: tuple[str, ...] = ()
    value: int = 0
    up_to: int | None = None
    """Of ``last_per_subject``: as if the partition ended there."""


class StreamPart(NamedTuple):
    """Some messages in order, and where the next ones are looked for."""

    messages: MessageRun
    next_offset: int
    beyond: int
    """How many match from there on."""
    log_start_offset: int
    high_watermark: int
    """Where readers end: below the first message of a transaction that is open (``Partition.stable_offset``)."""
    epochs: Sequence[EpochStart] = ()
    """In which the messages were written that were read, or passed over."""
    shared_end: int | None = None
    """Below the offset that was asked for: there are other messages from here on than its reader has read. Nothing was
    read.
    """


class StreamMessage(NamedTuple):
    """What is at an offset."""

    message: StoredMessage | None
    """None: it is gone."""
    shared_end: int | None = None
    """As that of a ``StreamPart``. No message was read."""


class _Kept(NamedTuple):
    partition: Partition
    matching: Matching


class StreamSource:
    """Of all streams; one a node."""

    def __init__(
        self,
        leader: LocalLeader,
        leaders: LeaderRouter,
        nodes: NodeRequests,
        interest: StreamInterest,
    ) -> None:
        self._interest = interest
        self._leader = leader
        self._leaders = leaders
        self._kept: OrderedDict[tuple[UUID, int, tuple[str, ...]], _Kept] = OrderedDict()
        nodes.register(READ, self._answer_read)
        nodes.register(WAIT, self._answer_wait)
        nodes.register(START, self._answer_start)
        nodes.register(MESSAGE, self._answer_message)

    async def read(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        filters: tuple[str, ...],
        offset: int,
        *,
        limit: int,
        picked: Sequence[int] | None = None,
        epochs: Sequence[EpochStart] = (),
    ) -> StreamPart:
        """From ``offset`` on, or the ``picked`` offsets alone. ``epochs``: in which the messages before ``offset`` were
        written, as far as they are known. Raises NotLeader, NodeUnreachable, StreamNotFound.
        """
        fields = {
            **_fields(tp, stream_id),
            "filters": filters,
            "offset": offset,
            "limit": limit,
            "picked": picked,
            "epochs": epochs,
        }
        return await self._leaders.at_leader(
            tp,
            READ,
            fields,
            here=lambda: self._read(
                tp, stream_id, filters, offset, limit=limit, picked=picked, epochs=epochs
            ),
            decode=_part_of,
            stream_id=stream_id,
            repeatable=True,
        )

    async def message(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        offset: int,
        *,
        end: int,
        epochs: Sequence[EpochStart],
    ) -> StreamMessage:
        """The message at ``offset``, for one that has read up to ``end``; ``epochs``: in which the messages before
        ``end`` were written, as far as they are known. Raises NotLeader, NodeUnreachable, StreamNotFound.
        """
        try:
            return await self._leaders.at_leader(
                tp,
                MESSAGE,
                {**_fields(tp, stream_id), "offset": offset, "end": end, "epochs": epochs},
                here=lambda: self._message(tp, stream_id, offset, end=end, epochs=epochs),
                decode=_message_of,
                stream_id=stream_id,
                repeatable=True,
            )
        except MessageNotFound:
            return StreamMessage(None)

    async def wait(self, tp: TopicPartition, stream_id: UUID, offset: int) -> tuple[int, int]:
        """The log start offset and where readers end, as soon as this is above ``offset``, or after a time."""
        return await self._leaders.at_leader(
            tp,
            WAIT,
            {**_fields(tp, stream_id), "offset": offset},
            here=lambda: self._wait(tp, stream_id, offset),
            decode=lambda answer: (int(answer.fields["start"]), int(answer.fields["end"])),
            stream_id=stream_id,
            repeatable=True,
        )

    async def start(self, tp: TopicPartition, stream_id: UUID, query: StartQuery) -> ConsumerStart:
        return await self._leaders.at_leader(
            tp,
            START,
            {**_fields(tp, stream_id), "query": query._asdict()},
            here=lambda: self._start(tp, stream_id, query),
            decode=_start_of,
            stream_id=stream_id,
            repeatable=True,
        )

    # At the leader

    def _led(self, tp: TopicPartition, stream_id: UUID) -> Partition:
        """Raises NotLeader, also while this node or the asker does not know yet which stream has the name."""
        partition = self._leader.led(tp)
        if partition.topic_id != stream_id.bytes:
            raise NotLeader(f"{tp} is of another stream of that name")
        return partition

    async def _read(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        filters: tuple[str, ...],
        offset: int,
        *,
        limit: int,
        picked: Sequence[int] | None,
        epochs: Sequence[EpochStart],
    ) -> StreamPart:
        partition = self._led(tp, stream_id)
        leader_epoch = partition.leader_epoch
        start, end = partition.log_start_offset, partition.stable_offset
        shared_end = partition.shared_end(epochs, offset)
        if shared_end < offset and offset > start:
            return StreamPart(
                MessageRun(), offset, 0, start, end, shared_end=max(shared_end, start)
            )
        if picked is not None:
            return await _picked(partition, picked)
        asked, offset = offset, max(offset, start)
        found, next_offset = MessageRun(), offset
        if limit:
            found, next_offset = await self._some(partition, stream_id, filters, offset, limit)
        beyond = 0
        if next_offset < end:
            if not filters:
                beyond = await count_from(partition, "", next_offset)
            else:
                counted = self._matching(partition, stream_id, filters, end - 1)
                beyond = await counted.count(next_offset)
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            raise NotLeader(f"{tp} was led by another node meanwhile")  # whose epochs these may be
        read = partition.epochs_between(max(asked, start), min(next_offset, end))
        return StreamPart(found, next_offset, beyond, start, end, read)

    async def _some(
        self,
        partition: Partition,
        stream_id: UUID,
        filters: tuple[str, ...],
        offset: int,
        limit: int,
    ) -> tuple[MessageRun, int]:
        """The first messages that match, and where the next ones are looked for."""
        needed, limit = limit, max(limit, READ_MIN)
        end = partition.stable_offset
        next_offset = max(end, offset)
        is_near = bool(filters) and end - offset <= NEAR_END
        patterns: list[bytes] = []
        wanted: Sequence[int]
        if filters and not is_near:
            matching = self._matching(partition, stream_id, filters, offset)
            below = max(min(end, matching.below), offset)
            wanted, next_offset = await matching.offsets(offset, below, limit=limit)
        else:
            patterns = [it.encode() for it in filters]
            if not is_near:
                next_offset = min(next_offset, offset + limit)
            wanted = range(offset, next_offset)
        bytes_max = min(max(AHEAD_BYTES, MESSAGE_BYTES * needed), READ_BYTES)
        run, upper = await read_run(partition, wanted, patterns, bytes_max=bytes_max)
        if wanted and upper <= wanted[-1]:
            next_offset = min(next_offset, upper)
        return run, next_offset

    def _matching(
        self, partition: Partition, stream_id: UUID, filters: tuple[str, ...], offset: int
    ) -> Matching:
        """Of messages that were committed when it was made, ``offset`` among them."""
        key = (stream_id, partition.tp.partition, filters)
        kept = self._kept.get(key)
        found = None if kept is None else kept.matching
        if found is None or found.below <= offset or not found.is_of(partition.subjects):
            found = Matching(partition.subjects, filters, partition.stable_offset)
            self._keep(key, _Kept(partition, found))
        self._kept.move_to_end(key)
        return found

    def _keep(self, key: tuple[UUID, int, tuple[str, ...]], made: _Kept) -> None:
        """With a new search, those of closed partitions go: each keeps the index of a stream that is gone."""
        if key not in self._kept:
            for other, it in tuple(self._kept.items()):
                if it.partition.closed:
                    del self._kept[other]
        self._kept[key] = made
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    async def _message(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        offset: int,
        *,
        end: int,
        epochs: Sequence[EpochStart],
    ) -> StreamMessage:
        partition = self._led(tp, stream_id)
        leader_epoch = partition.leader_epoch
        shared_end = partition.shared_end(epochs, end)
        if shared_end < end and end > partition.log_start_offset:
            return StreamMessage(None, max(shared_end, partition.log_start_offset))
        message = await message_at(partition, offset + 1)
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            raise NotLeader(f"{tp} was led by another node meanwhile")  # whose message this may be
        return StreamMessage(message)

    async def _wait(self, tp: TopicPartition, stream_id: UUID, offset: int) -> tuple[int, int]:
        partition = self._led(tp, stream_id)
        if partition.stable_offset <= offset:
            try:
                async with asyncio.timeout(WAIT_S):
                    await until(
                        partition,
                        lambda: partition.stable_offset > offset or not partition.is_leader,
                    )
            except TimeoutError:
                pass
        return partition.log_start_offset, partition.stable_offset

    async def _start(self, tp: TopicPartition, stream_id: UUID, query: StartQuery) -> ConsumerStart:
        partition = self._led(tp, stream_id)
        # What is beyond the limit of messages for each subject is not for new consumers.
        await partition.surplus.settle()
        await self._interest.settle(partition)  # nor what no consumer before wants
        found = await self._started(partition, query)
        offset = found.offset
        if not partition.log_start_offset < offset <= partition.stable_offset:
            return found
        before = partition.epochs_between(partition.log_start_offset, offset)
        return found._replace(epochs=before[-EPOCHS_MAX:])

    async def _started(self, partition: Partition, query: StartQuery) -> ConsumerStart:
        tp, start, end = partition.tp, partition.log_start_offset, partition.stable_offset
        match query.policy:
            case "all":
                return ConsumerStart(start)
            case "new":
                return ConsumerStart(end)
            case "by_start_sequence":
                return ConsumerStart(max(query.value, start))
            case "by_start_time":
                found = await partition.offset_for_timestamp(query.value, stable=True)
                return ConsumerStart(end if found is None else max(found[0], start))
            case "last":
                return ConsumerStart(await _last(partition, query.filters, start, end))
            case _:
                end = end if query.up_to is None else query.up_to
                filters = query.filters or (">",)
                picked = await last_of_many(
                    partition, filters, up_to_sequence=end, limit=PICKED_MAX
                )
                if picked is None:
                    raise Overloaded(
                        f"too many subjects of {tp} match: the last message of each is wanted"
                    )
                return ConsumerStart(end, [sequence - 1 for sequence in picked])

    async def _answer_read(self, fields: Fields) -> NodeAnswer:
        part = await self._read(
            tp_of(fields),
            UUID(fields["stream_id"]),
            tuple(fields["filters"]),
            int(fields["offset"]),
            limit=int(fields["limit"]),
            picked=fields["picked"],
            epochs=epochs_of(fields.get("epochs", ())),
        )
        told = {**part._asdict(), "messages": None}
        if "epochs" not in fields:  # an older node would not understand
            del told["epochs"], told["shared_end"]
        return NodeAnswer(told, part.messages.encode())

    async def _answer_wait(self, fields: Fields) -> NodeAnswer:
        place = tp_of(fields), UUID(fields["stream_id"])
        start, end = await self._wait(*place, int(fields["offset"]))
        return NodeAnswer({"start": start, "end": end})

    async def _answer_start(self, fields: Fields) -> NodeAnswer:
        query = StartQuery(**fields["query"])
        query = query._replace(filters=tuple(query.filters))
        found = await self._start(tp_of(fields), UUID(fields["stream_id"]), query)
        last = found.epochs[-1].epoch if found.epochs else NO_EPOCH  # as an older node asks for it
        return NodeAnswer({**found._asdict(), "epoch": last})

    async def _answer_message(self, fields: Fields) -> NodeAnswer:
        place = tp_of(fields), UUID(fields["stream_id"])
        offset = int(fields["offset"])
        end, epochs = int(fields.get("end", 0)), epochs_of(fields.get("epochs", ()))
        found = await self._message(*place, offset, end=end, epochs=epochs)
        if found.message is None:
            return NodeAnswer({"shared_end": found.shared_end})
        return answer_of(found.message)


async def _picked(partition: Partition, picked: Sequence[int]) -> StreamPart:
    found, upper = await read_run(partition, picked, bytes_max=READ_BYTES)
    next_offset = min(picked[-1] + 1, upper) if picked else 0
    return StreamPart(
        found,
        next_offset,
        sum(offset >= next_offset for offset in picked),
        partition.log_start_offset,
        partition.stable_offset,
    )


async def _last(partition: Partition, filters: tuple[str, ...], start: int, end: int) -> int:
    if not filters:
        return partition.erased.start_of_last_absent(1, start, end)
    matching, below = Matching(partition.subjects, filters, end), end
    while (below := await matching.last(below)) != NOTHING and below >= start:
        if below not in partition.erased:
            return below
    return end


def _fields(tp: TopicPartition, stream_id: UUID) -> dict[str, Any]:
    return {"stream": tp.stream, "partition": tp.partition, "stream_id": str(stream_id)}


def _message_of(answer: NodeAnswer) -> StreamMessage:
    """What ``_answer_message`` answers. Raises as ``_part_of``."""
    if "shared_end" in answer.fields:
        return StreamMessage(None, int(answer.fields["shared_end"]))
    return StreamMessage(message_of(answer))


def _start_of(answer: NodeAnswer) -> ConsumerStart:
    """What ``_answer_start`` answers. Raises as ``_part_of``."""
    fields = answer.fields
    offset, epoch = int(fields["offset"]), int(fields.get("epoch", NO_EPOCH))
    epochs = epochs_of(fields.get("epochs", ()))
    if not epochs and epoch != NO_EPOCH:  # of an older node
        epochs = [EpochStart(epoch, offset - 1)]
    return ConsumerStart(offset, fields["picked"], epochs)


def _part_of(answer: NodeAnswer) -> StreamPart:
    """What ``_answer_read`` answers. Raises KeyError, TypeError, ValueError for what is none."""
    part = StreamPart(**{**answer.fields, "messages": MessageRun.decode(bytes(answer.data))})
    return part._replace(epochs=epochs_of(part.epochs))
