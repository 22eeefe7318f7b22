"""One led partition's way in: from what a read gathered to one append, and to the answers."""

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.ingest.acks import ack_head, ack_json
from streamlog.ingest.answers import NS_PER_MS, Answers
from streamlog.ingest.awaited import Awaited, WatchedPartition
from streamlog.ingest.batching import Batching
from streamlog.ingest.bounds import Bounds, FilledPartition
from streamlog.ingest.frames import Inflow
from streamlog.ingest.inlet_settings import InletSettings
from streamlog.ingest.opening import Opened, Opener
from streamlog.ingest.pending_acks import UNAWAITED, PendingAcks
from streamlog.ingest.publish_headers import publish_headers
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
from streamlog.ingest.replies import Replies, iter_replies, pack_reply, select_replies
from streamlog.ingest.rolling import NOT_REMOVED, RolledPartition, Rollups
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Sequencer
from streamlog.ingest.sieve import sift
from streamlog.ingest.staging import Staging
from streamlog.ingest.subject_sequences import SubjectSequences
from streamlog.ingest.subscriptions import Source
from streamlog.ingest.tally import TOO_MANY
from streamlog.ingest.verdict import Ack, Verdict
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


class OwnedPartition(WatchedPartition, FilledPartition, RolledPartition, Protocol):
    """What an inlet needs of ``partition.owner.Partition``."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def messages_end(self) -> int: ...

    @property
    def below_min_isr(self) -> bool: ...

    def append(self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int) -> int: ...


class Inlet:
    """For one partition in one leader epoch. Owned by the source; all is on its event loop.

    What a batch needs is in slots here and below: with thousands of partitions hardly anything of
    the next one is in the processor's caches, and each object more is a wait for memory.

    Invariant: ``_pending`` holds the appends that are neither committed nor failed, by offset; but
    for those that nobody waits for, which were made while too few replicas were in sync.
    """

    __slots__ = (
        "_ack_head", "_answers", "_awaited", "_barred", "_metrics", "_now_ms", "_opener",
        "_pending", "_rollups", "_room", "_singles", "_stream", "_wishes", "answering", "batching",
        "bounds", "closed", "default_ack", "inflow", "leader_epoch", "opened", "partition",
        "sequencer", "sequences", "sids", "sources", "subjects",
    )  # fmt: skip

    def __init__(
        self,
        partition: OwnedPartition,
        *,
        leader_epoch: int = 0,
        sequencer: Sequencer,
        subjects: Sequence[str] = (),
        sources: Sequence[Source] = (),
        settings: InletSettings,
        answers: Answers,
        room: Room,
        staging: Staging,
        metrics: NodeMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.sequencer = sequencer
        self.subjects = subjects
        """What its messages come by."""
        self.sources = sources
        """To be listened to, once it is open; empty where all partitions are heard together."""
        self.sids: tuple[int, ...] = ()
        """Its subscriptions; empty while it is not listening."""
        self.opened = False
        """The sequencer knows the ids in the log: messages may come."""
        self.closed = False
        """Another leads, or in another epoch, or the stream is gone: nothing more is appended."""
        self.inflow = Inflow(
            value_bytes_max=settings.value_bytes_max, admit=self._admit, owner=self
        )
        self.inflow.open_envelope = self._open
        self.sequences = SubjectSequences(partition, self.inflow.run)
        self._stream = partition.tp.stream
        self._ack_head = ack_head(self._stream)
        self._opener = Opener(self._stream)
        self._answers = answers
        self._room = room
        self._metrics = metrics
        self._now_ms = now_ms
        self._awaited = Awaited(partition, stream=self._stream, answers=answers, room=room)
        self._rollups = Rollups(partition, self.sequences.index)
        self.batching = Batching(
            partition,
            stream=self._stream,
            inflow=self.inflow,
            sequencer=sequencer,
            staging=staging,
            answers=answers,
            committed=self._answer_when_committed,
            last_on=self.sequences.last,
            too_much=self._too_much,
            rollups=self._rollups,
        )
        self._pending: deque[PendingAcks] = deque()
        self._wishes: dict[int, Ack] = {}
        """Positions in the current run whose message asked for another ack than the default."""
        self._singles: list[tuple[bytes, int, bytes]] = []
        """(reply, offset, answer) of the current read: each is answered on its own once that offset
        is committed, being a duplicate or a batch."""
        self.configure(settings)

    @property
    def target(self) -> Inflow:
        """Where the messages go that it listens to."""
        return self.inflow

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def take(self) -> None:
        """Append what the last read gathered, or refuse it. Raises nothing: others must go on."""
        inflow = self.inflow
        if inflow.oversize_count:
            for reply in inflow.take_oversize():
                why = self._barred or TOO_LARGE
                self._answers.refuse_one(self._stream, self._heard(reply), why)
        if inflow.keyless_count:
            for reply in inflow.take_keyless():
                why = self._barred or NO_KEY
                self._answers.refuse_one(self._stream, self._heard(reply), why)
        refusal = self._append() if inflow.run.count else None
        if self._singles:
            self._await_singles(refusal)
        if self.batching.has_grown:
            self.batching.account()

    def configure(self, settings: InletSettings) -> None:
        """What the stream is set to, from the next message on.

        The inflow stays the same one: what comes by a subscription that has ended goes to it, too.
        """
        self.default_ack, self.answering = settings.default_ack, settings.answering
        self.inflow.value_bytes_max = settings.value_bytes_max
        self.inflow.keyed = settings.keyed
        self.inflow.transform = settings.transform
        self.bounds = Bounds(self.partition, self.sequences) if settings.bounded else None
        self.batching.allowed = settings.batches
        self.sequencer.rolls_up = settings.rollups
        self.sequencer.lifetimes = settings.lifetimes
        self._barred = NOT_LEADER if self.closed else settings.shut

    def close(self) -> None:
        """Leadership is over. Who waits for an append of ours hears of it by the partition."""
        self.closed = True
        self._barred = NOT_LEADER
        self.batching.clear()
        self.sequences.close()
        self._awaited.refuse(0, NOT_LEADER)

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
        self._abort(acks.base_offset)
        refusal = refusal_of(error)
        self._answers.refuse(self._stream, acks.replies, acks.count, refusal)
        self._awaited.refuse(acks.base_offset, refusal)

    def _append(self) -> Refusal | None:
        """The run becomes a batch; else the reason why not, which the publishers have been told."""
        partition, inflow = self.partition, self.inflow
        run, base_offset = inflow.run, partition.log_end_offset
        reply_count, enveloped = inflow.reply_count, inflow.enveloped
        packed = inflow.take_replies()
        replies = Replies(packed, reply_count, enveloped) if self.answering else NO_REPLIES
        short = partition.below_min_isr
        if short and self.default_ack is Ack.COMMITTED:
            replies = self._sift(run, replies)
            if not run.count:
                return NOT_ENOUGH_REPLICAS
        if self.bounds is not None and (refused := self.bounds.refused(run, self._rollups.kinds)):
            replies = self._sift(run, replies, refused)
            if not run.count:
                return TOO_MANY
        late, early = replies, NO_REPLIES
        if self._wishes or self.default_ack is not Ack.COMMITTED:
            late, early = self._by_wish(replies)
        count = run.count
        size = run.size_bytes + len(replies.packed) + count * RECORD_OVERHEAD_BYTES
        acks = PendingAcks(self, base_offset, count, late, size)
        if self._barred is not None or self._room.refusing:
            run.clear()
            return self._not_appended(acks, replies, self._barred or OVERLOADED)
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
        if self._rollups:
            self._roll_up(base_offset)
        return None

    def _roll_up(self, base_offset: int) -> None:
        """The run with these messages was appended; they, and batches with any, are answered when
        nothing of what was before them is there.
        """
        rollups = self._rollups.take()
        try:
            self._rollups.erase(rollups, base_offset, UNAWAITED)
        except Exception as error:
            self._refusal(error)
            for rollup in rollups:
                self._answers.refuse_one(self._stream, rollup.reply, NOT_REMOVED)
            return
        last = self.partition.log_end_offset - 1
        answers = (
            (it.reply, ack_json(self._stream, base_offset + it.position + 1)) for it in rollups
        )
        self._singles = [
            *((reply, last, answer) for reply, answer in answers if reply),
            *(
                (reply, max(at, last) if at >= base_offset else at, answer)
                for reply, at, answer in self._singles
            ),
        ]

    def _by_wish(self, replies: Replies) -> tuple[Replies, Replies]:
        """Those to be answered at the commit, and those once it is appended."""
        wishes, self._wishes = self._wishes, {}
        default = self.default_ack
        return (
            select_replies(replies, Ack.COMMITTED, default=default, wishes=wishes),
            select_replies(replies, Ack.APPENDED, default=default, wishes=wishes),
        )

    def _sift(
        self, run: RecordRun, replies: Replies, refused: Mapping[int, Refusal] | None = None
    ) -> Replies:
        """Refuse these, or, if None, those that wait for replicas; the others move together, and
        are judged anew.
        """
        base_offset = self.partition.log_end_offset
        wishes, self._wishes = self._wishes, {}
        if refused is None:
            places = (place for place in range(run.count) if place not in wishes)
            refused = dict.fromkeys(places, NOT_ENOUGH_REPLICAS)
        sifted = sift(run, replies, refused)
        self._abort(base_offset)
        asked_by = dict(iter_replies(sifted.refused.packed))
        rollups = {rollup.position: rollup for rollup in self._rollups.take()}
        asked_by |= {place: rollup.reply for place, rollup in rollups.items()}
        for place, refusal in refused.items():
            self._answers.refuse_one(self._stream, asked_by.get(place, b""), refusal)
        moved: dict[int, int] = {}
        asked: list[bytes] = []
        for kept in sifted.kept:
            is_judged = kept.is_of_batch  # as a whole, and all of it stays where it is
            rollup = rollups.get(kept.position)
            reply = kept.reply if rollup is None else rollup.reply
            if is_judged and rollup is not None:
                self._rollups.add_again(rollup, run.count)
            if is_judged or self._admit(kept.header_block, kept.subject, reply, run.count):
                position = run.append(kept.record.key, kept.record.value, kept.headers)
                moved[base_offset + kept.position] = base_offset + position
                if kept.reply:
                    asked.append(pack_reply(position, kept.reply))
        self._singles = [
            single
            if single[1] < base_offset or moved.get(single[1]) == single[1]
            else self._repeated(single[0], moved.get(single[1]))
            for single in self._singles
        ]
        return Replies(b"".join(asked), len(asked), replies.enveloped)

    def _not_appended(self, acks: PendingAcks, replies: Replies, refusal: Refusal) -> Refusal:
        self._abort(acks.base_offset)
        self._answers.refuse(self._stream, replies, acks.count, refusal)
        for rollup in self._rollups.take():
            self._answers.refuse_one(self._stream, rollup.reply, refusal)
        return refusal

    def _refusal(self, error: Exception) -> Refusal:
        tp = self.partition.tp
        if not isinstance(error, StreamlogError):
            extra = {"stream": tp.stream, "partition": tp.partition}
            logger.error("append failed unexpectedly", extra=extra, exc_info=error)
        return refusal_of(error)

    def _too_much(self, subjects: Sequence[bytes], size_bytes: int) -> Refusal | None:
        """Of a batch, beside the run."""
        if self.bounds is None:
            return None
        return self.bounds.objection(self.inflow.run, subjects, size_bytes)

    def _abort(self, from_offset: int) -> None:
        """Messages at and above it are not stored after all."""
        self.sequencer.abort(from_offset)
        self.sequences.abort(from_offset)

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

    def _open(self, payload: bytes, block: bytes, subject: bytes, reply: bytes) -> Opened | None:
        """The parser asks about a message that begins as an envelope does."""
        now_ns = self._now_ms() * NS_PER_MS
        try:
            return self._opener.open(
                payload, block, subject, reply, patterns=self.subjects, now_ns=now_ns
            )
        except Exception:
            logger.exception("an envelope could not be opened; it is stored as it came")
            return None

    def _admit(
        self, header_block: bytes, subject: bytes, reply: bytes, position: int
    ) -> bool | RecordRun:
        """The parser asks about a message whose headers want something."""
        reply = self._heard(reply)
        if self._barred is not None:
            return True  # and is refused with the rest of the run, in its turn
        try:
            if b"\r\nNats-Batch-Id:" in header_block:
                headers = publish_headers(header_block)
                if headers[b"Nats-Batch-Id"]:
                    return self.batching.admit(headers, subject, reply, self._now_ms())
            verdict = self.sequencer.admit(
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
            logger.exception("a message's headers could not be judged")
            self._answers.refuse_one(self._stream, reply, INTERNAL)
            return False
        if verdict.store:
            return self._store(verdict, subject, reply, position)
        if verdict.refusal:
            self._answers.refuse_one(self._stream, reply, verdict.refusal)
        elif verdict.duplicate_of is not None:
            self._metrics.duplicates.inc()
            if reply and verdict.ack is not Ack.NEVER:
                self._singles.append(self._repeated(reply, verdict.duplicate_of))
        return False

    def _store(
        self, verdict: Verdict, subject: bytes, reply: bytes, position: int
    ) -> bool | RecordRun:
        """It may be: where to; unless what it asks for besides cannot be now."""
        ack = verdict.ack or self.default_ack
        refusal = None
        if self.partition.below_min_isr and (ack is Ack.COMMITTED or verdict.rollup):
            refusal = NOT_ENOUGH_REPLICAS
        elif verdict.rollup:
            refusal = self._rollups.objection(verdict.rollup)
        if refusal is not None:
            self._abort(self.partition.log_end_offset + position)
            self._answers.refuse_one(self._stream, reply, refusal)
            return False
        if verdict.rollup:
            answered = b"" if ack is Ack.NEVER else reply
            self._rollups.add(verdict.rollup, subject, position, answered)
            return self.inflow.run
        if ack is not self.default_ack:
            self._wishes[position] = ack
        return True

    def _repeated(self, reply: bytes, offset: int | None) -> tuple[bytes, int, bytes]:
        """What is to be answered for a duplicate of the message at ``offset``."""
        first = NOWHERE if offset is None else offset
        return reply, first, ack_json(self._stream, first + 1, duplicate=True)

    def _answer_when_committed(self, reply: bytes, offset: int, answer: bytes) -> None:
        """A batch is in the run, or will be with the next message."""
        if reply:
            self._singles.append((reply, offset, answer))

    def _await_singles(self, refusal: Refusal | None) -> None:
        """Now if it is committed, else with it. ``refusal``: why the run is not stored."""
        singles, self._singles = self._singles, []
        for reply, offset, answer in singles:
            if offset < self.partition.log_end_offset:
                self._awaited.add(reply, offset, answer)
            else:
                self._answers.refuse_one(self._stream, reply, refusal or INTERNAL)

    def _heard(self, reply: bytes) -> bytes:
        return reply if self.answering else b""
