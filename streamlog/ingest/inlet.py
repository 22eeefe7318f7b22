"""One led partition's way in: from what a read gathered to one append, and to the answers."""

import bisect
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from streamlog.errors import StreamlogError
from streamlog.ingest.answers import Answers
from streamlog.ingest.frames import Inflow
from streamlog.ingest.refusal import INTERNAL, OVERLOADED, TOO_LARGE, Refusal, refusal_of
from streamlog.ingest.replies import Replies, select_replies
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Ack, Sequencer
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.record.codec import RecordRun

logger = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 64
"""What a waiting record costs beside its bytes; so that empty messages do not wait for free."""


class OwnedPartition(Protocol):
    """What an inlet needs of ``partition.owner.Partition``."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, run: RecordRun, ack: "PendingAcks") -> int: ...


class PendingAcks:
    """One append's publishers, until it is committed or has failed. An ``Acknowledgement``."""

    __slots__ = (
        "_inlet",
        "base_offset",
        "count",
        "duplicates",
        "end_offset",
        "replies",
        "size_bytes",
    )

    def __init__(
        self, inlet: "Inlet", base_offset: int, count: int, replies: Replies, size_bytes: int
    ) -> None:
        self._inlet = inlet
        self.base_offset = base_offset
        self.count = count
        self.end_offset = base_offset + count
        self.replies = replies
        """Those that the commit answers."""
        self.size_bytes = size_bytes
        self.duplicates: list[tuple[bytes, int]] = []
        """(reply, first offset) of later messages whose first one is in this append."""

    def committed(self, base_offset: int) -> None:
        self._inlet.committed(self, base_offset)

    def failed(self, error: StreamlogError) -> None:
        self._inlet.failed(self, error)


class Inlet:
    """Owned by the source; everything happens on its event loop.

    Invariant: ``_pending`` holds the appends that are neither committed nor failed, by offset.
    """

    def __init__(
        self,
        partition: OwnedPartition,
        *,
        sequencer: Sequencer,
        value_bytes_max: int,
        default_ack: Ack = Ack.COMMITTED,
        answering: bool = True,
        answers: Answers,
        room: Room,
        metrics: NodeMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.sequencer = sequencer
        self.sids: tuple[int, ...] = ()
        """Its subscriptions; empty while it is not listening."""
        self.default_ack = default_ack
        self.answering = answering
        """False: a stream with ``no_ack``, which never says a word."""
        self.inflow = Inflow(value_bytes_max=value_bytes_max, admit=self._admit, owner=self)
        self._stream = partition.tp.stream
        self._answers = answers
        self._room = room
        self._metrics = metrics
        self._now_ms = now_ms
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
        for reply in inflow.take_oversize():
            self._answers.refuse_one(self._stream, self._heard(reply), TOO_LARGE)
        refusal: Refusal | None = None
        if inflow.run.count:
            refusal = self._append()
        if self._duplicates:
            self._answer_duplicates(refusal)

    def configure(self, *, value_bytes_max: int, default_ack: Ack, answering: bool) -> None:
        """What the stream is set to, from the next message on. The inflow is another one then."""
        self.default_ack, self.answering = default_ack, answering
        self.inflow = Inflow(value_bytes_max=value_bytes_max, admit=self._admit, owner=self)

    def committed(self, acks: PendingAcks, base_offset: int) -> None:
        self._settle(acks)
        self._answers.acknowledge(self._stream, acks.replies, base_offset)
        for reply, offset in acks.duplicates:
            self._answers.acknowledge_duplicate(self._stream, reply, offset)

    def failed(self, acks: PendingAcks, error: Exception) -> None:
        self._settle(acks)
        self.sequencer.abort(acks.base_offset)
        refusal = refusal_of(error)
        self._answers.refuse(self._stream, acks.replies, acks.count, refusal)
        for reply, _ in acks.duplicates:
            self._answers.refuse_one(self._stream, reply, refusal)

    def _append(self) -> Refusal | None:
        """The run becomes a batch; else the reason why not, which the publishers have been told."""
        inflow, run, base_offset = self.inflow, self.inflow.run, self.partition.log_end_offset
        count, packed = inflow.reply_count, inflow.take_replies()
        replies = Replies(packed, count) if self.answering else Replies()
        wishes, self._wishes = self._wishes, {}
        size = run.size_bytes + len(packed) + run.count * RECORD_OVERHEAD_BYTES
        late = select_replies(replies, Ack.COMMITTED, default=self.default_ack, wishes=wishes)
        acks = PendingAcks(self, base_offset, run.count, late, size)
        if self._room.refusing:
            run.clear()
            return self._not_appended(acks, replies, OVERLOADED)
        self._room.take(size)  # before the append, since that may commit at once
        self._pending.append(acks)
        try:
            self.partition.append(run, acks)
        except Exception as error:
            run.clear()
            self._settle(acks)
            return self._not_appended(acks, replies, self._refusal(error))
        early = select_replies(replies, Ack.APPENDED, default=self.default_ack, wishes=wishes)
        self._answers.acknowledge(self._stream, early, base_offset)
        return None

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

    def _settle(self, acks: PendingAcks) -> None:
        """It waits no longer. Appends end in order; only the youngest may fail before others."""
        pending = self._pending
        if pending[0] is acks:
            pending.popleft()
        else:
            assert pending[-1] is acks, "appends end in order"
            pending.pop()
        self._room.give_back(acks.size_bytes)

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
            if verdict.ack is not None and verdict.ack is not self.default_ack:
                self._wishes[position] = verdict.ack
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
            if offset < self.partition.high_watermark:
                self._answers.acknowledge_duplicate(self._stream, reply, offset)
            elif (acks := self._pending_of(offset)) is not None:
                acks.duplicates.append((reply, offset))
            else:
                self._answers.refuse_one(self._stream, reply, refusal or INTERNAL)

    def _pending_of(self, offset: int) -> PendingAcks | None:
        at = bisect.bisect_right(self._pending, offset, key=lambda acks: acks.base_offset) - 1
        found = self._pending[at] if at >= 0 else None
        return found if found is not None and offset < found.end_offset else None

    def _heard(self, reply: bytes) -> bytes:
        return reply if self.answering else b""
