"""Leaders in memory that judge producers as real ones do, and let a test come in between."""

from collections import Counter
from collections.abc import Callable, Iterator

from streamlog.arrow.sink.partition_leaders import Batch
from streamlog.errors import StreamNotFound
from streamlog.model import TopicPartition
from streamlog.record.batch import read_header
from streamlog.record.codec import Record, iter_records
from streamlog.record.produced import check_inside, check_outside, stamp
from streamlog.replication.producer_table import ProducerTable


class Killed(Exception):
    """The end of an attempt, in the midst of whatever it did."""


def _nothing(tp: TopicPartition) -> None:
    pass


class ScriptedLeaders:
    """``Leaders`` of one stream."""

    def __init__(self, stream: str = "orders", partitions: int = 1) -> None:
        self._tps = [TopicPartition(stream, number) for number in range(partitions)]
        self._tables = {tp: ProducerTable(expiration_ms=10**9) for tp in self._tps}
        self._logs: dict[TopicPartition, list[Batch]] = {tp: [] for tp in self._tps}
        self.before: Callable[[TopicPartition], None] = _nothing
        self.after: Callable[[TopicPartition], None] = _nothing
        self.append_time_ms: int | None = None

    def partition_count(self, stream: str) -> int:
        if stream != self._tps[0].stream:
            raise StreamNotFound(stream)
        return len(self._tps)

    def produce(self, tp: TopicPartition, batch: bytes) -> int:
        self.before(tp)
        base_offset = self.take(tp, batch)
        self.after(tp)
        return base_offset

    def take(self, tp: TopicPartition, batch: bytes) -> int:
        checked = check_inside(check_outside(batch), batch)
        kept = self._tables[tp].check_sequence(checked.header)
        if kept is not None:
            return kept.base_offset
        offset = self._end(tp)
        data = stamp(
            checked, base_offset=offset, leader_epoch=0, append_time_ms=self.append_time_ms
        )
        header = read_header(data)
        self._tables[tp].note(header, offset, 0)
        self._logs[tp].append((header, memoryview(data)))
        return offset

    def committed(self, tp: TopicPartition, offset: int) -> Iterator[Batch]:
        return iter([it for it in self._logs[tp] if it[0].next_offset > offset])

    def records(self, partition: int = 0) -> list[Record]:
        return [it for _, data in self._logs[self._tps[partition]] for it in iter_records(data)]

    def counts(self, partition: int = 0) -> list[int]:
        """Of the records of each batch."""
        return [header.record_count for header, _ in self._logs[self._tps[partition]]]

    def values(self) -> Counter[bytes | None]:
        """Of all partitions."""
        return Counter(it.value for tp in self._tps for it in self.records(tp.partition))

    def _end(self, tp: TopicPartition) -> int:
        log = self._logs[tp]
        return log[-1][0].next_offset if log else 0
