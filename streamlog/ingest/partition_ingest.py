"""One led partition's way in: from what a read gathered to one append, and to the answers."""

import asyncio
import heapq
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

from streamlog.condition import FAULT
from streamlog.errors import BrokenInvariant, StreamlogError
from streamlog.ingest.admission import message_ttl
from streamlog.ingest.admission.batches.batch_staging import (
    BatchStaging,
    BatchStagingLimit,
    Extended,
    RunBatch,
    extended,
)
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.batches.fast_batching import FastBatching, Judged
from streamlog.ingest.admission.batches.partial_refusal import sift, with_whole_batches
from streamlog.ingest.admission.counters import SOURCES_HEADER, CountedMessage, CounterTotals
from streamlog.ingest.admission.deduplicator import Admission, Deduplicator
from streamlog.ingest.admission.discard_new import TOO_MANY, DiscardNew
from streamlog.ingest.admission.log_records import record_now
from streamlog.ingest.admission.publish_checks import PublishChecks
from streamlog.ingest.admission.publish_headers import AckPolicy, Headers, publish_headers
from streamlog.ingest.admission.refusal import (
    CONFLICTS,
    INTERNAL,
    NO_KEY,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OVERLOADED,
    TOO_LARGE,
    PublishRefusal,
    refusal_of,
)
from streamlog.ingest.admission.rollups import (
    NOT_KNOWN,
    NOT_REMOVED,
    OWED,
    Place,
    Rollups,
)
from streamlog.ingest.admission.subject_sequences import EVERYTHING, SubjectSequences
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.liftbridge.envelope import ALL, LEADER, NONE
from streamlog.ingest.liftbridge.envelope_codec import AckAddresses
from streamlog.ingest.liftbridge.translate import (
    EnvelopeTranslator,
    TranslatedEnvelope,
    pattern_of,
)
from streamlog.ingest.nats.subscription_list import SubjectFilter
from streamlog.ingest.pub_ack_format import (
    Replies,
    ack_head,
    ack_json,
    counter_ack_json,
    iter_replies,
    pack_reply,
    select_replies,
)
from streamlog.ingest.pub_acks import NS_PER_MS, PubAcks
from streamlog.ingest.schedules import scheduling_rules
from streamlog.ingest.schedules.scheduled_message import ScheduledMessage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.read_barrier import ReadBarrier
from streamlog.metrics import NodeMetrics
from streamlog.partition.partition import Partition
from streamlog.partition.state import UNAWAITED
from streamlog.record.codec import RecordRun
from streamlog.record.published import asked

logger = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 64
"""What a waiting record costs beside its bytes; so that empty messages do not wait for free."""

DELAYED_OVERHEAD_BYTES = 64
"""What a delayed ack costs beside its reply subject and answer."""

ACKS: Final = {LEADER: AckPolicy.APPENDED, ALL: AckPolicy.COMMITTED, NONE: AckPolicy.NEVER}
"""By the policy of an envelope."""
POLICIES: Final = {ack: policy for policy, ack in ACKS.items()}

NO_REPLIES: Final = Replies()
NOWHERE = sys.maxsize
"""The offset of what was not stored."""


class PendingAcks:
    """One append's publishers, until it is committed or has failed. An ``Acknowledgement``."""

    __slots__ = ("_ingest", "base_offset", "count", "replies", "size_bytes")

    def __init__(
        self,
        ingest: "PartitionIngest",
        base_offset: int,
        count: int,
        replies: Replies,
        size_bytes: int,
    ) -> None:
        self._ingest = ingest
        self.base_offset = base_offset
        self.count = count
        self.replies = replies
        """Those that the commit answers."""
        self.size_bytes = size_bytes

    def committed(self, base_offset: int) -> None:
        ingest = self._ingest
        if not ingest._pending:  # its publishers were refused: see ``give_up``
            return
        if ingest._pending.popleft() is not self:
            raise BrokenInvariant("appends end in order")
        ingest._room.give_back(self.size_bytes)
        ingest._answers.acknowledge(ingest._ack_head, self.replies, base_offset)

    def failed(self, error: StreamlogError) -> None:
        ingest = self._ingest
        if not ingest._pending:
            return
        if ingest._pending.popleft() is not self:
            raise BrokenInvariant("appends end in order")
        ingest._room.give_back(self.size_bytes)
        ingest._abort(self.base_offset)
        refusal = refusal_of(error)
        ingest._answers.refuse(ingest._stream, self.replies, self.count, refusal)
        ingest._awaited.refuse(self.base_offset, refusal)
        ingest.fast.fail(self.base_offset, refusal)


