"""The consumers of one partition of ``__consumer_state``: the shell around their cores, for one leadership.

A coordinator reads what those before have left, and serves: a consumer that is used is restored at once, the others
one after the other, and the stream's consumers as a whole (their names, their number, new ones) once all are. Where
consumers remove messages, none is served before that. A consumer that outlives its coordinator is written when it is
made, and its state after it has changed: soon, and at once where a client waits for the confirmation of an
acknowledgement. All states that have changed are written together. A write is appended in this leader epoch or not at
all, and counts when it is committed. What was delivered or acknowledged after the last write is delivered again by the
next coordinator: at least once, as JetStream has it.

Nothing is delivered without the node's lease: another node may coordinate already, and may have confirmed
acknowledgements that are unknown here. What was decided meanwhile is done when the lease returns in the same leader
epoch, and dropped otherwise. An acknowledgement is confirmed when the state that has it is committed. A coordinator
that does not know of a delivery, since its predecessor could not write that, leaves its acknowledgement unanswered:
it is about to deliver the message itself.

A consumer costs a task only while there is something to deliver. One that waits for messages is woken by the feed of
its partition, which waits once for all of them.
"""

import asyncio
import base64
import logging
import re
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Any, Final
from uuid import UUID
from weakref import WeakValueDictionary

from streamlog.clock import wall_ms
from streamlog.condition import CHECK_NODES, FAULT, Condition
from streamlog.config import ConsumersSection
from streamlog.delivery.delivery import PENDING_CEILING, Delivery, Place
from streamlog.delivery.state_encoding import DeliveryState
from streamlog.errors import NotLeader, OffsetOutOfRange, StreamlogError, StreamNotFound
from streamlog.jetstream.consumers.ack_intake import AckIntake, AckRun
from streamlog.jetstream.consumers.acks import (
    MARKS,
    Ack,
    AckKind,
    AckSubject,
    FlowAnswer,
    ack_time_ns,
    mark_of,
    read_ack,
    read_ack_subject,
    read_flow_answer,
)
from streamlog.jetstream.consumers.consumer import (
    Advise,
    Confirm,
    Consumer,
    Deliver,
    DeliverRun,
    Tell,
    limits_of,
)
from streamlog.jetstream.consumers.consumer_config import (
    FLOW_NEEDS_ONE_PARTITION,
    ConsumerConfig,
    CreateRequest,
    beyond,
    check_queue,
    decided,
)
from streamlog.jetstream.consumers.consumer_records import (
    ConsumerKey,
    KeptConsumer,
    KeptConsumers,
    consumer_record,
    epochs_record,
    given_up_record,
    state_record,
)
from streamlog.jetstream.consumers.consumer_statistics import ConsumerCounts
from streamlog.jetstream.consumers.interest import NOT_KEPT, Interest, key_of
from streamlog.jetstream.consumers.interest_reports import InterestReports, StreamInterest
from streamlog.jetstream.consumers.run_delivery import deliver_run
from streamlog.jetstream.consumers.stream_source import StartQuery, StreamSource
from streamlog.jetstream.direct_get.direct_get import no_responders
from streamlog.jetstream.errors import CONSUMER_NOT_FOUND, ApiError, ApiRefused
from streamlog.jetstream.verbs.stream_info import NO_TIME, node_name, rfc3339
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.segment.file_slice import FileSlice
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.consumer_limits import ConsumerLimits
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.router import Callback, Router, Subscription
from streamlog.partition.internal_partition import InternalPartition, until
from streamlog.record.codec import RecordRun
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

STATE_NOT_KEPT: Final = Condition(
    "SL-0516",
    "the state of consumers is not kept",
    CHECK_NODES,
    meaning="Acknowledgements of JetStream consumers could not be written. Another coordinator would deliver these "
    "messages again.",
)
CUT_BACK: Final = Condition(
    "SL-0522",
    "a consumer goes back in its stream",
    "nothing: the messages that are in the place of those that were lost are delivered",
    meaning="A stream has lost messages that a JetStream consumer has read already: by an unclean election, or since "
    "it was restored. The consumer goes on where the stream has others.",
)
CONSUMER_WAITS: Final = Condition(
    "SL-0517",
    "a consumer cannot read its stream",
    CHECK_NODES,
    meaning="A JetStream consumer waits for a leader of its stream.",
)

LOAD_BYTES: Final = 256 * 1024
FLUSH_S: Final = 0.05
"""How long a changed state waits for others before it is written."""
FLUSH_BYTES: Final = 512 * 1024
"""Of states in one write."""
RETRY_S: Final = 0.2
FAULT_RETRY_S: Final = 5.0
"""After an error that no code expects."""
CONFIRM_S: Final = 0.3
"""How long a confirmation waits for what it confirms to be removed from the stream."""
CONFIRMS_MAX: Final = 10_000
"""Of one consumer, that wait while its state cannot be written; clients ask again for the others."""
BIND_S_MIN: Final = 0.002
BIND_SHARE: Final = 20
BIND_S_MAX: Final = 1.0
"""After subscriptions came or went, it is looked whether deliver subjects have subscribers: so much later, or so many
times as late as the last look took. Clients of requests subscribe all the time."""
BLOCK_BYTES: Final = 8 * 1024 * 1024
"""What may wait at a connection before no more is delivered to it."""
EARLY_BYTES: Final = 8 * 1024
"""So much is written as soon as it is delivered: its client reads it while the next request is served. Less is not
worth a write of its own."""
UNBLOCK_BYTES: Final = 1024 * 1024
UNBLOCK_S: Final = 0.005
INBOXES_AT_ONCE: Final = 16
"""Of pull requests that are served next: whether their clients are there is looked at in time."""
_SUBJECT: Final = re.compile(r"[^\x00-\x20\x7f.]+(\.[^\x00-\x20\x7f.]+)*")
"""A record that a Kafka producer wrote has none, or any bytes in its place."""
AT_ONCE: Final = 100
"""Consumers that are restored, or looked at, in one turn of the event loop: some 5 ms."""
Work = Callable[[], Coroutine[Any, Any, None]]
_KINDS: Final = {
    "MAX_DELIVERIES": "max_deliver",
    "MSG_NAKED": "nak",
    "MSG_TERMINATED": "terminated",
    "PINNED": "consumer_group_pinned",
    "UNPINNED": "consumer_group_unpinned",
}
_RNG: Final = SystemRandom()
_HEAD: Final = b"NATS/1.0\r\n"
Record = tuple[bytes, bytes | None]
"""A key and a value."""
_NONE: Final = OffsetSet()
_LATER_MS: Final = 2**62
NAMES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

LEADERSHIP_CHANGE: Final = "Leadership Change"
"""Another node delivers from now on."""
NO_SUCH_GROUP: Final = ApiError(
    400, 10160, "Provided priority group does not exist for this consumer"
)
TOO_MANY: Final = ApiError(400, 10026, "maximum consumers limit reached")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a coordinator needs of its node."""

    node_id: NodeId
    domain: str
    settings: ConsumersSection
    router: Router
    source: StreamSource
    image: Callable[[], MetadataImage]
    lease_held: Callable[[], bool]
    advise: Callable[[str, str, dict[str, Any]], None]
    """A subject after ``$JS.EVENT.ADVISORY.``, a kind, and fields."""
    measure: Callable[[str, str, dict[str, Any]], None]
    """The same of a metric, after ``$JS.EVENT.METRIC.``."""
    end_others: Callable[[int, int], Coroutine[Any, Any, None]]
    """Returns once no earlier leader of the partition coordinates, given this leader epoch."""
    counts: ConsumerCounts
    interest: StreamInterest
    consumed: Callable[[int], Sequence[StreamImage]]
    """Streams that their consumers empty, of a partition of ``__consumer_state``."""


def clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class StreamFeed:
    """Wakes those that wait for messages of a partition of a stream."""

    def __init__(
        self,
        tp: TopicPartition,
        stream_id: UUID,
        source: StreamSource,
        run: Callable[[Work], asyncio.Task[None] | None],
        ended: Callable[["StreamFeed"], None],
    ) -> None:
        """``ended`` is called when nothing waits any more, and nothing is asked."""
        self._tp = tp
        self._stream_id = stream_id
        self._source = source
        self._run = run
        self._ended = ended
        self._waiting: dict[HostedConsumer, None] = {}
        self._offset = 0
        """Those that wait know the messages below."""
        self._task: asyncio.Task[None] | None = None

    def wait(self, consumer: "HostedConsumer", offset: int) -> None:
        """Wake it once there are messages at ``offset``, which is the end as far as it knows."""
        if self._task is not None and offset < self._offset:  # others have seen more
            consumer.wake()
            return
        if self._task is None:
            self._offset = offset
        self._waiting[consumer] = None
        if self._task is None:
            self._task = self._run(self._watch)

    def forget(self, consumer: "HostedConsumer") -> None:
        self._waiting.pop(consumer, None)

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is asked."""
        return not self._waiting and self._task is None

    async def _watch(self) -> None:
        try:
            while self._waiting:
                offset = self._offset
                try:
                    _, end = await self._source.wait(self._tp, self._stream_id, offset)
                except StreamNotFound:
                    self._wake()  # they find out for themselves
                    return
                except StreamlogError:
                    await asyncio.sleep(RETRY_S)
                    continue
                except Exception:
                    logger.exception(FAULT.logged_as("a wait for messages failed"))
                    await asyncio.sleep(FAULT_RETRY_S)
                    continue
                if end != offset:  # below it, some may have read what the stream has lost
                    self._offset = end
                    self._wake()
        finally:
            self._task = None
            if not self._waiting:
                self._ended(self)

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, {}
        for it in woken:
            it.wake()


