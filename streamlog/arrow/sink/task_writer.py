import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from streamlog.arrow.sink.earlier_attempts import EarlierAttempts, are_in
from streamlog.arrow.sink.partition_leaders import Leaders
from streamlog.arrow.sink.partition_writer import PartitionWriter
from streamlog.arrow.sink.rows import NO_PARTITION, Row, Rows
from streamlog.arrow.sink.task_attempt import TaskAttempt
from streamlog.arrow.sink.write_options import WriteOptions
from streamlog.client.blocking import with_retries
from streamlog.condition import NO_ACTION, NOTE, Condition
from streamlog.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    PartitionNotFound,
    ProducerRefused,
    Unavailable,
)
from streamlog.model import TopicPartition
from streamlog.record.compiled.keys import murmur2

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

T = TypeVar("T")

EARLIER_ATTEMPT: Final = Condition(
    "SL-0282",
    "an earlier attempt of this task has written here",
    NO_ACTION,
    meaning="A task of a write is attempted again. It reads what the earlier attempt has written, and "
    "writes the rest.",
    severity=NOTE,
)
LEFT_OVER: Final = Condition(
    "SL-0283",
    "an earlier attempt wrote records that this one does not have",
    "write from a source that gives the same rows each time",
    meaning="Attempts of one task of a write had different rows. What the earlier attempt has written "
    "stays in the stream, beside what the successful one wrote.",
)

BUFFERED_BYTES_MAX: Final = 64 << 20
"""Of all partitions' records that are not sent yet; above it all are sent."""


class TaskWriter:
    """One attempt of a task, in one thread of an executor: rows into the log, each once."""

    def __init__(
        self, leaders: Leaders, attempt: TaskAttempt, rows: Rows, options: WriteOptions
    ) -> None:
        self._leaders = leaders
        self._attempt = attempt
        self._rows = rows
        self._options = options
        self._writers: dict[tuple[str, int], PartitionWriter] = {}
        """By stream and partition."""
        self._partition_counts: dict[str, int] = {}
        self._buffered_bytes = 0
        """Of all writers' runs."""

    def write(self, batches: Iterable["pa.RecordBatch"]) -> int:
        """Returns when all rows are committed: how many there are.

        Raises InvalidRecord, StreamNotFound, InvalidProducerEpoch where another attempt has taken
        over, RequestTimedOut, and what a leader answers.
        """
        count = 0
        for batch in batches:
            for row in self._rows.of(batch):
                self._add(row)
            count += batch.num_rows
        self._send_all()
        self._report()
        return count

    @property
    def written(self) -> int:
        """Records that this attempt has got into the log."""
        return sum(it.written for it in self._writers.values())

    @property
    def found(self) -> int:
        """Records that an earlier attempt had written already."""
        return sum(it.found for it in self._writers.values())

    def _add(self, row: Row) -> None:
        topic, number, content = row
        if number == NO_PARTITION:
            key = content[0]
            number = self._attempt.task if key is None else murmur2(key) & 0x7FFFFFFF
            number %= self._partition_counts.get(topic) or self._count(topic)
        writer = self._writers.get((topic, number)) or self._open(topic, number)
        if not writer.fits(content):
            self._send(writer)
        before = writer.size_bytes
        writer.add(content)
        self._buffered_bytes += writer.size_bytes - before
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._send_all()

    def _count(self, topic: str) -> int:
        count = self._partition_counts[topic] = self._leaders.partition_count(topic)
        return count

    def _open(self, topic: str, number: int) -> PartitionWriter:
        count = self._partition_counts.get(topic) or self._count(topic)
        if number >= count:
            raise PartitionNotFound(f"stream {topic!r} has {count} partitions, no {number}")
        writer = self._writers[topic, number] = PartitionWriter(
            TopicPartition(topic, number),
            self._attempt.producer_id,
            batch_bytes=self._options.batch_bytes,
            compression=self._options.compression,
        )
        return writer

    def _send_all(self) -> None:
        for writer in self._writers.values():
            self._send(writer)

    def _send(self, writer: PartitionWriter) -> None:
        """Returns when what the writer has is committed."""
        self._buffered_bytes -= writer.size_bytes
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1000
        while (batch := writer.sealed(_now_ms())) is not None:
            try:
                base_offset = self._leaders.produce(writer.tp, batch)
            except ProducerRefused as error:
                if writer.owns or time.monotonic() > deadline:
                    text = f"{error}: another attempt of this task has taken over"
                    raise InvalidProducerEpoch(text) from error
                self._take_over(writer, error.first_offset)
            else:
                if writer.is_takeover:
                    self._check_own(writer, base_offset)
                writer.acknowledged()

    def _take_over(self, writer: PartitionWriter, first_offset: int) -> None:
        tp = writer.tp
        if first_offset < 0:
            raise InvalidRequest(f"{tp}: its leader is too old to be written to so; upgrade it")
        extra = {"stream": tp.stream, "partition": tp.partition, "offset": first_offset}
        logger.info(EARLIER_ATTEMPT, extra=extra)

        def look() -> EarlierAttempts:
            found = EarlierAttempts.of(
                self._leaders.committed(tp, first_offset),
                self._attempt.producer_id,
                have_times=self._rows.have_times,
            )
            if found is None:
                raise Unavailable("what an earlier attempt wrote is not committed")
            return found

        writer.take_over(self._patiently(look, tp))

    def _check_own(self, writer: PartitionWriter, base_offset: int) -> None:
        """Two that take over at once may have chosen the same epoch: then the leader takes the
        batch of the second for a repetition of the first one's.
        """

        def look() -> bool:
            for batch in self._leaders.committed(writer.tp, base_offset):
                return are_in(writer.unsure, batch, have_times=self._rows.have_times)
            raise Unavailable(f"no batch at {base_offset}")

        if not self._patiently(look, writer.tp):
            text = f"{writer.tp}: another attempt of this task is writing at the same time"
            raise InvalidProducerEpoch(text)

    def _patiently(self, look: Callable[[], T], tp: TopicPartition) -> T:
        return with_retries(look, self._options.delivery_timeout_ms, about=str(tp))

    def _report(self) -> None:
        for (stream, partition), writer in self._writers.items():
            if writer.left_over:
                logger.warning(
                    LEFT_OVER,
                    extra={
                        "stream": stream,
                        "partition": partition,
                        "records": writer.left_over,
                    },
                )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