class ConflictAnswers:
    """Refusals that tell of the log: another message is the last one. Of all partitions of a node.

    A leader that was replaced, and has not heard of it, gets messages beside its successor, and has an older log. It
    would refuse what the successor stores. So the node first learns what is decided by now (``ReadBarrier``). Where it
    still leads, it led when the message came, and no other node can have stored it. Otherwise its publisher is told
    that the leader has changed, which leaves open what becomes of the message. A controller that stood still takes
    itself for one until it notices, so the lease counts, too.
    """

    def __init__(
        self,
        answers: PubAcks,
        room: InFlightBytes,
        barrier: ReadBarrier | None,
        lease: Lease | None = None,
    ) -> None:
        """``barrier`` None: no other node can lead."""
        self._lease = lease
        self._answers = answers
        self._room = room
        self._barrier = barrier
        self._waiting: list[tuple[str, bytes, PublishRefusal, Callable[[], bool]]] = []
        """Bounded by the room."""
        self._any = asyncio.Event()

    def add(
        self, stream: str, reply: bytes, conflict: PublishRefusal, is_led: Callable[[], bool]
    ) -> None:
        """``is_led``: whether this node leads as it did when the message came, as far as it knows."""
        if self._barrier is None or self._barrier.is_current:
            self._tell(stream, reply, conflict, is_leader=is_led())
            return
        self._waiting.append((stream, reply, conflict, is_led))
        self._room.take(_delayed_bytes(reply, conflict))
        self._any.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        barrier = self._barrier
        while barrier is not None:
            await self._any.wait()
            self._any.clear()
            waiting, self._waiting = self._waiting, []
            is_newest = await barrier.catch_up()
            for stream, reply, conflict, is_led in waiting:
                self._room.give_back(_delayed_bytes(reply, conflict))
                self._tell(stream, reply, conflict, is_leader=is_newest and is_led())

    def _tell(
        self, stream: str, reply: bytes, conflict: PublishRefusal, *, is_leader: bool
    ) -> None:
        is_leader = is_leader and (self._lease is None or self._lease.held)
        self._answers.refuse_one(stream, reply, conflict if is_leader else NOT_LEADER)


