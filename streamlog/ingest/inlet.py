"""One led partition's way in: from what a read gathered to one append, and to the answers."""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.ingest.acks import ack_head
from streamlog.ingest.answers import Answers
from streamlog.ingest.frames import Inflow
from streamlog.ingest.refusal import (
    INTERNAL,
    NO_KEY,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OVERLOADED,
    TOO_LARGE,
    Refusal,
    refusal_of,
)
from streamlog.ingest.repeats import Repeats, WatchedPartition
from streamlog.ingest.replies import Replies, pack_reply, select_replies
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Ack, Sequencer
from streamlog.ingest.sieve import sift
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun

logger = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 64
"""What a waiting record costs beside its bytes; so that empty messages do not wait for free."""


NO_REPLIES: Final = Replies()
NOWHERE = sys.maxsize
"""The offset of what was not stored."""


class OwnedPartition(WatchedPartition, Protocol):
    """What an inlet needs of ``partition.owner.Partition``."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def below_min_isr(self) -> bool: ...

    def append(self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int) -> int: ...


class PendingAcks:
    """One append's publishers, until it is committed or has failed. An ``Acknowledgement``."""

    __slots__ = ("_inlet", "base_offset", "count", "replies", "size_bytes")

    def __init__(
        self, inlet: "Inlet", base_offset: int, count: int, replies: Replies, size_bytes: int
    ) -> None:
        self._inlet = inlet
        self.base_offset = base_offset
        self.count = count
        self.replies = replies
        """Those that the commit answers."""
        self.size_bytes = size_bytes

    def committed(self, base_offset: int) -> None:
        self._inlet.committed(self, base_offset)

    def failed(self, error: StreamlogError) -> None:
        self._inlet.failed(self, error)


class _Unawaited:
    """Nobody waits for the commit, which may be long in coming."""

    def committed(self, base_offset: int) -> None:
        pass

    def failed(self, error: StreamlogError) -> None:
        pass


UNAWAITED: Final = _Unawaited()


