"""Reads one range of one partition on an executor: batches from the nodes in, Arrow batches out.

The next fetch is sent before the last one is decoded, so that the node and Spark work side by side.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamlog.arrow.data_loss import report_loss
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.row_decoder import decoder_for
from streamlog.arrow.servers.cluster_location import id_bytes, open_cluster
from streamlog.arrow.servers.replica_choice import Replicas
from streamlog.client.blocking import BlockingCluster
from streamlog.client.retry import BACKOFF_MS
from streamlog.errors import (
    CorruptBatch,
    FencedLeaderEpoch,
    NotLeader,
    PartitionNotFound,
    RequestTimedOut,
    StreamNotFound,
    Unavailable,
    UnsupportedVersion,
)
from streamlog.record.aborted import aborted_batches
from streamlog.record.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, header_fields, read_header
from streamlog.record.columns import arrow_batch
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check
from streamlog.wire.fetch import (
    READ_COMMITTED,
    AbortedRange,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from streamlog.wire.special_offsets import EARLIEST

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS: Final = 500
"""A leader keeps a fetch so long that it has nothing for yet."""
_LENGTH: Final = header_fields("batch_length")
_GONE: Final = (ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition)


class FetchReader:
    """Gives the rows of ``range_`` once. Not to be used again."""

    def __init__(self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> None:
        self._range = range_
        self._options = options
        self._schema = schema
        self._decoder = decoder_for(range_, options, schema)
        self._position = range_.start_offset  # of the next fetch
        self._asked = False  # that fetch is on its way
        self._aborted: Sequence[AbortedRange] = ()  # among the records that came last
        self._damages = 0  # batches in a row that came damaged
        self._room = bytearray()
        self._cluster: BlockingCluster
        self._replicas: Replicas

    def read(self) -> Iterator["pa.RecordBatch"]:
        """Raises CorruptBatch; RequestTimedOut where no node serves the partition; and DataLoss if
        that was asked for.
        """
        with open_cluster(self._options) as self._cluster:
            self._replicas = Replicas(self._cluster, self._range)
            try:
                while not self._done:
                    records = self._patiently_fetch()
                    if records:
                        yield from self._take_in(records)
                    else:
                        yield from self._start_anew()
            finally:
                self._replicas.close()
        yield from self._rest()

    @property
    def _done(self) -> bool:
        return self._decoder.finished or self._position >= self._range.end_offset

    def _take_in(self, records: memoryview) -> Iterator["pa.RecordBatch"]:
        aborted, self._aborted = self._aborted, ()
        try:
            self._position = self._end_of(records)
            self._ask_ahead()
            self._decoder.feed(records)
            self._decoder.passes_over = _passing_over(records, aborted)
            while self._decoder.decode():
                yield self._take()
        except CorruptBatch as error:
            self._again(error)
        else:
            self._damages = 0

    def _start_anew(self) -> Iterator["pa.RecordBatch"]:
        """What is told as lost is not to be read, though the batch may still hold it."""
        yield from self._rest()
        rest = replace(self._range, start_offset=self._position)
        self._decoder = decoder_for(rest, self._options, self._schema)

    def _rest(self) -> Iterator["pa.RecordBatch"]:
        if self._decoder.row_count:
            yield self._take()

    def _take(self) -> "pa.RecordBatch":
        name = self._range.name
        return arrow_batch(self._decoder.take(), self._schema, name.stream, name.partition)

    def _end_of(self, records: memoryview) -> int:
        """The offset after the last whole batch, of which each must begin where the one before
        ends; nothing else of them is looked at here.
        """
        position, last, size = 0, 0, len(records)
        while position + HEADER_BYTES <= size:
            (length,) = _LENGTH.unpack_from(records, position)
            end = position + LENGTH_PREFIX_BYTES + length
            if length < HEADER_BYTES - LENGTH_PREFIX_BYTES or end > size:
                break
            position, last = end, position
        offset = read_header(records, last).next_offset if position else self._position
        if offset <= self._position:
            raise CorruptBatch(f"no whole batch at offset {self._position}")
        return offset

    def _again(self, error: CorruptBatch) -> None:
        """The batch may be whole on another replica; what came before it has been decoded."""
        self._damages += 1
        address = self._replicas.address
        self._fail()
        try:
            self._decoder.feed(b"")
        except ValueError:  # rows of the damaged batch are among those decoded
            self._damages = self._options.fetch.retries + 1
        if self._damages > self._options.fetch.retries:
            where = f"{self._range.name}, from {address}"
            remedy = "streamlog log verify tells more on that node, and its scrub repairs it"
            raise CorruptBatch(f"{where}: {error}; {remedy}") from None
        self._position = max(self._decoder.next_offset, self._range.start_offset)

    def _patiently_fetch(self) -> memoryview | None:
        """What comes from the position on; nothing where what is lost has been told."""
        patience_ms = self._options.fetch.timeout_ms
        deadline = time.monotonic() + patience_ms / 1000
        before = self._position
        while True:
            try:
                records = self._fetch()
                if records or self._position != before:
                    return records
                problem = f"offset {before} is not committed on {self._replicas.address}"
            except (StreamNotFound, PartitionNotFound):
                self._lost_before(self._range.end_offset, "the stream was deleted")
                return None
            except (Unavailable, FencedLeaderEpoch) as error:
                problem = str(error)
                self._fail()
                time.sleep(BACKOFF_MS / 1000)
            if time.monotonic() >= deadline:
                remedy = (
                    "see that executors reach the nodes at the addresses that these advertise"
                    " (kafka.advertised_host, kafka.advertised_port)"
                )
                name = self._range.name
                raise RequestTimedOut(f"{name}: {problem}, for {patience_ms} ms; {remedy}")

    def _fetch(self) -> memoryview | None:
        if not self._asked:
            self._ask()
        self._asked = False
        answer = self._replicas.connection().receive_fetch(self._room_for)
        check(answer.error_code, str(self._range.name))
        if not answer.partitions:  # a quota is used up
            time.sleep(answer.throttle_ms / 1000)
            return None
        (fetched,) = answer.partitions
        code = fetched.fetched.error_code
        if code == ErrorCode.offset_out_of_range:
            self._out_of_range(fetched.fetched)
        elif code in _GONE:
            self._gone()
        else:
            check(code, f"{self._range.name} on {self._replicas.address}")
            if not fetched.records and not self._replicas.is_leader:
                raise NotLeader(f"{self._replicas.address} has not got offset {self._position} yet")
            self._aborted = fetched.fetched.aborted
        return fetched.records

    def _room_for(self, length: int) -> bytearray:
        """The same for each answer, for it is decoded before the next one is received."""
        if len(self._room) < length:
            self._room = bytearray(length)
        return self._room

    def _ask(self) -> None:
        connection = self._replicas.connection()
        if not connection.fetches_by_id:
            problem = "does not fetch by the id of a stream (Fetch version 13)"
            raise UnsupportedVersion(f"{self._replicas.address} {problem}")
        max_bytes = self._options.fetch.max_bytes
        wanted = FetchPartition(
            self._range.name.partition, self._position, max_bytes, self._replicas.leader_epoch
        )
        topic = FetchTopic(self._range.name.stream, [wanted], id_bytes(self._range.stream_id))
        wait_ms = WAIT_MS if self._replicas.is_leader else 0
        connection.send_fetch(
            FetchRequest([topic], wait_ms, 1, max_bytes, isolation_level=READ_COMMITTED)
        )
        self._asked = True

    def _ask_ahead(self) -> None:
        if not self._done:
            try:
                self._ask()
            except (Unavailable, FencedLeaderEpoch):
                self._fail()  # the next fetch asks again

    def _fail(self) -> None:
        self._asked = False
        self._replicas.fail()

    def _out_of_range(self, fetched: FetchedPartition) -> None:
        """Only the leader knows for certain where the log starts and ends."""
        if not self._replicas.is_leader:
            raise NotLeader(f"offset {self._position} is outside of the log of a follower")
        name, start = self._range.name, fetched.log_start_offset
        if start < 0:
            start = self._cluster.list_offsets([name], EARLIEST)[name]
        if self._position < start:
            self._lost_before(start, f"the log starts at {start} now")
        else:
            self._lost_before(self._range.end_offset, f"the log ends before {self._position}")

    def _gone(self) -> None:
        """Unless it is only the node asked that does not know the stream."""
        stream = self._range.name.stream
        self._cluster.forget(stream)
        found = str(self._cluster.topic(stream).topic_id)
        if found == self._range.stream_id:
            raise NotLeader(f"{self._replicas.address} does not know {self._range.name}")
        self._lost_before(self._range.end_offset, "the stream was deleted and created again")

    def _lost_before(self, offset: int, why: str) -> None:
        end = min(offset, self._range.end_offset)
        first, self._position = self._position, end
        report_loss(self._range.name, first, end, why, self._options)


def _passing_over(
    records: memoryview, aborted: Sequence[AbortedRange]
) -> Callable[[int, int], bool] | None:
    """What the decoder asks of each batch of a transaction."""
    if not aborted:
        return None
    found = aborted_batches(records, aborted)
    return lambda _, base_offset: base_offset in found
