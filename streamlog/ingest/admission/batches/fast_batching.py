"""Fast batches on their way into one partition: asked about by its inflow, told by its log."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from streamlog.condition import FAULT
from streamlog.ingest.admission.batches.fast_batches import (
    DISABLED,
    BatchAck,
    FastBatches,
    FastBatchLimit,
    FlowAck,
    FlowError,
    FlowGap,
    read_reply,
)
from streamlog.ingest.admission.batches.fast_run import Entry, FastBatch, FastRun
from streamlog.ingest.admission.deduplicator import Admission
from streamlog.ingest.admission.publish_headers import level_objection, publish_headers
from streamlog.ingest.admission.refusal import INTERNAL, NOT_LEADER, PublishRefusal
from streamlog.ingest.admission.rollups import NOT_REMOVED
from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.pub_ack_format import (
    batch_ack_json,
    flow_ack_json,
    flow_error_json,
    flow_gap_json,
)
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metrics import NodeMetrics
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

EVERYTHING: Final = 2**63


StoredWith = tuple[bytes | None, bytes, bytes]
"""What a message is stored as, None for as it came; and a header, in the place of its own of that name."""


class Judged(NamedTuple):
    """What becomes of a message."""

    verdict: Admission
    body: bytes | None = None
    """What it is stored as; None: as it came."""
    added: tuple[bytes, bytes] | None = None
    """A header that it is stored with, in the place of its own of that name."""


class FastBatching:
    """Part of a partition ingest, on whose event loop it is, in one leader epoch.

    Invariant: the partition is watched while anything is in flight.
    """

    __slots__ = (
        "_allowed", "_answering", "_answers", "_awaits_commit", "_batches", "_inflow", "_is_watching", "_judge",
        "_leader_epoch", "_metrics", "_now_ms", "_partition", "_rolling", "_run", "_stream", "barred",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        *,
        leader_epoch: int,
        stream: str,
        inflow: RecordCollector,
        limit: FastBatchLimit,
        answers: PubAcks,
        metrics: NodeMetrics,
        now_ms: Callable[[], int],
        judge: Callable[[bytes, bytes, int, bool], Judged],
    ) -> None:
        """``judge(header_block, subject, position, has_payload)``: as of a message that is in no batch."""
        self.barred: PublishRefusal | None = None
        """Why nothing at all is stored, if so."""
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._stream = stream
        self._inflow = inflow
        self._run = inflow.fast = FastRun()
        self._run.admit = self._admit
        self._batches = FastBatches(self._run, limit)
        self._answers = answers
        self._metrics = metrics
        self._now_ms = now_ms
        self._judge = judge
        self._rolling: list[FastBatch] = []
        """Those of which a message in the run has others go."""
        self._allowed = False
        self._answering = True
        self._awaits_commit = True
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._batches)

    def configure(
        self, *, allowed: bool, answering: bool, awaits_commit: bool, barred: PublishRefusal | None
    ) -> None:
        """From the next message on. ``awaits_commit``: an ack is for what is committed, else for what is appended."""
        self._allowed, self._answering, self._awaits_commit = allowed, answering, awaits_commit
        self.barred = barred
        self._run.is_open = allowed and barred is None
        if not allowed and self._batches:
            self._batches.clear(None)
            self._heed()

    @property
    def has_any_in_run(self) -> bool:
        return bool(self._run.touched)

    def appended(self, base_offset: int, awaited: int, *, removed: bool = True) -> None:
        """The run is in the log from there on. ``awaited``: the offset of the erasure that is to be committed before a
        message that has others go is acknowledged, or repeated; ``removed``: these others are going.
        """
        rolling, self._rolling = self._rolling, []
        if not removed:
            repeating = [it for it in self._run.touched if it.repeated >= base_offset]
            self._batches.fail_run([*rolling, *repeating], NOT_REMOVED)
        self._batches.appended(base_offset, awaited)
        if self._awaits_commit:
            self._moved()
        else:
            self._batches.committed(EVERYTHING, self._now_ms())
            self._heed()

    def not_appended(self, refusal: PublishRefusal) -> None:
        """Nothing of the run is stored. Where that is so because another leads, of which the ingest is still to be
        told, the batches have ended, be gaps ok or not.
        """
        self._rolling.clear()
        if self.has_any_in_run:
            if self._is_led:
                self._batches.not_appended(refusal)
            else:
                self._batches.clear(NOT_LEADER)
            self._heed()

    def sift(self, refused: Mapping[int, PublishRefusal], base_offset: int) -> "FastSifting":
        """The run is made again, without the messages at these positions."""
        self._rolling.clear()
        return FastSifting(self, self._batches, refused, base_offset)

    def judged_again(
        self, entry: Entry, header_block: bytes, subject: bytes, *, has_payload: bool
    ) -> bool:
        """A message of the run, at its new place, to which it goes now unless it is not stored."""
        if not self._batches.goes_on(entry):
            return False
        position = self._inflow.run.count
        verdict = self._judge(header_block, subject, position, has_payload).verdict
        if verdict.store:
            self._run.note(entry.batch, entry.number, position)
            if verdict.rollup or verdict.purged:
                self._rolling.append(entry.batch)
        elif verdict.duplicate_of is not None:
            self._run.note(entry.batch, entry.number, position, verdict.duplicate_of)
        else:
            self._batches.lose(entry, verdict.refusal or INTERNAL)
        return verdict.store

    def fail(self, from_offset: int, refusal: PublishRefusal) -> None:
        """Messages there and above will not be committed by this leader."""
        if self._batches.is_waiting:
            self._batches.fail(from_offset, refusal)
            self._heed()

    def expire(self, now_ms: int) -> None:
        """Forget what is idle."""
        self._batches.expire(now_ms)

    def close(self) -> None:
        """Leadership is over, and no other node knows the batches."""
        self.barred, self._run.is_open = NOT_LEADER, False
        self._rolling.clear()
        self._batches.clear(NOT_LEADER)
        self._heed()

    def _admit(
        self, header_block: bytes, subject: bytes, reply: bytes, has_payload: bool
    ) -> bool | bytes | StoredWith:
        """The parser asks about a message that does not simply follow."""
        try:
            return self._admitted(header_block, subject, reply, has_payload)
        except Exception:
            logger.exception(FAULT.logged_as("a message of a batch could not be judged"))
            self._batches.clear(INTERNAL)  # what they have stored is not known any more
            return False
        finally:
            self._heed()

    def _admitted(
        self, header_block: bytes, subject: bytes, reply: bytes, has_payload: bool
    ) -> bool | bytes | StoredWith:
        refusal = self.barred or (None if self._allowed else DISABLED)
        if refusal is not None:
            self._answers.refuse_one(self._stream, reply if self._answering else b"", refusal)
            return False
        asked = read_reply(reply)
        level = level_objection(publish_headers(header_block)) if header_block else None
        batch = self._batches.add(asked, reply, now_ms=self._now_ms(), level=level)
        if batch is None or asked is None:
            return False
        position = self._inflow.run.count
        verdict, body, added = self._judge(header_block, subject, position, has_payload)
        if verdict.store:
            self._batches.stored(batch, asked, position)
            if verdict.rollup or verdict.purged:
                self._rolling.append(batch)
            if added is not None:
                return body, *added
            return True if body is None else body
        if verdict.duplicate_of is not None:
            self._metrics.publish_duplicates.inc()
            self._batches.repeated(batch, asked, verdict.duplicate_of, position)
        else:
            self._batches.refused(batch, asked, verdict.refusal or INTERNAL)
        return False

    def _moved(self) -> None:
        """The partition has changed: perhaps its high watermark, perhaps its leader. A repeated message may have
        come since that was another's, and before the ingest was told: another's records are at its offset then.
        """
        if self._is_led:
            self._batches.committed(self._partition.removals_end, self._now_ms())
        else:
            self._batches.clear(NOT_LEADER)
        self._heed()

    @property
    def _is_led(self) -> bool:
        """Here, and in the epoch in which the batches began."""
        return self._partition.leads(self._leader_epoch)

    def _heed(self) -> None:
        """Tell what is to be told, and watch no longer than needed."""
        for reply, answer in self._batches.take_answers():
            if self._answering:
                self._tell(reply, answer)
        if self._batches.is_waiting != self._is_watching:
            self._is_watching = self._batches.is_waiting
            if self._is_watching:
                self._partition.add_watcher(self._moved)
            else:
                self._partition.remove_watcher(self._moved)

    def _tell(
        self, reply: bytes, answer: FlowAck | FlowGap | FlowError | BatchAck | PublishRefusal
    ) -> None:
        match answer:
            case FlowAck():
                self._answers.tell(reply, flow_ack_json(*answer))
            case FlowGap():
                self._answers.tell(reply, flow_gap_json(*answer))
            case FlowError(number, refusal):
                self._metrics.publish_rejected.labels(refusal.reason).inc()
                self._answers.tell(reply, flow_error_json(number, *refusal[:3]))
            case BatchAck(sequence, batch_id, count, repeated):
                text = batch_id.decode(errors="replace")
                ack = batch_ack_json(self._stream, sequence, text, count, duplicate=repeated)
                self._answers.acknowledge_one(reply, ack, sequence - 1)
            case PublishRefusal():
                self._answers.refuse_one(self._stream, reply, answer)


class FastSifting:
    """The messages of a run that is made again: ask ``entry_at`` about each that is kept, in order, then ``end``."""

    def __init__(
        self,
        batching: FastBatching,
        batches: FastBatches,
        refused: Mapping[int, PublishRefusal],
        base_offset: int,
    ) -> None:
        self._batching = batching
        self._batches = batches
        self._base_offset = base_offset
        self._entries = tuple(batches.run.take())
        self._left = deque(self._entries)
        for entry in self._entries:
            if entry.repeated_of < 0 and (refusal := refused.get(entry.position)) is not None:
                batches.lose(entry, refusal)

    def entry_at(self, position: int, moved: Mapping[int, int]) -> Entry | None:
        """The message there, if it is of a batch; ``moved``: where messages of the run are now that come before it."""
        left = self._left
        while left and left[0].position <= position:
            entry = left.popleft()
            if entry.repeated_of >= 0:
                self._note_repeated(entry, moved)
            elif entry.position == position:
                return entry
        return None

    def end(self, moved: Mapping[int, int]) -> None:
        while self._left:
            entry = self._left.popleft()
            if entry.repeated_of >= 0:
                self._note_repeated(entry, moved)
        self._batches.settle(self._entries)
        self._batching._heed()

    def _note_repeated(self, entry: Entry, moved: Mapping[int, int]) -> None:
        first = entry.repeated_of
        if first >= self._base_offset:
            first = moved.get(first, -1)
        if first < 0:
            self._batches.lose(entry, INTERNAL)
        elif self._batches.goes_on(entry):
            self._batches.repeated_at(entry, first)