class Inlet:
    """For one partition in one leader epoch. Owned by the source; all is on its event loop.

    What a batch needs is in slots here and below: with thousands of partitions hardly anything of
    the next one is in the processor's caches, and each object more is a wait for memory.

    Invariant: ``_pending`` holds the appends that are neither committed nor failed, by offset; but
    for those that nobody waits for, which were made while too few replicas were in sync.
    """

    __slots__ = (
        "_ack_head", "_answers", "_duplicates", "_metrics", "_now_ms", "_pending", "_repeats",
        "_room", "_stream", "_wishes", "answering", "closed", "default_ack", "inflow",
        "leader_epoch", "opened", "partition", "sequencer", "sids", "subjects",
    )  # fmt: skip

    def __init__(
        self,
        partition: OwnedPartition,
        *,
        leader_epoch: int = 0,
        sequencer: Sequencer,
        subjects: Sequence[str] = (),
        value_bytes_max: int,
        default_ack: Ack = Ack.COMMITTED,
        answering: bool = True,
        keyed: bool = False,
        answers: Answers,
        room: Room,
        metrics: NodeMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.sequencer = sequencer
        self.subjects = subjects
        """To be listened to, once it is open."""
        self.sids: tuple[int, ...] = ()
        """Its subscriptions; empty while it is not listening."""
        self.opened = False
        """The sequencer knows the ids in the log: messages may come."""
        self.closed = False
        """Another leads, or in another epoch, or the stream is gone: nothing more is appended."""
        self.default_ack = default_ack
        self.answering = answering
        """False: a stream with ``no_ack``, which never says a word."""
        self.inflow = Inflow(value_bytes_max=value_bytes_max, admit=self._admit, owner=self)
        self.inflow.keyed = keyed
        self._stream = partition.tp.stream
        self._ack_head = ack_head(self._stream)
        self._answers = answers
        self._room = room
        self._metrics = metrics
        self._now_ms = now_ms
        self._repeats = Repeats(partition, stream=self._stream, answers=answers, room=room)
        self._pending: deque[PendingAcks] = deque()
        self._wishes: dict[int, Ack] = {}
        """Positions in the current run whose message asked for another ack than the default."""
        self._duplicates: list[tuple[bytes, int]] = []
        """Those found in the current read."""

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def take(self) -> None:
        """Append what the last read gathered, or refuse it. Raises nothing: others must go on."""
        inflow = self.inflow
        if inflow.oversize_count:
            for reply in inflow.take_oversize():
                self._answers.refuse_one(self._stream, self._heard(reply), TOO_LARGE)
        if inflow.keyless_count:
            for reply in inflow.take_keyless():
                self._answers.refuse_one(self._stream, self._heard(reply), NO_KEY)
        refusal: Refusal | None = None
        if inflow.run.count:
            refusal = self._append()
        if self._duplicates:
            self._answer_duplicates(refusal)

    def configure(
        self, *, value_bytes_max: int, default_ack: Ack, answering: bool, keyed: bool = False
    ) -> None:
        """What the stream is set to, from the next message on.

        The inflow stays the same one: what comes by a subscription that has ended goes to it, too.
        """
        self.default_ack, self.answering = default_ack, answering
        self.inflow.value_bytes_max = value_bytes_max
        self.inflow.keyed = keyed

    def close(self) -> None:
        """Leadership is over. Who waits for an append of ours hears of it by the partition."""
        self.closed = True
        self._repeats.refuse(0, NOT_LEADER)

    def give_up(self) -> None:
        """Let nobody wait any longer for what may yet be committed, by whoever leads next."""
        self.close()
        for acks in self._pending:
            self._room.give_back(acks.size_bytes)
            self._answers.refuse(self._stream, acks.replies, acks.count, NOT_LEADER)
        self._pending.clear()

    def committed(self, acks: PendingAcks, base_offset: int) -> None:
        if self._settle(acks):
            self._answers.acknowledge(self._ack_head, acks.replies, base_offset)

    def failed(self, acks: PendingAcks, error: Exception) -> None:
        if not self._settle(acks):
            return
        self.sequencer.abort(acks.base_offset)
        refusal = refusal_of(error)
        self._answers.refuse(self._stream, acks.replies, acks.count, refusal)
        self._repeats.refuse(acks.base_offset, refusal)

    def _append(self) -> Refusal | None:
        """The run becomes a batch; else the reason why not, which the publishers have been told."""
        partition, inflow = self.partition, self.inflow
        run, base_offset = inflow.run, partition.log_end_offset
        reply_count = inflow.reply_count
        packed = inflow.take_replies()
        replies = Replies(packed, reply_count) if self.answering else NO_REPLIES
        short = partition.below_min_isr
        if short and self.default_ack is Ack.COMMITTED:
            replies = self._sift(run, replies)
            if not run.count:
                return NOT_ENOUGH_REPLICAS
        late, early = replies, NO_REPLIES
        if self._wishes or self.default_ack is not Ack.COMMITTED:
            late, early = self._by_wish(replies)
        count = run.count
        size = run.size_bytes + len(replies.packed) + count * RECORD_OVERHEAD_BYTES
        acks = PendingAcks(self, base_offset, count, late, size)
        if self.closed or self._room.refusing:
            run.clear()
            return self._not_appended(acks, replies, NOT_LEADER if self.closed else OVERLOADED)
        if not short:  # else it would take room for as long as the replicas are away
            self._room.take(size)  # before the append, since that may commit at once
            self._pending.append(acks)
        try:
            partition.append(run, UNAWAITED if short else acks, leader_epoch=self.leader_epoch)
        except Exception as error:
            run.clear()
            if not short:
                self._settle(acks)
            return self._not_appended(acks, replies, self._refusal(error))
        if early.reply_count:
            self._answers.acknowledge(self._ack_head, early, base_offset)
        return None

    def _by_wish(self, replies: Replies) -> tuple[Replies, Replies]:
        """Those to be answered at the commit, and those once it is appended."""
        wishes, self._wishes = self._wishes, {}
        default = self.default_ack
        return (
            select_replies(replies, Ack.COMMITTED, default=default, wishes=wishes),
            select_replies(replies, Ack.APPENDED, default=default, wishes=wishes),
        )

    def _sift(self, run: RecordRun, replies: Replies) -> Replies:
        """Refuse those that wait for replicas; the others move together, and are judged anew."""
        base_offset = self.partition.log_end_offset
        wishes, self._wishes = self._wishes, {}
        sifted = sift(run, replies, wishes)
        self.sequencer.abort(base_offset)
        self._answers.refuse(
            self._stream, sifted.refused, sifted.refused_count, NOT_ENOUGH_REPLICAS
        )
        moved: dict[int, int] = {}
        asked: list[bytes] = []
        for kept in sifted.kept:
            if self._admit(kept.header_block, kept.subject, kept.reply, run.count):
                position = run.append(kept.record.key, kept.record.value, kept.headers)
                moved[base_offset + kept.position] = base_offset + position
                if kept.reply:
                    asked.append(pack_reply(position, kept.reply))
        self._duplicates = [
            (reply, offset if offset < base_offset else moved.get(offset, NOWHERE))
            for reply, offset in self._duplicates
        ]
        return Replies(b"".join(asked), len(asked))

    def _not_appended(self, acks: PendingAcks, replies: Replies, refusal: Refusal) -> Refusal:
        self.sequencer.abort(acks.base_offset)
        self._answers.refuse(self._stream, replies, acks.count, refusal)
        return refusal

    def _refusal(self, error: Exception) -> Refusal:
        tp = self.partition.tp
        if not isinstance(error, StreamlogError):
            extra = {"stream": tp.stream, "partition": tp.partition}
            logger.error("append failed unexpectedly", extra=extra, exc_info=error)
        return refusal_of(error)

    def _settle(self, acks: PendingAcks) -> bool:
        """It waits no longer; False if nobody waited any more. Appends end in order; only the
        youngest may fail before others."""
        pending = self._pending
        if not pending:
            return False
        first = pending.popleft()
        if first is not acks:
            pending.appendleft(first)
            assert pending[-1] is acks, "appends end in order"
            pending.pop()
        self._room.give_back(acks.size_bytes)
        return True

    def _admit(self, header_block: bytes, subject: bytes, reply: bytes, position: int) -> bool:
        """The parser asks about a message whose headers want something."""
        reply = self._heard(reply)
        try:
            verdict = self.sequencer.admit(
                header_block,
                subject,
                reply,
                position,
                log_end_offset=self.partition.log_end_offset,
                now_ms=self._now_ms(),
            )
        except Exception:
            logger.exception("a message's headers could not be judged")
            self._answers.refuse_one(self._stream, reply, INTERNAL)
            return False
        if verdict.store:
            ack = verdict.ack or self.default_ack
            if ack is Ack.COMMITTED and self.partition.below_min_isr:
                self.sequencer.abort(self.partition.log_end_offset + position)
                self._answers.refuse_one(self._stream, reply, NOT_ENOUGH_REPLICAS)
                return False
            if ack is not self.default_ack:
                self._wishes[position] = ack
            return True
        if verdict.refusal:
            self._answers.refuse_one(self._stream, reply, verdict.refusal)
        elif verdict.duplicate_of is not None:
            self._metrics.duplicates.inc()
            if reply and verdict.ack is not Ack.NEVER:
                self._duplicates.append((reply, verdict.duplicate_of))
        return False

    def _answer_duplicates(self, refusal: Refusal | None) -> None:
        """Now if the first is committed, else with it. ``refusal``: why the run is not stored."""
        duplicates, self._duplicates = self._duplicates, []
        for reply, offset in duplicates:
            if offset < self.partition.log_end_offset:
                self._repeats.add(reply, offset)
            else:
                self._answers.refuse_one(self._stream, reply, refusal or INTERNAL)

    def _heard(self, reply: bytes) -> bytes:
        return reply if self.answering else b""