class DelayedAcks:
    """Each is given when what it tells of is committed by this leader; else its publisher is
    refused.

    A high watermark alone tells nothing: under another leader the log may be cut, and other records
    have the same offsets. So each waits in one leader epoch, and what is not committed when that
    ends is refused; the next leader knows whether it has the record.

    Of a repeated message that is the first one of its id, which may be of a read just before, or
    what a former leader appended: only its retry then waits for it. Of a batch it is the last
    one. Of a message that expected another one to be the last, the answer is a refusal, and it tells
    of all that the message was judged by: its publisher could not read yet what it conflicts with,
    and would never find it if it is lost with this leader.

    Invariant: the partition is watched while anybody waits.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        leader_epoch: int,
        stream: str,
        answers: PubAcks,
        conflicts: ConflictAnswers,
        room: InFlightBytes,
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._stream = stream
        self._answers = answers
        self._conflicts = conflicts
        self._room = room
        self._waiting: list[tuple[int, int, bytes, bytes | PublishRefusal]] = []
        """(offset of the message, order, reply, answer): a heap."""
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: bytes, offset: int, answer: bytes | PublishRefusal) -> None:
        """Given at once if the message at ``offset`` is committed, else in time; so is what it has go."""
        if not self._is_led:
            self._answers.refuse_one(self._stream, reply, NOT_LEADER)
            return
        if offset < self._partition.removals_end:
            self._give(reply, offset, answer)
            return
        if not self._waiting:
            self._partition.add_watcher(self._moved)
        heapq.heappush(self._waiting, (offset, next(self._numbers), reply, answer))
        self._room.take(_delayed_bytes(reply, answer))

    def refuse(self, from_offset: int, refusal: PublishRefusal) -> None:
        """The messages at and above ``from_offset`` will not be committed by this leader."""
        refused = [each for each in self._waiting if each[0] >= from_offset]
        if not refused:
            return
        self._waiting = [each for each in self._waiting if each[0] < from_offset]
        heapq.heapify(self._waiting)
        for _, _, reply, answer in sorted(refused):
            self._room.give_back(_delayed_bytes(reply, answer))
            self._answers.refuse_one(self._stream, reply, refusal)
        self._watch_no_longer_than_needed()

    def _moved(self) -> None:
        """The partition has changed: perhaps its high watermark, perhaps its leader."""
        if not self._is_led:
            self.refuse(0, NOT_LEADER)
            return
        end = self._partition.removals_end
        while self._waiting and self._waiting[0][0] < end:
            offset, _, reply, answer = heapq.heappop(self._waiting)
            self._room.give_back(_delayed_bytes(reply, answer))
            self._give(reply, offset, answer)
        self._watch_no_longer_than_needed()

    def _give(self, reply: bytes, offset: int, answer: bytes | PublishRefusal) -> None:
        if isinstance(answer, PublishRefusal):
            self._conflicts.add(self._stream, reply, answer, lambda: self._is_led)
        else:
            self._answers.acknowledge_one(reply, answer, offset)

    @property
    def _is_led(self) -> bool:
        """Here, and in the epoch in which the answers were asked for."""
        return self._partition.leads(self._leader_epoch)

    def _watch_no_longer_than_needed(self) -> None:
        if not self._waiting:
            self._partition.remove_watcher(self._moved)


def _delayed_bytes(reply: bytes, answer: bytes | PublishRefusal) -> int:
    text = answer.description if isinstance(answer, PublishRefusal) else answer
    return len(reply) + len(text) + DELAYED_OVERHEAD_BYTES


def _with_sources(
    run: RecordRun, counted: CountedMessage
) -> tuple[RecordRun, bytes] | tuple[RecordRun, bytes, bytes]:
    return (run, *counted) if counted.sources else (run, counted.body)


class PartitionIngest:
    """For one partition in one leader epoch. Owned by the source; all is on its event loop.

    What a batch needs is in slots here and below: with thousands of partitions hardly anything of
    the next one is in the processor's caches, and each object more is a wait for memory.

    Invariant: ``_pending`` holds the appends that are neither committed nor failed, by offset; but
    for those that no publisher waits for, which were made while too few replicas were in sync.
    """

    __slots__ = (
        "_ack_head", "_answers", "_asked", "_awaited", "_barred", "_conflicts", "_grown", "_is_plain",
        "_lifetime_min_s", "_metrics",
        "_now_ms", "_opener", "_pending", "_repeats", "_rollups", "_room", "_stream", "_wishes", "answering",
        "batching", "bounds", "closed", "counters", "deduplicator", "default_ack", "fast", "inflow", "leader_epoch",
        "opened", "partition", "sequences", "sids", "sources", "subjects",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        *,
        leader_epoch: int = 0,
        deduplicator: Deduplicator,
        subjects: Sequence[str] = (),
        sources: Sequence[SubjectFilter] = (),
        settings: IngestSettings,
        answers: PubAcks,
        conflicts: ConflictAnswers,
        room: InFlightBytes,
        staging: BatchStagingLimit,
        fast_batches: FastBatchLimit,
        metrics: NodeMetrics,
        now_ms: Callable[[], int],
        grown: "dict[PartitionIngest, None]",
    ) -> None:
        """``grown``: those that something was appended to, this one among them then."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.deduplicator = deduplicator
        self.subjects = subjects
        """What its messages come by."""
        self.sources = sources
        """To be listened to, once it is open; empty where all partitions are heard together."""
        self.sids: tuple[int, ...] = ()
        """Its subscriptions; empty while it is not listening."""
        self.opened = False
        """The deduplicator knows the ids in the log: messages may come."""
        self.closed = False
        """Another leads, or in another epoch, or the stream is gone: nothing more is appended."""
        self.inflow = RecordCollector(
            message_bytes_max=settings.message_bytes_max, admit=self._admit, owner=self
        )
        self.inflow.open_envelope = self._open
        self.inflow.addresses = AckAddresses(partition.tp.stream, pattern_of=self._pattern_of)
        self.inflow.wish = self._wish
        self.sequences = SubjectSequences(partition, self.inflow.run)
        self.inflow.checks = PublishChecks(
            partition.tp.stream,
            deduplicator.window,
            look=self._look,
            last_on=self.sequences.last,
        )
        self._stream = partition.tp.stream
        self._ack_head = ack_head(self._stream)
        self._opener = EnvelopeTranslator(self._stream)
        self._answers = answers
        self._grown = grown
        self._room = room
        self._metrics = metrics
        self._now_ms = now_ms
        self._awaited = DelayedAcks(
            partition,
            leader_epoch=leader_epoch,
            stream=self._stream,
            answers=answers,
            conflicts=conflicts,
            room=room,
        )
        self._rollups = Rollups(partition, self.sequences.index)
        self.batching = BatchStaging(
            partition,
            stream=self._stream,
            inflow=self.inflow,
            deduplicator=deduplicator,
            staging=staging,
            answers=answers,
            last_on=self.sequences.last,
            too_much=self._too_much,
            rollups=self._rollups,
            make_room=self.take,
            await_conflict=self._note_conflict,
        )
        self.fast = FastBatching(
            partition,
            leader_epoch=leader_epoch,
            stream=self._stream,
            inflow=self.inflow,
            limit=fast_batches,
            answers=answers,
            metrics=metrics,
            now_ms=now_ms,
            judge=self._judged_in_batch,
        )
        self.counters: CounterTotals | None = None
        """Of a stream of counters."""
        self._pending: deque[PendingAcks] = deque()
        self._wishes: dict[int, AckPolicy] = {}
        """Positions in the current run whose message asked for another ack than the default."""
        self._repeats: list[tuple[bytes, int]] = []
        """Of the current read: the reply of a message that is there already, and where; answered
        once that is committed."""
        self._conflicts: list[tuple[bytes, PublishRefusal, int]] = []
        """Of the current read: the reply of a message that expected another one to be the last, why it is refused,
        and the last offset that it was judged by; answered once that is committed."""
        self._asked = False
        """A message may have asked for more than to be stored, since the last take or before."""
        self.configure(settings)

    @property
    def target(self) -> RecordCollector:
        """Where the messages go that it listens to."""
        return self.inflow

    @property
    def is_settled(self) -> bool:
        """Nothing that a former leader began is undone, and no message is judged that is not appended."""
        return self.opened and not (self.closed or self._rollups.owed or self.inflow.run.count)

    @property
    def gathers(self) -> bool:
        """There are messages that are judged, and not appended yet."""
        return not self.closed and self.inflow.run.count > 0

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def take(self) -> None:
        """Append what the last read gathered as one batch, or refuse it, and note who waits for the
        commit. Raises nothing: others must go on.
        """
        inflow, partition = self.inflow, self.partition
        run, base_offset, short = inflow.run, partition.log_end_offset, partition.below_min_isr
        replies = NO_REPLIES
        refusal: PublishRefusal | None = None
        """Why the run is not stored."""
        if self.deduplicator.rolls_up and run.count:
            self.sequences.follow(run.size_bytes)
        try:
            if self._is_plain and run.count and self._take_at_once():
                return
            if inflow.oversize_count or inflow.keyless_count:
                self._refuse_unfit()
            if run.count:
                reply_count, enveloped = inflow.reply_count, inflow.enveloped
                packed = inflow.take_replies()
                replies = Replies(packed, reply_count, enveloped) if self.answering else NO_REPLIES
                if short or self.bounds is not None:
                    replies, refusal = self._fitting(run, replies)
            if run.count:
                is_plain = not self._wishes and self.default_ack is AckPolicy.COMMITTED
                late, early = (replies, NO_REPLIES) if is_plain else self._by_wish(replies)
                size = run.size_bytes + len(replies.packed) + run.count * RECORD_OVERHEAD_BYTES
                acks = PendingAcks(self, base_offset, run.count, late, size)
                overload = OVERLOADED if self._room.refusing else None
                refusal = self._barred or (OWED if self._rollups.owed else overload)
                if self.counters is not None:
                    refusal = refusal or self.counters.objection_to(run)
                if refusal is None:
                    if not short:  # else it would take room for as long as the replicas are away
                        self._room.take(size)  # before the append, since that may commit at once
                        self._pending.append(acks)
                    try:
                        ack = UNAWAITED if short else acks
                        partition.append(run, ack, leader_epoch=self.leader_epoch)
                    except Exception as error:
                        self._forget_youngest(acks)
                        refusal = self._refusal(error)
                if refusal is None:
                    self._grown[self] = None
                    self._answers.acknowledge(self._ack_head, early, base_offset)
                    if self.counters is not None:
                        self._await_counted(self.counters, base_offset)
                    removed = self._roll_up(base_offset) if self._rollups else True
                    if self.batching.has_any_in_run:
                        self._await_batches(base_offset, removed=removed)
                    if self.fast.has_any_in_run:
                        self.fast.appended(base_offset, self._rollups.erased_end, removed=removed)
                else:
                    self._not_appended(acks, replies, refusal)
            elif self.fast.has_any_in_run:  # all of it is repeated
                self.fast.appended(base_offset, self._rollups.erased_end)
            if self._rollups.owed or self._repeats or self._conflicts or self.batching.has_grown:
                self._end_read(refusal)
            self._asked = bool(self._rollups.owed)
        except Exception:
            tp = partition.tp
            extra = {"stream": tp.stream, "partition": tp.partition}
            logger.exception(FAULT.logged_as("messages could not be taken"), extra=extra)
            self.drop()

    def _take_at_once(self) -> bool:
        """The same where messages want nothing but to be stored, and are committed by being appended:
        where each goes to another partition, most of its cost would be to wait for its commit. False:
        it is not so, and nothing was done.
        """
        inflow, partition = self.inflow, self.partition
        if inflow.oversize_count or self._room.refusing or (self._asked and self._asks_more):
            return False
        base_offset, count = partition.log_end_offset, inflow.run.count
        refusal: PublishRefusal | None = None
        try:
            if partition.append_at_once(inflow.run, leader_epoch=self.leader_epoch) < 0:
                return False
        except Exception as error:
            refusal = self._refusal(error)
        reply_count, enveloped = inflow.reply_count, inflow.enveloped
        replies = Replies(inflow.take_replies(), reply_count, enveloped)
        if refusal is None:
            self._grown[self] = None
            self._answers.acknowledge(self._ack_head, replies, base_offset)
            if self.fast.has_any_in_run:
                self.fast.appended(base_offset, self._rollups.erased_end)
        else:
            acks = PendingAcks(self, base_offset, count, replies, 0)
            self._not_appended(acks, replies, refusal)
        self._asked = False
        return True

    @property
    def _asks_more(self) -> bool:
        """Of the run, or of an earlier one; an id, or what is expected, was looked at already."""
        return bool(
            self._wishes
            or self._repeats
            or self._conflicts
            or self._rollups
            or self._rollups.owed
            or self.batching.has_any_in_run
            or self.batching.has_grown
        )

    def _end_read(self, refusal: PublishRefusal | None) -> None:
        """What else the read asks for. ``refusal``: why the run is not stored."""
        if self._rollups.owed:
            self.erase_owed()
        if self._repeats:
            self._await_repeats(refusal)
        if self._conflicts:
            self._await_conflicts(refusal)
        if self.batching.has_grown:
            self.batching.account()

    def _refuse_unfit(self) -> None:
        """Messages that are too large, or lack a key: they are not in the run."""
        for unfit, why in (
            (self.inflow.take_oversize(), TOO_LARGE),
            (self.inflow.take_keyless(), NO_KEY),
        ):
            for reply in unfit:
                self._answers.refuse_one(self._stream, self._heard(reply), self._barred or why)

    def _fitting(self, run: RecordRun, replies: Replies) -> tuple[Replies, PublishRefusal | None]:
        """Refuse what waits for replicas that are away, and what there is no room for in the
        stream; the replies of the rest, and why, if nothing is left.
        """
        if self.partition.below_min_isr and self.default_ack is AckPolicy.COMMITTED:
            replies = self._sift(run, replies)
            if not run.count:
                return replies, NOT_ENOUGH_REPLICAS
        if self.bounds is not None and (
            refused := self.bounds.refused(run, self._rollups.kinds, self.batching.positions)
        ):
            replies = self._sift(run, replies, refused)
        return replies, None if run.count else TOO_MANY

    def drop(self) -> None:
        """Refuse what ``take`` left behind when it raised: else it would be stored at other offsets than
        it was judged for.
        """
        inflow, base_offset = self.inflow, self.partition.log_end_offset
        reply_count, enveloped = inflow.reply_count, inflow.enveloped
        packed = inflow.take_replies()
        replies = Replies(packed, reply_count, enveloped) if self.answering else NO_REPLIES
        acks = PendingAcks(self, base_offset, inflow.run.count, replies, 0)
        self._not_appended(acks, replies, INTERNAL)
        self._wishes.clear()
        self._repeats.clear()
        self._await_conflicts(INTERNAL)

    def fire(self, messages: Sequence[ScheduledMessage]) -> int:
        """Append what schedules publish now, as one batch, between two reads. The offset of the first; -1: not
        now.
        """
        run, partition = self.inflow.run, self.partition
        base_offset = partition.log_end_offset
        if (
            not self.opened
            or self._barred is not None
            or run.count
            or self._rollups.owed
            or self._room.refusing
            or partition.below_min_isr
            or self.sequences.index() is None
        ):
            return -1
        for it in messages:
            subject = self.inflow.transform(it.subject) if self.inflow.transform else it.subject
            position = run.append(it.key, it.value, [(b"subject", subject), *it.headers])
            self._rollups.add(it.rollup, subject, position, purged=it.purged)
        self._asked = True
        self.take()
        return base_offset if partition.log_end_offset > base_offset else -1

    def owe(self, rollups: Sequence[Place]) -> None:
        """The log is a former leader's, with these messages, of which it may not have appended the
        erasure."""
        self._asked = True
        self._rollups.inherit(rollups)

    def erase_owed(self) -> None:
        """What messages in the log supersede, and could not be erased yet. Between two reads, or
        when the run is gone: an erasure takes the offset for which a message was judged.
        """
        if self._rollups.owed and not self.closed and not self.inflow.run.count:
            try:
                self._rollups.erase_owed(UNAWAITED)
            except Exception as error:
                self._refusal(error)

    def configure(self, settings: IngestSettings) -> None:
        """What the stream is set to, from the next message on.

        The inflow stays the same one: what comes by a subscription that has ended goes to it, too.
        """
        self.default_ack, self.answering = settings.default_ack, settings.answering
        self.inflow.message_bytes_max = settings.message_bytes_max
        self.inflow.keyed = settings.keyed
        self.inflow.transform = settings.transform
        self.bounds = DiscardNew(self.partition, self.sequences) if settings.bounded else None
        self.batching.allowed = settings.batches
        self.fast.configure(
            allowed=settings.fast_batches,
            answering=self.answering and self.default_ack is not AckPolicy.NEVER,
            awaits_commit=self.default_ack is AckPolicy.COMMITTED,
            barred=NOT_LEADER if self.closed else settings.shut,
        )
        self.deduplicator.rolls_up = settings.rollups
        self.deduplicator.lifetimes = settings.lifetimes
        self.deduplicator.counts = settings.counters
        self._lifetime_min_s = settings.lifetime_min_s
        if settings.schedules is not None and self.deduplicator.scheduling is None:
            self.sequences.expect()
        self.deduplicator.scheduling = settings.schedules
        self.deduplicator.schedule_on = self._schedule_on
        if settings.counters and self.counters is None:  # which is as the stream was made
            self.counters = self.batching.counters = CounterTotals(self.partition, self.sequences)
            self.inflow.count = self._count
            self.sequences.expect()
        self._barred = NOT_LEADER if self.closed else settings.shut
        self._is_plain = (
            self._barred is None
            and self.answering
            and self.bounds is None
            and self.counters is None
            and self.default_ack is AckPolicy.COMMITTED
            and not settings.keyed
        )

    def close(self) -> None:
        """Leadership is over. Who waits for an append of ours hears of it by the partition."""
        self.closed = True
        self._barred, self._is_plain = NOT_LEADER, False
        self.batching.clear()
        self.fast.close()
        self.sequences.close()
        self._awaited.refuse(0, NOT_LEADER)

    def expire_batches(self) -> None:
        """Those for which nothing comes any more."""
        self.batching.expire(self._now_ms())
        self.fast.expire(self._now_ms())

    def give_up(self) -> None:
        """Let no publisher wait any longer for what the next leader may yet commit."""
        self.close()
        for acks in self._pending:
            self._room.give_back(acks.size_bytes)
            self._answers.refuse(self._stream, acks.replies, acks.count, NOT_LEADER)
        self._pending.clear()

    def _roll_up(self, base_offset: int) -> bool:
        """The run with these messages was appended; they are answered when nothing of what was
        before them is there. Whether that is under way.
        """
        rollups = self._rollups.take()
        try:
            self._rollups.erase(rollups, base_offset, UNAWAITED)
        except Exception as error:
            self._refusal(error)
            for rollup in rollups:
                self._answers.refuse_one(self._stream, rollup.reply, NOT_REMOVED)
            return False
        for it in rollups:
            if it.reply:
                offset = base_offset + it.position
                answer = ack_json(self._stream, offset + 1)
                self._awaited.add(it.reply, self._rollups.awaited(offset), answer)
        return True

    def _await_batches(self, base_offset: int, *, removed: bool) -> None:
        """The run with them was appended. ``removed``: what its messages supersede is, too."""
        for batch in self.batching.take_in_run():
            if batch.rolls_up and not removed:
                self._answers.refuse_one(self._stream, batch.reply, NOT_REMOVED)
            elif batch.reply:
                offset, answer = batch.answer(self._stream, base_offset)
                awaited = self._rollups.awaited(offset) if batch.rolls_up else offset
                self._awaited.add(batch.reply, awaited, answer)

    def _await_counted(self, counters: CounterTotals, base_offset: int) -> None:
        """The run with these increments was appended."""
        for position, reply, total in counters.take():
            offset = base_offset + position
            self._awaited.add(reply, offset, counter_ack_json(self._stream, offset + 1, total))

    def _by_wish(self, replies: Replies) -> tuple[Replies, Replies]:
        """Those to be answered at the commit, and those once it is appended."""
        wishes, self._wishes = self._wishes, {}
        default = self.default_ack
        kinds = set(wishes.values())
        if len(kinds) == 1 and len(wishes) == self.inflow.run.count:  # as with Liftbridge's default
            (default,) = kinds
            wishes = {}
        return (
            select_replies(replies, AckPolicy.COMMITTED, default=default, wishes=wishes),
            select_replies(replies, AckPolicy.APPENDED, default=default, wishes=wishes),
        )

    def _sift(
        self, run: RecordRun, replies: Replies, refused: Mapping[int, PublishRefusal] | None = None
    ) -> Replies:
        """Refuse these, or, if None, those that wait for replicas; the others move together, and
        are judged again: a message by itself, a batch as a whole.

        Judging takes the ids of what is kept into the window again, at their new offsets.
        """
        base_offset = self.partition.log_end_offset
        wishes, self._wishes = self._wishes, {}
        if refused is None:
            places = (place for place in range(run.count) if place not in wishes)
            refused = dict.fromkeys(places, NOT_ENOUGH_REPLICAS)
        batches, refused, asked_by = with_whole_batches(refused, self.batching.take_in_run())
        sifted = sift(run, replies, refused)
        self._abort(base_offset)
        self._judged_by_nothing(base_offset)
        rollups = {rollup.position: rollup.reply for rollup in self._rollups.take()}
        asked_by |= {place: reply for place, reply in rollups.items() if reply}
        if self.counters is not None:
            asked_by |= {position: reply for position, reply, _ in self.counters.take()}
        asked_by |= dict(iter_replies(sifted.refused.packed))
        for place, refusal in refused.items():
            self._answers.refuse_one(self._stream, asked_by.get(place, b""), refusal)
        moved: dict[int, int] = {}
        asked: list[bytes] = []
        fast = self.fast.sift(refused, base_offset)
        waiting = deque(sifted.kept)
        while waiting:
            entry = fast.entry_at(waiting[0].position, moved)
            batch = batches.get(waiting[0].position)
            together = [waiting.popleft() for _ in batch.asked] if batch else [waiting.popleft()]
            if batch is not None:
                goes_on = self._is_admitted_again(batch)
            elif entry is not None:
                (it,) = together
                goes_on = self.fast.judged_again(
                    entry, it.header_block, it.subject, has_payload=bool(it.record.value)
                )
            else:
                (it,) = together
                reply = rollups.get(it.position) or it.reply
                goes_on = bool(self._admit(it.header_block, it.subject, reply, run.count))
            for it in together if goes_on else ():
                position = run.append(it.record.key, it.record.value, it.headers)
                moved[base_offset + it.position] = base_offset + position
                if it.reply:
                    asked.append(pack_reply(position, it.reply))
        fast.end(moved)
        self._repeats = [
            (reply, first if first < base_offset else moved.get(first, NOWHERE))
            for reply, first in self._repeats
        ]
        return Replies(b"".join(asked), len(asked), replies.enveloped)

    def _is_admitted_again(self, batch: RunBatch) -> bool:
        why = self.batching.move(batch, self._now_ms())
        if why is not None:
            self._answers.refuse_one(self._stream, batch.reply, why)
        return why is None

    def _not_appended(self, acks: PendingAcks, replies: Replies, refusal: PublishRefusal) -> None:
        """The run is empty afterwards."""
        base_offset = acks.base_offset
        self.inflow.run.clear()
        self._abort(base_offset)
        if self._repeats:  # something else may have the offset of the first one soon
            self._repeats = [
                (reply, first if first < base_offset else NOWHERE) for reply, first in self._repeats
            ]
        self._judged_by_nothing(base_offset)
        self._answers.refuse(self._stream, replies, acks.count, refusal)
        for rollup in self._rollups.take():
            self._answers.refuse_one(self._stream, rollup.reply, refusal)
        for counted in () if self.counters is None else self.counters.take():
            self._answers.refuse_one(self._stream, counted.reply, refusal)
        for batch in self.batching.take_in_run():
            self._answers.refuse_one(self._stream, batch.reply, refusal)
        self.fast.not_appended(refusal)

    def _refusal(self, error: Exception) -> PublishRefusal:
        tp = self.partition.tp
        if not isinstance(error, StreamlogError):
            extra = {"stream": tp.stream, "partition": tp.partition}
            logger.error(FAULT.logged_as("append failed unexpectedly"), extra=extra, exc_info=error)
        return refusal_of(error)

    def _too_much(self, subjects: Sequence[bytes], size_bytes: int) -> PublishRefusal | None:
        """Of a batch, beside the run."""
        if self.bounds is None:
            return None
        return self.bounds.objection(self.inflow.run, subjects, size_bytes)

    def _abort(self, from_offset: int) -> None:
        """Messages at and above it are not stored after all."""
        self.deduplicator.abort(from_offset)
        self.sequences.abort(from_offset)
        if self.counters is not None:
            self.counters.abort(from_offset)

    def _forget_youngest(self, acks: PendingAcks) -> None:
        """Its append has failed, unless it was made while too few replicas were in sync."""
        if self._pending and self._pending[-1] is acks:
            self._pending.pop()
            self._room.give_back(acks.size_bytes)

    def _open(
        self, payload: bytes, block: bytes, subject: bytes, reply: bytes
    ) -> TranslatedEnvelope | None:
        """The parser asks about a message that begins as an envelope does."""
        now_ns = self._now_ms() * NS_PER_MS
        try:
            return self._opener.open(
                payload, block, subject, reply, patterns=self.subjects, now_ns=now_ns
            )
        except Exception:
            logger.exception(
                FAULT.logged_as("an envelope could not be opened; it is stored as it came")
            )
            return None

    def _look(self, checks: PublishChecks) -> None:
        """The parser has a message whose headers want something: how things are now."""
        partition = self.partition
        checks.see(
            is_open=self._barred is None and not partition.below_min_isr,
            log_end_offset=partition.log_end_offset,
            messages_end=partition.messages_end,
            now_ms=self._now_ms(),
            default_policy=POLICIES[self.default_ack],
        )

    def _pattern_of(self, subject: bytes) -> bytes:
        return pattern_of(self.subjects, subject)

    def _wish(self, position: int, policy: int) -> None:
        """The parser has an envelope that wants another ack than the stream's."""
        self._wishes[position] = ACKS[policy]

    def _admit(
        self, header_block: bytes, subject: bytes, reply: bytes, position: int
    ) -> bool | RecordRun | Extended:
        """The parser asks about a message whose headers want something."""
        self.inflow.lifetime = None
        try:
            admitted = self._judged(header_block, subject, reply, position)
            if admitted and self._lifetime_min_s and b"\r\nNats-TTL:" in header_block:
                headers = publish_headers(header_block)
                self.inflow.lifetime = message_ttl.lengthened(headers, self._lifetime_min_s)
            return admitted
        finally:
            self._asked = (
                True  # not before: to make room for a batch, ``take`` may be called in there
            )

    def _judged(
        self, header_block: bytes, subject: bytes, reply: bytes, position: int
    ) -> bool | RecordRun | Extended:
        reply = self._heard(reply)
        if self._barred is not None:
            return True  # and is refused with the rest of the run, in its turn
        try:
            if b"\r\nNats-Batch-Id:" in header_block:
                headers = publish_headers(header_block)
                if headers[b"Nats-Batch-Id"]:
                    return self.batching.admit(headers, subject, reply, self._now_ms())
            if position and b"\r\nNats-Schedule-Next:" in header_block:
                self._have_in_log(scheduling_rules.purged(publish_headers(header_block)))
                position = self.inflow.run.count
            verdict = self.deduplicator.admit(
                header_block,
                subject,
                reply,
                position,
                log_end_offset=self.partition.log_end_offset,
                messages_end=self.partition.messages_end,
                now_ms=self._now_ms(),
                last_on=self.sequences.last,
            )
        except Exception:
            logger.exception(FAULT.logged_as("a message's headers could not be judged"))
            self._answers.refuse_one(self._stream, reply, INTERNAL)
            return False
        if verdict.store:
            return self._store(verdict, subject, reply, position)
        self._answer_unstored(verdict, reply, position)
        return False

    def _judged_in_batch(
        self, header_block: bytes, subject: bytes, position: int, has_payload: bool
    ) -> Judged:
        """Of a fast batch, which is answered as a whole: the message that would get that position in the run."""
        self._asked = True
        log_end_offset = self.partition.log_end_offset
        verdict = self.deduplicator.admit(
            header_block,
            subject,
            b"",
            position,
            log_end_offset=log_end_offset,
            messages_end=self.partition.messages_end,
            now_ms=self._now_ms(),
            last_on=self.sequences.last,
            has_payload=has_payload,
        )
        if verdict.duplicate_of is not None and self._rollups.owes(verdict.duplicate_of):
            return Judged(Admission(False, NOT_REMOVED))
        if not verdict.store:
            return Judged(verdict)
        refusal = None
        removes = bool(verdict.rollup or verdict.purged)
        awaits_replicas = self.default_ack is AckPolicy.COMMITTED or removes
        if self.partition.below_min_isr and awaits_replicas:
            refusal = NOT_ENOUGH_REPLICAS
        elif removes:
            refusal = self._rollups.objection(verdict.rollup, verdict.purged)
        if refusal is None and self.counters is not None:
            refusal = self.counters.objection(subject)
        if refusal is not None:
            self._abort(log_end_offset + position)
            return Judged(Admission(False, refusal))
        if removes:
            self._rollups.add(verdict.rollup, subject, position, purged=verdict.purged)
        if self.counters is None:
            return Judged(verdict, added=verdict.added)
        headers = publish_headers(header_block)
        body, sources = self.counters.count(headers, subject, position)
        return Judged(verdict, body, (SOURCES_HEADER, sources) if sources else None)

    def _answer_unstored(self, verdict: Admission, reply: bytes, position: int) -> None:
        refusal = verdict.refusal
        if refusal is not None:
            ack = verdict.ack or self.default_ack
            if reply and refusal.err_code in CONFLICTS and ack is AckPolicy.COMMITTED:
                self._note_conflict(reply, refusal, position)
            else:
                self._answers.refuse_one(self._stream, reply, refusal)
        elif verdict.duplicate_of is not None:
            self._metrics.publish_duplicates.inc()
            if reply and verdict.ack is not AckPolicy.NEVER:
                self._repeats.append((reply, verdict.duplicate_of))

    def _count(
        self, header_block: bytes, subject: bytes, reply: bytes, payload: bytes
    ) -> tuple[RecordRun, bytes] | tuple[RecordRun, bytes, bytes] | None:
        """The parser asks about a message of a stream of counters."""
        reply = self._heard(reply)
        if self.counters is None or self._barred is not None:
            self._answers.refuse_one(self._stream, reply, self._barred or INTERNAL)
            return None
        try:
            headers = publish_headers(header_block)
            if headers.get(b"Nats-Batch-Id"):
                return self._counted_in_batch(self.counters, headers, subject, reply, payload)
            return self._counted(
                self.counters, header_block, headers, subject, reply, has_payload=bool(payload)
            )
        except Exception:
            logger.exception(FAULT.logged_as("an increment could not be judged"))
            self._answers.refuse_one(self._stream, reply, INTERNAL)
            return None

    def _counted_in_batch(
        self,
        counters: CounterTotals,
        headers: Headers,
        subject: bytes,
        reply: bytes,
        payload: bytes,
    ) -> tuple[RecordRun, bytes] | tuple[RecordRun, bytes, bytes] | None:
        """Counted once it is part of the run."""
        run = self.batching.admit(
            headers, subject, reply, self._now_ms(), has_payload=bool(payload)
        )
        if not isinstance(run, RecordRun):
            return None
        if run is not self.inflow.run:
            return run, payload
        return _with_sources(run, counters.count(headers, subject, run.count))

    def _counted(
        self,
        counters: CounterTotals,
        header_block: bytes,
        headers: Headers,
        subject: bytes,
        reply: bytes,
        *,
        has_payload: bool,
    ) -> tuple[RecordRun, bytes] | tuple[RecordRun, bytes, bytes] | None:
        log_end_offset, position = self.partition.log_end_offset, self.inflow.run.count
        verdict = self.deduplicator.admit(
            header_block,
            subject,
            reply,
            position,
            log_end_offset=log_end_offset,
            messages_end=self.partition.messages_end,
            now_ms=self._now_ms(),
            last_on=self.sequences.last,
            has_payload=has_payload,
        )
        if not verdict.store:
            self._answer_unstored(verdict, reply, position)
            return None
        short = NOT_ENOUGH_REPLICAS if self.partition.below_min_isr else None
        refusal = short or counters.objection(subject)
        if refusal is not None:
            self._abort(log_end_offset + position)
            self._answers.refuse_one(self._stream, reply, refusal)
            return None
        counted = counters.count(headers, subject, position)
        counters.answer(subject, position, b"" if verdict.ack is AckPolicy.NEVER else reply)
        return _with_sources(self.inflow.run, counted)

    def _store(
        self, verdict: Admission, subject: bytes, reply: bytes, position: int
    ) -> bool | RecordRun | Extended:
        """It may be: where to; unless what it asks for besides cannot be now."""
        ack = verdict.ack or self.default_ack
        removes = bool(verdict.rollup or verdict.purged)
        refusal = None
        if self.partition.below_min_isr and (ack is AckPolicy.COMMITTED or removes):
            refusal = NOT_ENOUGH_REPLICAS
        elif removes:
            refusal = self._rollups.objection(verdict.rollup, verdict.purged)
        if refusal is not None:
            self._abort(self.partition.log_end_offset + position)
            self._answers.refuse_one(self._stream, reply, refusal)
            return False
        if removes:
            answered = b"" if ack is AckPolicy.NEVER else reply
            self._rollups.add(verdict.rollup, subject, position, answered, purged=verdict.purged)
            return extended(self.inflow.run, verdict.added)
        if ack is not self.default_ack:
            self._wishes[position] = ack
        return True

    def _have_in_log(self, subject: bytes) -> None:
        """The newest message of the subject: it is to be read."""
        index = self.sequences.index() if subject else None
        if index is not None and index.last(subject, EVERYTHING) >= self.partition.log_end_offset:
            self.take()

    def _schedule_on(self, subject: bytes) -> bool | PublishRefusal | None:
        """Whether the newest message there is a schedule; None: there is no message."""
        index = self.sequences.index()
        if index is None:
            return NOT_KNOWN
        offset = index.last(subject, EVERYTHING)
        if offset < 0:
            return None
        if offset >= self.partition.log_end_offset:
            return NOT_KNOWN  # the run could not be appended
        try:
            record = record_now(self.partition, offset)
        except StreamlogError as error:
            return refusal_of(error)
        if record is None:
            return NOT_KNOWN
        return bool(asked(record.headers).get("Nats-Schedule"))

    def _await_repeats(self, refusal: PublishRefusal | None) -> None:
        """Now if it is committed, else with it. ``refusal``: why the run is not stored."""
        repeats, self._repeats = self._repeats, []
        for reply, first in repeats:
            if first >= self.partition.log_end_offset:
                self._answers.refuse_one(self._stream, reply, refusal or INTERNAL)
            elif self._rollups.owes(first):
                self._answers.refuse_one(self._stream, reply, NOT_REMOVED)
            else:
                answer = ack_json(self._stream, first + 1, duplicate=True)
                self._awaited.add(reply, self._rollups.awaited(first), answer)

    def _note_conflict(self, reply: bytes, conflict: PublishRefusal, position: int) -> None:
        """It was judged by all below that position of the run."""
        judged_by = self.partition.log_end_offset + position - 1
        self._conflicts.append((reply, conflict, judged_by))

    def _await_conflicts(self, refusal: PublishRefusal | None) -> None:
        """Now if what it was judged by is committed, else with it. ``refusal``: why the run is not stored."""
        conflicts, self._conflicts = self._conflicts, []
        for reply, conflict, judged_by in conflicts:
            if judged_by >= self.partition.log_end_offset:
                self._answers.refuse_one(self._stream, reply, refusal or INTERNAL)
            elif judged_by >= self.partition.removals_end and self.partition.below_min_isr:
                self._answers.refuse_one(self._stream, reply, NOT_ENOUGH_REPLICAS)
            else:
                self._awaited.add(reply, judged_by, conflict)

    def _judged_by_nothing(self, base_offset: int) -> None:
        """Some of the run is not stored: what was judged by it does not hold."""
        if self._conflicts:
            self._conflicts = [
                (reply, conflict, judged_by if judged_by < base_offset else NOWHERE)
                for reply, conflict, judged_by in self._conflicts
            ]

    def _heard(self, reply: bytes) -> bytes:
        return reply if self.answering else b""