class HostedConsumer:
    """One consumer: carries out what its core decides."""

    def __init__(
        self,
        coordinator: "ConsumerCoordinator",
        key: ConsumerKey,
        kept: KeptConsumer,
        core: Consumer,
        *,
        picked: Mapping[int, list[int]],
        unpicked: Iterable[int] = (),
        partitions: int,
    ) -> None:
        """``picked``: by partition, what is to be read before the rest; ``unpicked``: partitions of which that has
        to be found first.
        """
        self.key = key
        self.kept = kept
        self.core = core
        self.closed = False
        self._coordinator = coordinator
        self._around = coordinator.around
        self.partitions = partitions
        self._picked = {number: offsets for number, offsets in picked.items() if offsets}
        """By partition, what is to be read before the rest."""
        self._unpicked = set(unpicked)
        self._turn = 0
        self._task: asyncio.Task[None] | None = None
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._seen_generation = -1
        self._has_complained = False
        self._mark = mark_of(kept.created_ms)
        self._reply = reply_prefix_of(key)
        self.confirms: list[str] = []
        """Where clients wait for an answer to acknowledgements that are not written."""
        self.is_leaving = False
        """Its end is being written: its state is not."""
        self.kept_interests: Mapping[int, Interest] | None = None
        """By partition, what it has come to as far as that is kept; None: nothing is yet."""
        self.kept_given_up: Mapping[int, OffsetSet] = {}
        """What the record says that was appended last."""
        self.kept_epochs: Mapping[int, tuple[EpochStart, ...]] = {}
        """The same of its leader epochs."""
        self.is_record_due = False
        """``kept`` is another one than the record says: it is written together with the next state."""
        self.is_unblocking = False
        self.awaits_stream = False
        """Its stream is being restored."""

    @property
    def is_kept(self) -> bool:
        """It outlives its coordinator."""
        return self.kept.config.is_kept

    def interests(self) -> dict[int, Interest]:
        """By partition, what it has come to."""
        core, kept = self.core, self.kept
        found = dict[int, Interest]()
        for number in range(self.partitions):
            still_open = OffsetSet.in_order(core.delivery.pending_offsets(number))
            still_open.update(core.given_up.get(number, _NONE))
            found[number] = Interest(
                core.config.filters,
                core.delivery.next_offset(number),
                still_open,
                kept.begins.get(number, 0),
                kept.carried.get(number, _NONE),
                core.read_epochs(number, core.delivery.next_offset(number)),
            )
        return found

    def interest(self, number: int) -> Interest:
        """By which messages of a partition are removed: after a failure it is not less."""
        interests = self.kept_interests if self.is_kept else self.interests()
        if interests is None:
            return NOT_KEPT
        return interests.get(number) or Interest(self.kept.config.filters, 0, _NONE)

    def close(self, description: str) -> None:
        """Those that wait for messages are told why none comes from here any more."""
        if self.closed:
            return
        self.closed = True
        self.core.end_pulls(409, description)
        for it in self.core.take():
            if isinstance(it, Tell) and self._around.lease_held():  # else it has been told
                self._tell(it)
        if self._timer is not None:
            self._timer.cancel()
        self._coordinator.forget_waiting(self)

    def wake(self) -> None:
        """There may be something to do."""
        self._is_called = True
        if self._task is None and not self.closed:
            self._task = self._coordinator.run_task(self._work)

    @property
    def takes_pulls(self) -> bool:
        """It is still there, and no other node coordinates it."""
        coordinator = self._coordinator
        return not self.closed and coordinator.is_serving and coordinator.may_act

    def pull(self, subject: str, body: bytes) -> None:
        """For one that ``takes_pulls``."""
        self._check_interest()
        self.core.pull(subject, body, clock_ms())
        self._carry_out()
        self._go_on()

    def unpin(self) -> None:
        self._check_interest()
        self.core.unpin("admin", clock_ms())
        self.settle()

    def settle(self) -> None:
        """After an event: carry out what follows at once, and leave the rest to the task."""
        self._perform()
        self._go_on()

    def _go_on(self) -> None:
        if self.core.needs_read:
            self.wake()
        else:
            self._set_timer()

    def acknowledged(self, acked: AckSubject, ack: Ack, reply: str) -> None:
        self._around.counts.acks += 1
        self._check_interest()
        if acked.stream_sequence > self.core.delivery.next_offset(acked.partition):
            if ack.kind is AckKind.NEXT:  # what is acknowledged is still to be delivered here
                self.core.pull(reply, ack.next_request, clock_ms())
        else:
            self.core.acknowledged(acked, ack, reply, clock_ms())
        self.settle()

    def flow_answered(self, subject: str, answer: FlowAnswer) -> None:
        self._around.counts.acks += self.core.flow_answered(subject, clock_ms(), answer)
        self.settle()

    def acknowledged_runs(self, runs: list[AckRun]) -> None:
        """Positive ones, that no client waits for."""
        meant = [it for it in runs if self.is_meant(it.mark)]
        if not meant:
            return
        self._around.counts.acks += sum(it.stop - it.start for it in meant)
        self._check_interest()
        self.core.acknowledged_runs([(it.partition, it.start, it.stop) for it in meant], clock_ms())
        self.settle()

    def is_meant(self, mark: int) -> bool:
        """Not another consumer of this name."""
        return mark == self._mark

    def look(self) -> None:
        """Subscriptions came or went."""
        if self.core.config.is_push:
            was_bound = self.core.is_bound
            self._check_interest()
            if was_bound != self.core.is_bound:
                self.settle()

    def look_again(self) -> None:
        """The deliver subject is another one."""
        self._seen_generation = -1
        self.look()

    async def _work(self) -> None:
        is_well = False
        try:
            while not self.closed and self._coordinator.may_act:
                self._is_called = False
                self._check_interest()
                self.core.pump(clock_ms())
                self._perform()
                try:
                    is_on = await self._step()
                except StreamlogError as error:
                    await self._wait_for_stream(error)
                    is_on = True
                if not is_on and not self._is_called:
                    break
            is_well = True
        except Exception:
            logger.exception(FAULT.logged_as("a consumer failed"), extra=self.key._asdict())
        finally:
            self._task = None
        if not self.closed:
            self._perform()
            self._set_timer()
            if not is_well:
                asyncio.get_running_loop().call_later(FAULT_RETRY_S, self.wake)

    async def _step(self) -> bool:
        """Read what is wanted; False: nothing further is, or is there."""
        core = self.core
        place = core.needs_message
        if place is not None:
            await self._provide(place)
            return True
        if self._coordinator.is_behind(core):
            core.block(True, clock_ms())
            self._coordinator.unblock_later(self)
            return False
        if not (core.wants or core.is_running_low):
            return core.needs_count and await self._count()
        ends, last_pull = {}, core.last_pull
        for _ in range(self.partitions):
            number = self._turn = (self._turn + 1) % self.partitions
            is_more, ends[number] = await self._read(number, core.reads)
            if self.closed:
                return False
            if is_more:
                return True
        core.end_of_stream(clock_ms(), last_pull)
        self._perform()
        if core.wants:
            for number, end in ends.items():
                self._coordinator.feed(self, number).wait(self, end)
        return False

    async def _provide(self, place: Place) -> None:
        """Read the message that is due again, unless the stream has another one in its place."""
        core, number = self.core, place.partition
        end = core.next_offset(number)
        epochs = core.read_epochs(number, end)
        found = await self._around.source.message(
            TopicPartition(self.key.stream, number),
            self.kept.stream_id,
            place.offset,
            end=end,
            epochs=epochs,
        )
        if found.shared_end is None:
            core.provide(place, found.message, clock_ms())
        elif self._has_read(number, end, epochs):
            self._rewind(number, found.shared_end)

    async def _count(self) -> bool:
        """Whether there are enough messages by now for some request."""
        core, ends = self.core, {}
        for number in range(self.partitions):
            pending, ends[number] = await self._beyond(number)
            if self.closed:
                return False
            core.count(number, pending, clock_ms())
        if core.needs_count:
            for number, end in ends.items():
                self._coordinator.feed(self, number).wait(self, end)
            return False
        return True

    async def _read(self, number: int, limit: int) -> tuple[bool, int]:
        """Whether there was something, and the end of the partition."""
        core, kept = self.core, self.kept
        tp = TopicPartition(self.key.stream, number)
        if number in self._unpicked:
            await self._pick(tp)
        picked, filters = self._picked.get(number), core.config.filters
        offset = known_end = core.next_offset(number)
        if picked:  # by the messages below that offset
            known_end = max(offset, kept.resume_at.get(number, 0))
        epochs = core.read_epochs(number, known_end)
        part = await self._around.source.read(
            tp,
            kept.stream_id,
            filters,
            known_end,
            limit=limit,
            picked=picked[:limit] if picked else None,
            epochs=epochs,
        )
        self._has_complained = False
        is_other = core.next_offset(number) != offset or self._picked.get(number) is not picked
        if core.config.filters != filters or is_other:
            return True, 0  # they were changed while this was read, or it was reset
        if part.shared_end is not None:
            if self._has_read(number, known_end, epochs):
                self._rewind(number, part.shared_end)
            return True, 0
        now_ms = clock_ms()
        core.note_epochs(number, part.epochs)
        next_offset, beyond = part.next_offset, part.beyond
        if picked:
            rest = [offset for offset in picked if offset >= next_offset]
            self._picked[number] = rest
            beyond = len(rest)
            if not rest:
                del self._picked[number]
                next_offset = max(next_offset, kept.resume_at.get(number, 0))
        elif part.log_start_offset > core.delivery.ack_floor.offsets.get(number, 0):
            core.start_moved(number, part.log_start_offset, now_ms)
        core.add(number, part.messages, next_offset=next_offset, beyond=beyond)
        core.pump(now_ms)
        is_more = bool(part.messages.count) or next_offset < part.high_watermark
        return is_more, max(part.high_watermark, next_offset)

    def _has_read(self, number: int, end: int, epochs: Sequence[EpochStart]) -> bool:
        """What a leader was shown is so still: it has read, or picked, what was below ``end``. Another answer may have
        had it go back before this one came, and it may have read the messages that are there now.
        """
        core = self.core
        known_end = max(core.next_offset(number), self.kept.resume_at.get(number, 0))
        return known_end >= end and core.read_epochs(number, end) == epochs

    def _rewind(self, number: int, offset: int) -> None:
        """The stream has lost what was read from there on. What was picked is found again."""
        extra = {**self.key._asdict(), "partition": number, "offset": offset}
        logger.warning(CUT_BACK, extra={**extra, "was": self.core.next_offset(number)})
        cut = self.kept.below(number, offset)
        if cut != self.kept:
            self.kept = cut
            self._coordinator.keep(self)
        self._picked.pop(number, None)
        self.core.rewind(number, offset, clock_ms())
        if self.core.delivery.next_offset(number) < self.kept.resume_at.get(number, 0):
            self._unpicked.add(number)
        self._perform()

    async def _pick(self, tp: TopicPartition) -> None:
        """Find the last messages of all subjects again, as of when the consumer was made. Raises StreamlogError."""
        core, number = self.core, tp.partition
        query = StartQuery(
            "last_per_subject", core.config.filters, up_to=self.kept.resume_at[number]
        )
        start = await self._around.source.start(tp, self.kept.stream_id, query)
        first = core.next_offset(number)
        picked = [it for it in start.picked or () if it >= first]
        if picked:
            self._picked[number] = picked
        self._unpicked.discard(number)

    async def reset_offsets(self, sequence: int) -> dict[int, int]:
        """By partition. Raises ApiRefused, StreamlogError."""
        config, numbers = self.core.config, range(self.partitions)
        if not sequence:
            floor = self.core.delivery.ack_floor.offsets
            return {number: floor.get(number, 0) for number in numbers}
        match config.deliver_policy:
            case "all":
                pass
            case "by_start_sequence":
                if sequence < config.opt_start_seq:
                    raise _not_reset("below start seq")
            case "by_start_time":
                query = StartQuery("by_start_time", value=config.opt_start_time_ms or 0)
                for number in numbers:
                    tp = TopicPartition(self.key.stream, number)
                    start = await self._around.source.start(tp, self.kept.stream_id, query)
                    if sequence <= start.offset:
                        raise _not_reset("below start time")
            case _:
                raise _not_reset("not allowed")
        return dict.fromkeys(numbers, sequence - 1)

    async def reset_epochs(self, offsets: Mapping[int, int]) -> dict[int, Sequence[EpochStart]]:
        """In which leader epochs the messages before these offsets were written, where it has not come to them. Raises
        StreamlogError.
        """
        found = dict[int, Sequence[EpochStart]]()
        for number, offset in offsets.items():
            if offset > self.core.delivery.next_offset(number):
                tp = TopicPartition(self.key.stream, number)
                query = StartQuery("by_start_sequence", value=offset)
                start = await self._around.source.start(tp, self.kept.stream_id, query)
                found[number] = start.epochs
        return found

    def reset(
        self,
        offsets: Mapping[int, int],
        epochs: Mapping[int, Sequence[EpochStart]] | None = None,
    ) -> None:
        """What was picked is found again. ``epochs``: of ``reset_epochs``."""
        self.core.reset(offsets, clock_ms(), epochs=epochs)
        resume_at = self.kept.resume_at
        self._picked.clear()
        self._unpicked = {it for it, offset in offsets.items() if offset < resume_at.get(it, 0)}

    def grow(self, partitions: int) -> None:
        """The stream has more partitions now."""
        self.partitions = partitions
        self.settle()

    async def _wait_for_stream(self, error: StreamlogError) -> None:
        if not self._has_complained:
            self._has_complained = True
            logger.warning(CONSUMER_WAITS, extra={**self.key._asdict(), "error": str(error)})
        await asyncio.sleep(RETRY_S)

    def _check_interest(self) -> None:
        """Nothing is delivered to clients that have gone."""
        router, core = self._around.router, self.core
        if router.generation == self._seen_generation:
            return
        self._seen_generation = router.generation
        if core.config.is_push:
            queue = core.config.deliver_group.encode()
            count = router.interest(core.config.deliver_subject.encode(), queue=queue)
            core.bind(bool(count), clock_ms())
            return
        for subject in core.inboxes(INBOXES_AT_ONCE):
            if not router.interest(subject.encode()):
                core.drop_pulls(subject, clock_ms())
                self._seen_generation = -1  # others are served next

    def _perform(self) -> None:
        """Or leave it to be done when the lease returns."""
        if not self.closed and self._coordinator.may_act:
            self._carry_out()

    def _carry_out(self) -> None:
        for it in self.core.take():
            match it:
                case DeliverRun():
                    self._send_run(it)
                case Deliver():
                    self._send(it)
                case Tell():
                    self._tell(it)
                case Confirm():
                    self._coordinator.confirm(self, it.reply)
                case Advise():
                    self._coordinator.advise(self.key, it)
        if self.core.is_changed:
            self.core.is_changed = False
            self._coordinator.changed(self)

    def _tell(self, it: Tell) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in it.headers)
        block = f"NATS/1.0 {it.code} {it.description}\r\n{lines}\r\n".encode()
        self._around.router.publish(it.subject.encode(), b"", reply=it.reply.encode(), block=block)

    def _send_run(self, it: DeliverRun) -> None:
        count = it.stop - it.start
        sent = deliver_run(
            self._around.router,
            it.subject.encode(),
            it.run,
            it.start,
            it.stop,
            head=f"{self._reply}1.".encode(),
            sequence=it.sequence,
            time_mark_ns=it.partition * MARKS + self._mark,
            pending=it.pending,
            unnamed=self.key.stream.encode(),
        )
        self._around.router.write_early(EARLY_BYTES)
        self._around.counts.deliveries += sent
        if sent < count:  # who listened has gone in this moment
            self._seen_generation = -1
            self.core.run_not_sent(it, sent, clock_ms())

    def _send(self, it: Deliver) -> None:
        message, delivered = it.message, it.delivered
        self._around.counts.deliveries += 1
        self._around.counts.redeliveries += delivered.count > 1
        time_ns = ack_time_ns(message.timestamp_ms, delivered.place.partition, self._mark)
        reply = (  # as AckSubject.subject, in half its time
            f"{self._reply}{delivered.count}.{message.sequence}.{delivered.sequence}.{time_ns}.{it.pending}"
        )
        block, data = message.header_block, message.data
        if it.pin:
            block = b"%bNats-Pin-Id: %b\r\n\r\n" % (block[:-2] or _HEAD, it.pin.encode())
        shown = message.subject if _SUBJECT.fullmatch(message.subject) else self.key.stream
        if self.core.config.headers_only:
            head = block[:-2] or _HEAD
            block, data = b"%bNats-Msg-Size: %d\r\n\r\n" % (head, len(data)), b""
        count = self._around.router.deliver_as(
            it.subject.encode(), shown.encode(), data, reply=reply.encode(), block=block
        )
        if not count:  # who listened has gone in this moment
            self._seen_generation = -1
            self.core.not_sent(it, clock_ms())

    def _set_timer(self) -> None:
        next_ms = self.core.next_ms()
        if self._timer is not None:
            if next_ms is None or next_ms >= self._timer_ms:
                return  # ``_tick`` looks again: to set a timer with each delivery takes longer than to deliver
            self._timer.cancel()
            self._timer = None
        if next_ms is not None and not self.closed:
            self._timer_ms = next_ms
            delay_s = max(0, next_ms - clock_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = clock_ms()
        if not self._coordinator.may_act:
            return  # ``settle`` sets it again when the lease returns
        if self.core.is_abandoned(now_ms):
            self._coordinator.abandon(self)
            return
        self._check_interest()
        self.core.tick(now_ms)
        self.settle()
        if self._task is None and self._timer is None:
            self._set_timer()

    async def info(self) -> dict[str, Any]:
        """JetStream's ConsumerInfo. Raises StreamlogError."""
        self.look()  # who asks may have subscribed just before
        core, kept, delivery = self.core, self.kept, self.core.delivery
        pending = 0
        for number in range(self.partitions):
            pending += await self._pending(number)
        delivered, floor = delivery.delivered, delivery.ack_floor
        info: dict[str, Any] = {
            "stream_name": self.key.stream,
            "name": self.key.consumer,
            "created": rfc3339(kept.created_ms),
            "config": core.config.json(),
            "delivered": _position(delivered, core.last_delivered_ms),
            "ack_floor": _position(floor, core.last_ack_ms),
            "num_ack_pending": delivery.pending_count,
            "num_redelivered": delivery.redelivered_count,
            "num_waiting": len(core.waiting),
            "num_pending": pending,
            "cluster": {
                "name": self._around.image().cluster_id,
                "leader": node_name(self._around.node_id),
            },
            "ts": rfc3339(wall_ms()),
        }
        if core.config.priority_groups:
            info["priority_groups"] = [self._group_state()]
        if core.is_bound:
            info["push_bound"] = True
        if kept.paused_until_ms is not None and core.is_paused:
            info["paused"] = True
            info["pause_remaining"] = max(0, kept.paused_until_ms - wall_ms()) * 1_000_000
        return info

    def _group_state(self) -> dict[str, Any]:
        """nats-server tells of the first group alone."""
        core = self.core
        state = {"group": core.config.priority_groups[0], "pinned_ts": NO_TIME}
        if core.pin and core.pinned_ms is not None:
            state["pinned_client_id"] = core.pin
            state["pinned_ts"] = rfc3339(wall_ms() - (clock_ms() - core.pinned_ms))
        return state

    async def _pending(self, number: int) -> int:
        pending, _ = await self._beyond(number, self.core.delivery.next_offset(number))
        return pending

    async def _beyond(self, number: int, offset: int | None = None) -> tuple[int, int]:
        """How many messages match from ``offset`` on, or beyond what was read; and the end of the partition."""
        offset = self.core.next_offset(number) if offset is None else offset
        picked = [it for it in self._picked.get(number, ()) if it >= offset]
        if picked:
            offset = max(offset, self.kept.resume_at.get(number, 0))
        core = self.core
        epochs = core.read_epochs(number, offset)
        part = await self._around.source.read(
            TopicPartition(self.key.stream, number),
            self.kept.stream_id,
            core.config.filters,
            offset,
            limit=0,
            epochs=epochs,
        )
        if part.shared_end is not None:
            if self._has_read(number, offset, epochs):
                self._rewind(number, part.shared_end)
            return await self._beyond(number)
        return len(picked) + part.beyond, max(part.high_watermark, offset)


def _position(position: Any, last_active_ms: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "consumer_seq": position.sequence,
        "stream_seq": max(position.offsets.values(), default=0),
    }
    if last_active_ms is not None:
        told["last_active"] = rfc3339(wall_ms() - (clock_ms() - last_active_ms))
    return told


class ConsumerCoordinator:
    """One leadership of one partition of ``__consumer_state``. All is on the event loop."""

    def __init__(
        self,
        partition: InternalPartition,
        leader_epoch: int,
        around: Surroundings,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.number = partition.tp.partition
        self.around = around
        self.closed = False
        self.is_serving = False
        """The log has been read, and its consumers may be used: one by one, see ``known``."""
        self.is_open = False
        """All of them are restored."""
        self.consumers: dict[ConsumerKey, HostedConsumer] = {}
        self._resting = KeptConsumers()
        """Those of the log that are not restored yet."""
        self._push: dict[ConsumerKey, HostedConsumer] = {}
        """Those that deliver while they have subscribers."""
        self._counts = Counter[str]()
        """Of consumers, by stream."""
        self._by_stream: dict[str, dict[ConsumerKey, HostedConsumer]] = {}
        self.reports = InterestReports(self, around.interest, around.image, leader_epoch)
        self._names: dict[str, list[str]] = {}
        """Sorted, of streams whose consumers were listed."""
        self.durable_count = 0
        self._coming = Counter[str]()
        """Consumers that are being made, by stream."""
        self._locks: WeakValueDictionary[ConsumerKey, asyncio.Lock] = WeakValueDictionary()
        self._feeds: dict[tuple[UUID, int], StreamFeed] = {}
        self._changed: dict[HostedConsumer, None] = {}
        self._flush: asyncio.TimerHandle | asyncio.Handle | None = None
        self._group: asyncio.TaskGroup | None = None
        self._is_well = True
        self._endpoint = Callback(around.router, failed=_failed)
        self._acks = AckIntake(
            around.router, gathered=self._acknowledged_runs, told=self._acknowledged, failed=_failed
        )
        self._subscriptions: dict[str, Subscription] = {}
        """To acknowledgements, by stream; under no name that to answers to flow control."""
        self._ended = asyncio.Event()

    @property
    def leads(self) -> bool:
        return not self.closed and self.partition.leads(self.leader_epoch)

    @property
    def may_act(self) -> bool:
        """No other node coordinates these consumers."""
        is_leader = self.partition.leads(self.leader_epoch)
        return is_leader and not self.closed and self.around.lease_held()

    async def run(self) -> None:
        """Read what is kept, and serve until ``close``."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await self._read()
                    await self.around.end_others(self.number, self.leader_epoch)
                    self._serve()
                    await self._restore_all()
                    if self.leads:
                        await self._open()
                    await self._ended.wait()
                finally:
                    self._group = None
                    # Also where a record does not decode: nothing is done here any more.
                    self.is_serving = self.is_open = False
                raise _Closed
        except* _Closed:
            pass

    async def _open(self) -> None:
        for key in self.consumers:
            self._listen_to(key.stream)
        self.is_open = True
        self.apply(self.around.image().streams)  # what has changed since it was loaded
        self.look_at_streams()
        await self._settle_all(looks=True)
        self.run_task(self._bind)

    def lease_returned(self) -> None:
        """Go on with what was left."""
        if self.is_open and self.may_act:
            self.run_task(self._settle_all)
            if self._changed:
                self._flush_in(0)
            self.look_at_streams()

    async def _settle_all(self, *, looks: bool = False) -> None:
        """Some at a time: the node goes on meanwhile. ``looks``: at their subscriptions, too."""
        for number, hosted in enumerate(tuple(self.consumers.values()), 1):
            if looks:
                hosted.look()
            hosted.settle()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
                if not self.may_act:
                    return  # they go on when the lease returns

    def close(self, description: str = LEADERSHIP_CHANGE) -> None:
        """Another node coordinates them from now on; or this one stops. ``description``: what those are told that
        wait for messages.
        """
        if self.closed:
            return
        if self.leads:
            self._write()
        for hosted in self.consumers.values():
            hosted.close(description)
        self.closed, self.is_serving, self.is_open = True, False, False
        self._resting = KeptConsumers()
        if self._flush is not None:
            self._flush.cancel()
        for subscription in self._subscriptions.values():
            self.around.router.remove(subscription)
        self._ended.set()

    def run_task(self, work: Work) -> asyncio.Task[None] | None:
        """None: nothing is done here any more."""
        if self._group is None or self.closed:
            return None
        return self._group.create_task(_guarded(work))

    # What clients say

    def _serve(self) -> None:
        """Listen to flow control, and to acknowledgements of streams that have consumers."""
        if not self.leads:
            return
        subject = f"$JS.FC.p{self.number}.>".encode()
        self._subscribe("", Subscription(self._endpoint, subject, target=self._flow_answered))
        self.is_serving = True
        for stream in self._resting.streams:
            if self._serves_early(stream):
                self._listen_to(stream)

    def _serves_early(self, stream: str) -> bool:
        """Before all are restored: not where the consumers remove messages, since then each of them has a say."""
        known = self.around.image().streams.get(stream)
        return self.is_serving and known is not None and not known.config.is_consumed

    def known(self, key: ConsumerKey) -> HostedConsumer | None:
        """One that rests is restored. None: it is not there, or those of its stream are not served yet. Raises
        CorruptData.
        """
        found = self.consumers.get(key)
        if self.is_open:
            return found
        if not self._serves_early(key.stream):
            return None
        if found is None and key in self._resting:
            found = self._wake(key)
            if found is not None:
                found.look()
                found.settle()
        return found

    def _wake(self, key: ConsumerKey) -> HostedConsumer | None:
        """Restore one that rests; None: its stream is there no more. Raises CorruptData."""
        resting, kept = self._resting, self._resting.consumer(key)
        stream = self.around.image().streams.get(key.stream)
        if stream is None or stream.stream_id != kept.stream_id:
            resting.drop(key)
            self.run_task(partial(self._forget, key))
            return None
        hosted = self._restore(key, resting, len(stream.partitions))
        resting.drop(key)
        return hosted

    def _listen_to(self, stream: str) -> None:
        if stream not in self._subscriptions:
            subject = f"$JS.ACK.{stream}.>".encode()
            self._subscribe(stream, Subscription(self._acks, subject))

    def _subscribe(self, stream: str, subscription: Subscription) -> None:
        self.around.router.add(subscription)
        self._subscriptions[stream] = subscription

    def _add(self, hosted: HostedConsumer) -> None:
        self.consumers[hosted.key] = hosted
        if hosted.core.config.is_push:
            self._push[hosted.key] = hosted
        self._counts[hosted.key.stream] += 1
        self._by_stream.setdefault(hosted.key.stream, {})[hosted.key] = hosted
        self.durable_count += hosted.kept.config.is_durable
        names = self._names.get(hosted.key.stream)
        if names is not None:
            insort(names, hosted.key.consumer)

    def _drop(self, key: ConsumerKey) -> None:
        """Acknowledgements of a stream without consumers are of no interest."""
        self.durable_count -= self.consumers.pop(key).kept.config.is_durable
        self._push.pop(key, None)
        names = self._names.get(key.stream)
        if names is not None:
            del names[bisect_left(names, key.consumer)]
        self._counts[key.stream] -= 1
        del self._by_stream[key.stream][key]
        if not self._counts[key.stream]:
            del self._counts[key.stream]
            del self._by_stream[key.stream]
            self._names.pop(key.stream, None)
            is_last = key.stream not in self._resting.streams
            subscription = self._subscriptions.pop(key.stream, None) if is_last else None
            if subscription is not None:
                self.around.router.remove(subscription)

    def _acknowledged_runs(self, stream: str, consumer: str, runs: list[AckRun]) -> None:
        hosted = self.known(ConsumerKey(stream, consumer))
        if hosted is not None:
            hosted.acknowledged_runs(runs)

    def _acknowledged(self, subject: bytes, reply: bytes, _: bytes, payload: bytes) -> None:
        acked = read_ack_subject(subject.decode(errors="replace"))
        if acked is None:
            return
        hosted = self.known(ConsumerKey(acked.stream, acked.consumer))
        if hosted is None or not hosted.is_meant(acked.mark):
            return
        if not hosted.core.config.takes_acks:  # nats-server has no subscriber for them
            if reply and self.may_act:
                self.around.router.publish(reply, b"", block=no_responders(subject.decode()))
            return
        ack = read_ack(payload)
        if ack is not None:
            hosted.acknowledged(acked, ack, reply.decode(errors="replace"))
        elif reply and self.may_act:  # nonsense is answered, as nats-server does
            self.around.router.publish(reply, b"")

    def _flow_answered(self, subject: bytes, _: bytes, block: bytes, __: bytes) -> None:
        text = subject.decode(errors="replace")
        tokens = text.split(".")
        hosted = self.known(ConsumerKey(*tokens[3:5])) if len(tokens) == 6 else None
        if hosted is not None:
            hosted.flow_answered(text, read_flow_answer(block))

    async def _bind(self) -> None:
        """Push consumers deliver while their subject has subscribers."""
        router = self.around.router
        while True:
            changed = asyncio.Event()
            router.tell_change(changed.set)
            began_s = time.monotonic()
            for hosted in tuple(self._push.values()):
                try:
                    hosted.look()
                except Exception:
                    failed = FAULT.logged_as("a push consumer failed")
                    logger.exception(failed, extra=hosted.key._asdict())
            took_s = time.monotonic() - began_s
            await changed.wait()
            await asyncio.sleep(min(max(BIND_S_MIN, BIND_SHARE * took_s), BIND_S_MAX))

    def is_behind(self, core: Consumer) -> bool:
        """Those that read are: what is delivered would wait in memory."""
        subjects = (core.config.deliver_subject,) if core.config.is_push else core.inboxes(1)
        unwritten = self.around.router.unwritten_bytes
        return any(unwritten(it.encode()) > BLOCK_BYTES for it in subjects)

    def unblock_later(self, hosted: HostedConsumer) -> None:
        if not hosted.is_unblocking:
            hosted.is_unblocking = True
            self.run_task(partial(self._unblock, hosted))

    async def _unblock(self, hosted: HostedConsumer) -> None:
        core, unwritten = hosted.core, self.around.router.unwritten_bytes
        try:
            while not hosted.closed:
                push = core.config.deliver_subject
                subjects = (push,) if core.config.is_push else core.inboxes(1)
                if all(unwritten(it.encode()) <= UNBLOCK_BYTES for it in subjects):
                    break
                await asyncio.sleep(UNBLOCK_S)
        finally:
            hosted.is_unblocking = False
        if not hosted.closed:
            core.block(False, clock_ms())
            hosted.settle()

    # The API's verbs

    def find(self, key: ConsumerKey) -> HostedConsumer:
        """Raises ApiRefused; NotLeader once it is closed, and while those of the stream are restored."""
        if self.closed:
            raise NotLeader(f"consumers of {key.stream} are coordinated by another node now")
        found = self.known(key)
        if found is None and not (self.is_open or self._serves_early(key.stream)):
            raise NotLeader(f"consumers of {key.stream} are not restored yet")
        if found is None or found.closed:
            raise ApiRefused(CONSUMER_NOT_FOUND)
        return found

    def count_of(self, stream: str) -> int:
        return self._counts[stream]

    def names_of(self, stream: str) -> list[str]:
        """Of a stream's consumers, sorted; to be read at once."""
        names = self._names.get(stream)
        if names is None:
            names = sorted(key.consumer for key in self.consumers if key.stream == stream)
            if names:
                self._names[stream] = names
        return names

    def beyond(self, stream: str, limits: ConsumerLimits) -> list[str]:
        """Consumers of the stream that do not keep these limits."""
        return [
            it.key.consumer
            for it in self._by_stream.get(stream, {}).values()
            if beyond(
                limits, (set_to := it.core.config).max_ack_pending, set_to.inactive_threshold_ms
            )
        ]

    async def create(
        self, stream: StreamImage, request: CreateRequest, new_name: str
    ) -> HostedConsumer:
        """``new_name``: of a consumer that its client gives none. Raises ApiRefused, StreamlogError."""
        key = ConsumerKey(stream.name, request.config.name or new_name)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if stream.config.retention != "workqueue":
                hosted = await self._made(stream, key, request)
            else:  # of two that would overlap, only one is made
                async with self._locks.setdefault(ConsumerKey(stream.name, ""), asyncio.Lock()):
                    hosted = await self._made(stream, key, request)
            if self.reports.concerns(stream.name):
                await self.reports.told(stream.name)  # from now on it holds messages
            return hosted

    def snapshot(self, stream: str, names: Iterable[str]) -> list[dict[str, Any]]:
        """All that is known of these consumers of the stream, but of those of mirrors and sources nothing."""
        now_ms, found = clock_ms(), list[dict[str, Any]]()
        known = self._by_stream.get(stream, {})
        for hosted in filter(None, (known.get(ConsumerKey(stream, name)) for name in names)):
            if hosted.closed or hosted.core.config.direct:
                continue
            key, kept, delivery = hosted.key, hosted.kept, hosted.core.delivery
            _, record = consumer_record(key, kept)
            _, given_up = given_up_record(key, kept.created_ms, hosted.core.given_up)
            found.append({
                "name": key.consumer,
                "config": hosted.core.config.json(),
                "created_ms": kept.created_ms,
                "record": (record or b"").decode(),
                "given_up": (given_up or b"").decode(),
                "state": base64.b64encode(delivery.encode(now_ms)).decode(),
            })  # fmt: skip
        return found

    async def restore(
        self, stream: StreamImage, config: ConsumerConfig, fields: Mapping[str, Any]
    ) -> None:
        """Make a consumer that goes on where it was when ``snapshot`` has told ``fields`` of it, or a part of them:
        its ``state`` at least. Raises ApiRefused, CorruptData, StreamlogError.
        """
        key = ConsumerKey(stream.name, config.name)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self.consumers:
                return  # it has been done
            if len(self.consumers) >= self.around.settings.consumers_per_partition_max:
                raise ApiRefused(TOO_MANY)
            if not fields.get("state"):
                await self._begun(stream, key, config)
                return
            told = KeptConsumers()
            if fields.get("record"):
                told.take(consumer_record(key, None)[0], fields["record"].encode())
            if key in told:
                kept = told.consumer(key)._replace(config=config, stream_id=stream.stream_id)
            else:
                created_ms = int(fields["created_ms"])
                kept = KeptConsumer(config, stream.stream_id, created_ms, config.pause_until_ms)
            told.put(key, kept)
            if fields.get("given_up"):
                told.take(given_up_record(key, 0, None)[0], fields["given_up"].encode())
            state = base64.b64decode(fields["state"])
            DeliveryState.decode(state, PENDING_CEILING)
            state_kept = state_record(key, kept.created_ms, state)
            told.take(*state_kept)
            if config.is_kept:
                records = [consumer_record(key, kept), state_kept]
                if given_up := told.given_up_of(key):
                    records.append(given_up_record(key, kept.created_ms, given_up))
                await self._append(records)
            if self.closed:
                raise NotLeader(f"consumers of {key.stream} are coordinated by another node now")
            self._restore(key, told, len(stream.partitions))
            self._listen_to(key.stream)
            self._advise_action(key, "create")

    async def _made(
        self, stream: StreamImage, key: ConsumerKey, request: CreateRequest
    ) -> HostedConsumer:
        """By its own lock, and that of a work queue."""
        found = self.consumers.get(key)
        if found is not None and found.kept.stream_id != stream.stream_id:
            found.close("Consumer Deleted")  # ``apply`` is about to come
            self._drop(key)
            found = None
        if found is None or found.closed:
            config = decided(None, request)
            if stream.config.retention == "workqueue":
                check_queue(config, self._others(key))
            return await self._create(stream, key, config)
        before = found.core.config
        config = decided(before, request, is_bound=found.core.is_bound)
        if config != before:
            if stream.config.retention == "workqueue" and config.filters != before.filters:
                check_queue(config, self._others(key), is_new=False)
                await self._change_filters(found, config)
            else:
                await self._update(found, config)
        if config.sourcing:  # its stream begins again
            await self._reset(found, 0)
        return found

    def _others(self, key: ConsumerKey) -> list[ConsumerConfig]:
        known = self._by_stream.get(key.stream, {}).values()
        return [it.core.config for it in known if it.key != key]

    async def _create(
        self, stream: StreamImage, key: ConsumerKey, config: ConsumerConfig
    ) -> HostedConsumer:
        if len(self.consumers) >= self.around.settings.consumers_per_partition_max:
            raise ApiRefused(TOO_MANY)
        if config.is_of_stream:
            return await self._begun(stream, key, config)
        limit = stream.config.max_consumers
        if 0 < limit <= self._limited_count(key.stream) + self._coming[key.stream]:
            raise ApiRefused(TOO_MANY)
        self._coming[key.stream] += 1
        try:
            return await self._begun(stream, key, config)
        finally:
            self._coming[key.stream] -= 1
            if not self._coming[key.stream]:
                del self._coming[key.stream]

    def _limited_count(self, stream: str) -> int:
        """Consumers of mirrors and sources do not count."""
        known = self._by_stream.get(stream, {}).values()
        return sum(not it.core.config.is_of_stream for it in known)

    async def _begun(
        self, stream: StreamImage, key: ConsumerKey, config: ConsumerConfig
    ) -> HostedConsumer:
        starts, picked, resume_at = {}, {}, {}
        epochs = dict[int, Sequence[EpochStart]]()
        value = max(0, config.opt_start_seq - 1)
        if config.deliver_policy == "by_start_time":
            value = config.opt_start_time_ms or 0
        for number in range(len(stream.partitions)):
            query = StartQuery(config.deliver_policy, config.filters, value)
            tp = TopicPartition(stream.name, number)
            start = await self.around.source.start(tp, stream.stream_id, query)
            starts[number] = start.offset
            epochs[number] = start.epochs
            if start.picked is not None:
                resume_at[number] = start.offset
                if start.picked:
                    picked[number] = start.picked
                    starts[number] = start.picked[0]
        kept = KeptConsumer(config, stream.stream_id, wall_ms(), config.pause_until_ms, resume_at)
        delivery = Delivery(
            limits_of(config), starts=starts, needs_acks=config.ack_policy != "none"
        )
        hosted = self._host(key, kept, delivery, len(stream.partitions), picked=picked)
        for number, entries in epochs.items():
            hosted.core.note_epochs(number, entries)
        if hosted.is_kept:
            await self._append([consumer_record(key, kept), *_state_records(hosted)])
        if self.reports.concerns(key.stream):
            hosted.kept_interests = hosted.interests()
        if self.closed:
            raise NotLeader(f"consumers of {key.stream} are coordinated by another node now")
        known = self.around.image().streams.get(key.stream)
        if known is None or known.stream_id != stream.stream_id:  # ``apply`` has not seen it
            if hosted.is_kept:
                await self._append(_tombstones(key))
            raise StreamNotFound(f"stream {key.stream!r} not found")
        if len(known.partitions) > hosted.partitions:
            hosted.partitions = len(known.partitions)
            self._pause(hosted)
        self._add(hosted)
        self._listen_to(key.stream)
        self._advise_action(key, "create")
        hosted.look()
        hosted.settle()
        return hosted

    async def _change_filters(self, hosted: HostedConsumer, config: ConsumerConfig) -> None:
        """Of a work queue. What it has done with under its old filters must be gone first: what it has not done with
        looks the same under the new ones. Meanwhile it delivers nothing.
        """
        hosted.core.pause(_LATER_MS, clock_ms())
        try:
            await self._finish(hosted)
            interests = hosted.interests()
            begins = {number: it.next_offset for number, it in interests.items()}
            carried = {number: it.open for number, it in interests.items() if it.open}
            await self._update(hosted, config, begins=begins, carried=carried)
        finally:
            self._pause(hosted)
            hosted.settle()

    async def _finish(self, hosted: HostedConsumer) -> None:
        """Return once all is gone for good that it has done with. Raises StreamlogError."""
        if hosted.is_kept:
            interests = hosted.interests()
            await self._append_state(hosted)
            hosted.kept_interests = interests
        await self.reports.have_gone(hosted.key.stream)

    async def _update(
        self,
        hosted: HostedConsumer,
        config: ConsumerConfig,
        *,
        begins: Mapping[int, int] | None = None,
        carried: Mapping[int, OffsetSet] | None = None,
    ) -> None:
        changes: dict[str, Any] = {"config": config}
        if begins is not None and carried is not None:
            changes |= {"begins": begins, "carried": carried}
        before = hosted.kept
        await self._replace_kept(hosted, changes)
        kept = hosted.kept
        if self.consumers.get(hosted.key) is hosted:
            self.durable_count += config.is_durable - before.config.is_durable
        hosted.core.reconfigure(config, clock_ms())
        if hosted.kept_interests is not None:  # its state is what it was
            hosted.kept_interests = {
                number: it._replace(
                    filters=config.filters,
                    begin=kept.begins.get(number, 0),
                    carried=kept.carried.get(number, _NONE),
                )
                for number, it in hosted.kept_interests.items()
            }
        hosted.look_again()
        hosted.settle()

    async def _replace_kept(self, hosted: HostedConsumer, changes: Mapping[str, Any]) -> None:
        """Raises StreamlogError."""
        before = hosted.kept
        after = before._replace(**changes)
        was_kept, is_kept = before.config.is_kept, after.config.is_kept
        interests = hosted.interests() if is_kept and not was_kept else None
        records = list[Record]()
        if interests is not None:  # from now on it outlives its coordinator
            records += [*_state_records(hosted), *_given_up_records(hosted)]
        if is_kept:
            records.append(consumer_record(hosted.key, after))
        elif was_kept:
            records = _tombstones(hosted.key)
        try:
            if records:
                await self._append(records)
        except StreamlogError:
            _note_failure(hosted)
            raise
        if interests is not None:
            hosted.kept_interests = interests
        is_other = hosted.kept is not before  # it went back meanwhile
        hosted.kept = hosted.kept._replace(**changes)
        if is_other:
            self.keep(hosted)

    def keep(self, hosted: HostedConsumer) -> None:
        """``kept`` is another one. A state that follows from that is not written without it: a coordinator that finds
        the one alone does not find out that the other is of before.
        """
        hosted.is_record_due = True
        self.changed(hosted)

    async def pause(self, key: ConsumerKey, until_ms: int | None) -> HostedConsumer:
        """``until_ms``: by the wall clock; None: go on. Raises ApiRefused, StreamlogError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            hosted = self.find(key)
            await self._keep_pause(hosted, until_ms)
            return hosted

    async def _keep_pause(self, hosted: HostedConsumer, until_ms: int | None) -> None:
        if until_ms is not None and until_ms <= wall_ms():
            until_ms = None
        await self._replace_kept(hosted, {"paused_until_ms": until_ms})
        self._pause(hosted)
        hosted.settle()
        fields: dict[str, Any] = {"paused": until_ms is not None}
        if until_ms is not None:
            fields["pause_until"] = rfc3339(until_ms)
        self._advise_of(hosted.key, "PAUSE", "consumer_pause", fields)

    def unpin(self, key: ConsumerKey, group: str) -> None:
        """Raises ApiRefused."""
        hosted = self.find(key)
        if group not in hosted.core.config.priority_groups:
            raise ApiRefused(NO_SUCH_GROUP)
        hosted.unpin()

    async def reset(self, key: ConsumerKey, sequence: int) -> tuple[HostedConsumer, int]:
        """0: back to the acknowledgement floor. Returns the sequence, too. Raises ApiRefused, StreamlogError."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            hosted = self.find(key)
            return hosted, await self._reset(hosted, sequence)

    async def _reset(self, hosted: HostedConsumer, sequence: int) -> int:
        """By its own lock. Returns the sequence. Raises ApiRefused, StreamlogError."""
        stream = hosted.key.stream
        offsets = await hosted.reset_offsets(sequence)
        epochs = await hosted.reset_epochs(offsets)
        hosted.core.pause(_LATER_MS, clock_ms())
        try:
            if self.reports.is_queue(stream):
                await self._finish(hosted)
                # What it skips it has not done with: as with other filters, they hold from there on. That and its state
                # are one: a report, or a coordinator that finds the records, must not see where it begins now with what
                # it had come to before, which would say that it has done with what is in between.
                hosted.kept = hosted.kept._replace(begins=offsets, carried={})
                hosted.is_record_due = True
            hosted.reset(offsets, epochs)
            if hosted.is_kept:
                interests = hosted.interests()
                await self._append_state(hosted)
                hosted.kept_interests = interests
            if self.reports.concerns(stream):
                await self.reports.told(stream)  # it holds again what it goes back to
        finally:
            self._pause(hosted)
            hosted.settle()
        return max(1, sequence or min(offsets.values()) + 1)

    async def delete(self, key: ConsumerKey) -> None:
        """Raises ApiRefused, StreamlogError."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            await self._remove(self.find(key))

    def abandon(self, hosted: HostedConsumer) -> None:
        """It was not used for long."""
        self.run_task(partial(self._abandon, hosted))

    def apply(self, streams: Mapping[str, StreamImage]) -> None:
        """Streams have changed: their consumers go with them, or read further partitions."""
        for key, hosted in tuple(self.consumers.items()):
            stream = streams.get(key.stream)
            if stream is not None and stream.stream_id == hosted.kept.stream_id:
                if hosted.awaits_stream and not stream.config.is_restoring:
                    self._pause(hosted, stream)
                    hosted.settle()
                if len(stream.partitions) > hosted.partitions:
                    hosted.grow(len(stream.partitions))
                    self._pause(hosted, stream)
            else:
                hosted.close("Consumer Deleted")
                self._drop(key)
                if hosted.is_kept:
                    self.run_task(partial(self._forget, key))

    def look_at_streams(self) -> None:
        """Streams are new that consumers empty, or are led by other nodes."""
        if not self.is_open:
            return
        new, past = self.reports.look(self.around.consumed(self.number))
        for key, hosted in self.consumers.items() if new or past else ():
            if key.stream in new:
                hosted.core.keeps_given_up = True
                if hosted.kept_interests is None:
                    self.changed(hosted)  # what it has come to is known once its state is written
            elif key.stream in past:
                hosted.core.keeps_given_up = False
                hosted.kept_interests = None
                hosted.core.given_up.clear()

    def interests_of(self, stream: StreamImage, number: int) -> dict[str, Interest]:
        """Of a partition, by consumer."""
        return {
            key_of(it.key.consumer, it.kept.created_ms): it.interest(number)
            for it in self._by_stream.get(stream.name, {}).values()
            if it.kept.stream_id == stream.stream_id
        }

    async def _abandon(self, hosted: HostedConsumer) -> None:
        async with self._locks.setdefault(hosted.key, asyncio.Lock()):
            if self.consumers.get(hosted.key) is not hosted:
                return
            try:
                if hosted.core.is_abandoned(clock_ms()):
                    await self._remove(hosted)
                    return
            except StreamlogError as error:
                self._complain(error)
                await asyncio.sleep(RETRY_S)
        hosted.settle()

    async def _remove(self, hosted: HostedConsumer) -> None:
        hosted.is_leaving = True
        try:
            if self.reports.is_queue(hosted.key.stream):
                await self._finish(hosted)  # another one would have it again
            if hosted.is_kept:
                await self._append(_tombstones(hosted.key))
        except StreamlogError:
            hosted.is_leaving = False
            self.changed(hosted)
            raise
        hosted.close("Consumer Deleted")
        if self.consumers.get(hosted.key) is hosted:
            self._drop(hosted.key)
        self.reports.changed(hosted.key.stream)
        self._advise_action(hosted.key, "delete")

    async def _forget(self, key: ConsumerKey) -> None:
        """Unless another consumer has its name by now."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                if key not in self.consumers:
                    await self._append(_tombstones(key))
            except StreamlogError as error:
                self._complain(error)

    # Feeds

    def feed(self, hosted: HostedConsumer, number: int) -> StreamFeed:
        place = hosted.kept.stream_id, number
        found = self._feeds.get(place)
        if found is None:
            tp = TopicPartition(hosted.key.stream, number)
            found = StreamFeed(
                tp, place[0], self.around.source, self.run_task, partial(self._feed_ended, place)
            )
            self._feeds[place] = found
        return found

    def _feed_ended(self, place: tuple[UUID, int], feed: StreamFeed) -> None:
        """Its stream may be gone, and never ask for it again."""
        if self._feeds.get(place) is feed:
            del self._feeds[place]

    def forget_waiting(self, hosted: HostedConsumer) -> None:
        for number in range(hosted.partitions):
            feed = self._feeds.get((hosted.kept.stream_id, number))
            if feed is not None:
                feed.forget(hosted)
                if feed.is_idle:
                    del self._feeds[hosted.kept.stream_id, number]

    # What is kept

    def changed(self, hosted: HostedConsumer) -> None:
        """Its state is to be written soon."""
        if hosted.is_kept:
            self._changed[hosted] = None
            self._flush_in(FLUSH_S)
        else:
            self.reports.changed(hosted.key.stream)

    def confirm(self, hosted: HostedConsumer, reply: str) -> None:
        """Answer an acknowledgement once its state is kept, or at once where nodes are set so."""
        if hosted.is_kept and self.around.settings.confirm_acks == "applied":
            self.around.router.publish(reply.encode(), b"")
            self.changed(hosted)
        elif hosted.is_kept:
            hosted.confirms.append(reply)
            self._changed[hosted] = None
            self._flush_in(0)
        else:
            self._answer(hosted.key.stream, [reply])

    def _answer(self, stream: str, replies: list[str]) -> None:
        """Acknowledgements are confirmed; what they let go of is, if it can be, no longer in the stream."""

        def answer() -> None:
            for reply in replies:
                self.around.router.publish(reply.encode(), b"")

        async def removed() -> None:
            try:
                async with asyncio.timeout(CONFIRM_S):
                    await self.reports.told(stream)
            except (StreamlogError, TimeoutError):
                self.reports.changed(stream)
            answer()

        if not self.reports.concerns(stream) or self.run_task(removed) is None:
            answer()

    def _flush_in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if delay_s == 0 and isinstance(self._flush, asyncio.TimerHandle):
            self._flush.cancel()
            self._flush = None
        if self._flush is None:
            later = (
                loop.call_later(delay_s, self._write) if delay_s else loop.call_soon(self._write)
            )
            self._flush = later

    def _write(self) -> None:
        """The states that have changed, in one batch or a few."""
        self._flush = None
        if not self.leads:
            return
        changed, self._changed = self._changed, {}
        written, records, size_bytes = list[HostedConsumer](), list[Record](), 0
        for hosted in changed:
            if hosted.is_leaving or self.consumers.get(hosted.key) is not hosted:
                continue
            states = _state_records(hosted)
            written.append(hosted)
            records += states
            if self.reports.concerns(hosted.key.stream):
                records += _given_up_records(hosted)
            size_bytes += sum(len(value or b"") for _, value in states)
            if size_bytes >= FLUSH_BYTES:
                self._append_states(written, records)
                written, records, size_bytes = [], [], 0
        if records:
            self._append_states(written, records)

    def _append_states(self, written: list[HostedConsumer], records: list[Record]) -> None:
        confirms = [(hosted, hosted.confirms) for hosted in written if hosted.confirms]
        for hosted, _ in confirms:
            hosted.confirms = []
        concerned = list[tuple[HostedConsumer, KeptConsumer, dict[int, Interest]]]()
        for it in written:
            if self.reports.concerns(it.key.stream):
                concerned.append((it, it.kept, it.interests()))
            else:
                it.kept_interests = None

        def committed() -> None:
            self._is_well = True
            for hosted, kept, interests in concerned:
                if hosted.kept is kept:
                    hosted.kept_interests = interests
                    self.reports.changed(hosted.key.stream)
                else:  # its filters are others by now
                    self.changed(hosted)
            for hosted, replies in confirms:
                self._answer(hosted.key.stream, replies)

        def failed(error: StreamlogError) -> None:
            self._complain(error)
            for it in written:
                _note_failure(it)
            if self.leads:
                for hosted, replies in confirms:
                    hosted.confirms = [*replies, *hosted.confirms][:CONFIRMS_MAX]
                self._changed |= dict.fromkeys(it for it in written if not it.closed)
                self._flush_in(RETRY_S)

        self._append_run(records, committed, failed)

    async def _append_state(self, hosted: HostedConsumer) -> None:
        """As ``_append``."""
        records = _state_records(hosted)
        if self.reports.concerns(hosted.key.stream):
            records += _given_up_records(hosted)
        try:
            await self._append(records)
        except StreamlogError:
            _note_failure(hosted)
            raise

    async def _append(self, records: list[Record]) -> None:
        """Return once they are committed. Raises StreamlogError."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def committed() -> None:
            if not ended.done():
                ended.set_result(None)

        def failed(error: StreamlogError) -> None:
            if not ended.done():
                ended.set_exception(error)

        self._append_run(records, committed, failed)
        await ended

    def _append_run(
        self,
        records: list[Record],
        committed: Callable[[], None],
        failed: Callable[[StreamlogError], None],
    ) -> None:
        run = RecordRun()
        for key, value in records:
            run.append(key, value)
        acknowledgement = _Acknowledgement(committed, failed)
        try:
            if not self.leads:
                raise NotLeader(f"{self.partition.tp} is led by another node now")
            self.partition.check_min_isr()
            self.partition.append(run, acknowledgement, leader_epoch=self.leader_epoch)
        except StreamlogError as error:
            failed(error)
        else:
            acknowledgement.appended()

    def _complain(self, error: StreamlogError) -> None:
        if self._is_well and self.leads:
            self._is_well = False
            logger.warning(STATE_NOT_KEPT, extra={"partition": self.number, "error": str(error)})

    async def _read(self) -> None:
        """What the coordinators before have left."""
        partition = self.partition
        await until(partition, lambda: not self.leads or partition.high_watermark_known)
        kept = KeptConsumers()
        kept.next_offset, end = partition.log_start_offset, partition.high_watermark

        def feed(part: FileSlice) -> None:
            kept.feed(part.read())

        while kept.next_offset < end and self.leads:
            before = kept.next_offset
            try:
                with await partition.read(before, LOAD_BYTES) as part:
                    await asyncio.to_thread(feed, part)
            except OffsetOutOfRange:
                kept.next_offset = max(before, partition.log_start_offset)
                continue
            if kept.next_offset == before:
                break
        self._resting = kept

    async def _restore_all(self) -> None:
        """Those that rest, some at a time: the node goes on meanwhile."""
        keys = self._resting.in_order()
        for number, key in enumerate(keys, 1):
            if number % AT_ONCE == 0:
                await _others_turn()
                if not self.leads:
                    return
            if key in self._resting:  # it was not used meanwhile
                hosted = self._wake(key)
                if hosted is not None and self._serves_early(key.stream):
                    hosted.look()  # it delivers unasked, if it has subscribers
        if keys:
            extra = {"partition": self.number, "consumers": len(self.consumers)}
            logger.info("consumers loaded", extra=extra)

    def _restore(self, key: ConsumerKey, found: KeptConsumers, partitions: int) -> HostedConsumer:
        kept, state = found.consumer(key), found.state_of(key)
        config = kept.config
        needs_acks = config.ack_policy != "none"
        limits = limits_of(config)
        if state is None:
            delivery = Delivery(
                limits, starts=dict.fromkeys(range(partitions), 0), needs_acks=needs_acks
            )
        else:
            delivery = Delivery.decode(state, limits, clock_ms(), needs_acks=needs_acks)
        unpicked = [
            number
            for number, resume in kept.resume_at.items()
            if delivery.next_offset(number) < resume
        ]
        hosted = self._host(key, kept, delivery, partitions, unpicked=unpicked)
        given_up = hosted.core.given_up = found.given_up_of(key)
        hosted.kept_given_up = {number: it.copy() for number, it in given_up.items()}
        for number, entries in found.epochs_of(key).items():
            hosted.core.note_epochs(number, entries)
        hosted.kept_epochs = _epochs_of(hosted)
        hosted.kept_interests = hosted.interests()
        if config.acks_by_flow:
            hosted.core.begin_again()
        self._add(hosted)
        return hosted

    def _host(
        self,
        key: ConsumerKey,
        kept: KeptConsumer,
        delivery: Delivery,
        partitions: int,
        *,
        picked: Mapping[int, list[int]] | None = None,
        unpicked: Iterable[int] = (),
    ) -> HostedConsumer:
        flow_subject = f"$JS.FC.p{self.number}.{key.stream}.{key.consumer}"
        core = Consumer(
            kept.config,
            delivery,
            now_ms=clock_ms(),
            rng=_RNG,
            flow_subject=flow_subject,
            reply_prefix=reply_prefix_of(key),
        )
        hosted = HostedConsumer(
            self, key, kept, core, picked=picked or {}, unpicked=unpicked, partitions=partitions
        )
        core.keeps_given_up = self.reports.concerns(key.stream)
        self._pause(hosted)
        return hosted

    def _pause(self, hosted: HostedConsumer, stream: StreamImage | None = None) -> None:
        """As it is set to; while its stream is restored, until that is whole (``apply``); where answers to flow control
        would name sequences of one of several partitions, for ever.
        """
        until_ms, now_ms = hosted.kept.paused_until_ms, clock_ms()
        stream = stream or self.around.image().streams.get(hosted.key.stream)
        hosted.awaits_stream = stream is not None and stream.config.is_restoring
        is_ambiguous = hosted.core.config.acks_by_flow and hosted.partitions > 1
        if is_ambiguous:
            extra = {**hosted.key._asdict(), "error": FLOW_NEEDS_ONE_PARTITION}
            logger.warning(CONSUMER_WAITS, extra=extra)
        if hosted.awaits_stream or is_ambiguous:
            until_ms = _LATER_MS
        elif until_ms is not None:
            until_ms = now_ms + until_ms - wall_ms()
        elif not hosted.core.is_paused:
            return
        hosted.core.pause(until_ms, now_ms)

    # Advisories

    def advise(self, key: ConsumerKey, it: Advise) -> None:
        if it.kind == "ACK":
            self.around.measure(
                f"CONSUMER.ACK.{key.stream}.{key.consumer}", "consumer_ack", _told(key, it.fields)
            )
        else:
            self._advise_of(key, it.kind, _KINDS[it.kind], it.fields)

    def _advise_action(self, key: ConsumerKey, action: str) -> None:
        word = {"create": "CREATED", "delete": "DELETED"}[action]
        self._advise_of(key, word, "consumer_action", {"action": action})

    def _advise_of(self, key: ConsumerKey, word: str, kind: str, fields: Mapping[str, Any]) -> None:
        subject = f"CONSUMER.{word}.{key.stream}.{key.consumer}"
        self.around.advise(subject, kind, _told(key, fields))


def _told(key: ConsumerKey, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"stream": key.stream, "consumer": key.consumer, **fields}


async def _others_turn() -> None:
    await asyncio.sleep(0)


async def _guarded(work: Work) -> None:
    """An error that no code expects ends one task, and not the coordinator."""
    try:
        await work()
    except Exception:
        logger.exception(FAULT.logged_as("a coordinator of consumers failed"))


class _Closed(Exception):
    """Ends the tasks of a coordinator."""


class _Acknowledgement:
    """An ``Acknowledgement`` of one write. The partition tells it in the middle of its own work: what follows from it
    comes later; where a write is committed at once, as soon as the append is over."""

    __slots__ = ("_committed", "_failed", "_is_appending", "_is_committed")

    def __init__(
        self, committed: Callable[[], None], failed: Callable[[StreamlogError], None]
    ) -> None:
        self._committed = committed
        self._failed = failed
        self._is_appending, self._is_committed = True, False

    def appended(self) -> None:
        """What it is the acknowledgement of has been appended."""
        self._is_appending = False
        if self._is_committed:
            self._committed()

    def committed(self, base_offset: int) -> None:
        if self._is_appending:
            self._is_committed = True
        else:
            asyncio.get_running_loop().call_soon(self._committed)

    def failed(self, error: StreamlogError) -> None:
        asyncio.get_running_loop().call_soon(self._failed, error)


def _not_reset(why: str) -> ApiRefused:
    return ApiRefused(ApiError(400, 10204, f"invalid reset: {why}"))


def reply_prefix_of(key: ConsumerKey) -> str:
    return f"$JS.ACK.{key.stream}.{key.consumer}."


def _tombstones(key: ConsumerKey) -> list[Record]:
    return [
        consumer_record(key, None),
        state_record(key, 0, None),
        given_up_record(key, 0, None),
        epochs_record(key, 0, None),
    ]


def _state_records(hosted: HostedConsumer) -> list[Record]:
    """Its state, and what changes seldom where it is another one than the records say."""
    key, kept = hosted.key, hosted.kept
    records = [state_record(key, kept.created_ms, hosted.core.delivery.encode(clock_ms()))]
    if hosted.is_record_due:
        hosted.is_record_due = False
        records.append(consumer_record(key, kept))
    epochs = _epochs_of(hosted)
    if epochs != hosted.kept_epochs:
        hosted.kept_epochs = epochs
        records.append(epochs_record(key, kept.created_ms, epochs))
    return records


def _note_failure(hosted: HostedConsumer) -> None:
    """What was appended of it may not be kept: the next write has all of it."""
    hosted.kept_given_up, hosted.kept_epochs = {}, {}
    hosted.is_record_due = True


def _epochs_of(hosted: HostedConsumer) -> dict[int, tuple[EpochStart, ...]]:
    return {number: it.entries for number, it in sorted(hosted.core.epochs.items())}


def _given_up_records(hosted: HostedConsumer) -> list[Record]:
    """None where the record says so already."""
    given_up = hosted.core.given_up
    if given_up == hosted.kept_given_up:
        return []
    hosted.kept_given_up = {number: it.copy() for number, it in given_up.items()}
    return [given_up_record(hosted.key, hosted.kept.created_ms, given_up or None)]


def _failed(error: Exception) -> None:
    logger.error(FAULT.logged_as("an acknowledgement was not taken"), exc_info=error)
