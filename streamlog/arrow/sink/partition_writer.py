"""What one attempt of a task writes to one partition: records into numbered batches. Pure.

The first attempt to write owns the producer id in that partition. A later attempt is refused at
its first batch; it reads what lies there, leaves out what it has of that, and takes over: with a
newer epoch, going on at the sequence where the log ends. The leader takes that only if no attempt has
written since, and refuses the older attempt from then on.
"""

from collections import Counter
from typing import Final

from streamlog.arrow.sink.earlier_attempts import EarlierAttempts, digest
from streamlog.arrow.sink.rows import Content
from streamlog.arrow.sink.task_attempt import epoch_after, first_sequence
from streamlog.errors import BrokenInvariant
from streamlog.model import TopicPartition
from streamlog.record.codec import RecordRun
from streamlog.record.compression import Compression
from streamlog.replication.producer_state import following

RECORD_OVERHEAD_BYTES: Final = 32
"""Of lengths, deltas and counts; each header has two lengths more."""


class PartitionWriter:
    """Invariant: a record is in the run, or in the log, or on its way in the batch last sealed."""

    def __init__(
        self, tp: TopicPartition, producer_id: int, *, batch_bytes: int, compression: Compression
    ) -> None:
        self.tp = tp
        self.written = 0
        """Records that this attempt has got into the log."""
        self.found = 0
        """Records that it has left out, since an earlier attempt wrote them."""
        self.owns = False
        """A batch of this attempt is in the log: only a newer attempt can be in its way."""
        self.unsure: list[Content] = []
        """The records of the run, or of the batch made of it, while they may have to go into
        another batch, or are to be compared with what the log has.
        """
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = first_sequence()
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._run = RecordRun()
        self._base_ms: int | None = None
        self._max_ms = 0
        self._batch: bytes | None = None
        self._batch_count = 0
        self._matched: Counter[bytes] = Counter()
        self._earlier: Counter[bytes] = Counter()
        self._timed = False

    @property
    def count(self) -> int:
        """Records in the run."""
        return self._run.count

    @property
    def size_bytes(self) -> int:
        return self._run.size_bytes

    @property
    def left_over(self) -> int:
        """Records that an earlier attempt wrote, and this one has not come across."""
        return self._earlier.total()

    @property
    def is_takeover(self) -> bool:
        return self._epoch > 0

    def fits(self, content: Content) -> bool:
        """Else the run is to be sent first."""
        if not self._run.count:
            return True
        key, value, headers, _ = content
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, data in headers:
            size += RECORD_OVERHEAD_BYTES + len(name) + len(data or b"")
        return self._run.size_bytes + size <= self._batch_bytes

    def add(self, content: Content) -> None:
        if self._earlier and self._is_there(content):
            return
        key, value, headers, timestamp_ms = content
        delta = 0
        if timestamp_ms is not None:
            if self._base_ms is None:
                self._base_ms = self._max_ms = timestamp_ms
            self._max_ms = max(self._max_ms, timestamp_ms)
            delta = timestamp_ms - self._base_ms
        self._run.append(key, value, headers, delta)
        if not self.owns or self.is_takeover:
            self.unsure.append(content)

    def sealed(self, now_ms: int) -> bytes | None:
        """The batch to send: the same one until it is acknowledged; None: there is none."""
        if self._batch is None and self._run.count:
            base_ms = now_ms if self._base_ms is None else self._base_ms
            max_ms = now_ms if self._base_ms is None else self._max_ms
            self._batch_count = self._run.count
            self._batch = self._run.seal(
                base_offset=0,
                leader_epoch=-1,
                timestamp_ms=base_ms,
                max_timestamp_ms=max_ms,
                compression=self._compression,
                producer=(self._producer_id, self._epoch, self._sequence),
            )
            self._base_ms = None
        return self._batch

    def acknowledged(self) -> None:
        """The batch is in the log."""
        self.written += self._batch_count
        self._sequence = following(self._sequence, self._batch_count)
        self._batch = None
        self.owns = True
        self.unsure.clear()

    def take_over(self, earlier: EarlierAttempts) -> None:
        """The batch was refused: what is in it goes into another one, without what is there.

        Raises InvalidProducerEpoch.
        """
        if self.owns:
            raise BrokenInvariant("an owner is refused for the sake of a newer attempt only")
        contents, self.unsure = self.unsure, []
        self._timed = earlier.timed
        self._earlier = earlier.records - self._matched
        self._epoch = epoch_after(earlier.epoch)
        self._sequence = earlier.next_sequence
        self._batch = None
        self._base_ms = None
        self._run.clear()
        for content in contents:
            self.add(content)

    def _is_there(self, content: Content) -> bool:
        found = digest(content, timed=self._timed)
        if not self._earlier[found]:
            return False
        self._earlier[found] -= 1
        if not self._earlier[found]:
            del self._earlier[found]
        self._matched[found] += 1
        self.found += 1
        return True
