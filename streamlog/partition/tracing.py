"""The way of some batches, told span by span. Where nothing is traced, none of this is there: a
node that traces has partitions of another class.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from streamlog.errors import StreamlogError
from streamlog.log.segment.file_slice import FileSlice
from streamlog.model import NO_EPOCH, NO_INCARNATION, EpochEnd, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.producer_state_manager import ProducerAppend, VerifiedTransaction
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun
from streamlog.record.produced import ProducedBatch

OPEN_MAX: Final = 256
"""Traces of one node that wait for their commit; no more are begun then."""
SECOND_NS: Final = 1_000_000_000


@dataclass(slots=True)
class BatchTrace:
    """One batch, from the read that brought it to its acks. Times in nanoseconds since 1970."""

    tp: TopicPartition
    leader_epoch: int
    received_ns: int
    """When the read began that brought it; when it was appended, for what no read of NATS did."""
    append_began_ns: int
    records: int = 0
    size_bytes: int = 0
    base_offset: int = -1
    end_offset: int = -1
    appended_ns: int = 0
    synced_ns: int = 0
    """0 where it is acknowledged without a sync."""
    replicated_ns: dict[NodeId, int] = field(default_factory=dict)
    """When each follower was first heard to have it."""
    committed_ns: int = 0
    acked_ns: int = 0
    error: str = ""


class Traces:
    """Which batches are traced, and what becomes of the traces.

    Every n-th batch by ``sample_ratio``, but no more than ``batches_per_s_max`` in a second and
    ``OPEN_MAX`` at a time.
    """

    def __init__(
        self,
        export: Callable[[BatchTrace], None],
        *,
        sample_ratio: float,
        batches_per_s_max: int,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.now_ns = now_ns
        self.open = 0
        self._export = export
        self._ratio = sample_ratio
        self._per_s_max = batches_per_s_max
        self._credit = 0.0
        self._second = self._begun = 0
        self._read_ns = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around what parses and appends what one read of NATS has brought."""
        self._read_ns = self.now_ns()
        try:
            yield
        finally:
            self._read_ns = 0

    def begin(self, tp: TopicPartition, leader_epoch: int) -> BatchTrace | None:
        """None where this batch is not traced."""
        self._credit += self._ratio
        if self._credit < 1:
            return None
        self._credit -= 1
        now_ns = self.now_ns()
        second = now_ns // SECOND_NS
        if second != self._second:
            self._second, self._begun = second, 0
        if self._begun >= self._per_s_max or self.open >= OPEN_MAX:
            return None
        self._begun += 1
        self.open += 1
        return BatchTrace(tp, leader_epoch, self._read_ns or now_ns, now_ns)

    def end(self, trace: BatchTrace) -> None:
        self.open -= 1
        self._export(trace)


class _TracedAck:
    """An ``Acknowledgement`` that tells the trace as well."""

    __slots__ = ("_ack", "_partition", "_trace")

    def __init__(
        self, ack: Acknowledgement, trace: BatchTrace, partition: "TracedPartition"
    ) -> None:
        self._ack = ack
        self._trace = trace
        self._partition = partition

    def committed(self, base_offset: int) -> None:
        self._partition.note_commit(self._trace)
        self._ack.committed(base_offset)
        self._partition.end(self._trace)

    def failed(self, error: StreamlogError) -> None:
        self._trace.error = type(error).__name__
        self._ack.failed(error)
        self._partition.end(self._trace)


class TracedPartition(Partition):
    """A partition some of whose batches are traced while it leads."""

    __slots__ = ("_open", "traces")

    def __init__(self, *args: Any, traces: Traces, **kwargs: Any) -> None:
        self.traces = traces
        self._open: list[BatchTrace] = []
        super().__init__(*args, **kwargs)

    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int:
        trace = self.traces.begin(self.tp, self.leader_epoch)
        if trace is None:
            return super().append(run, ack, leader_epoch=leader_epoch)
        trace.records = run.count
        try:
            base = super().append(run, _TracedAck(ack, trace, self), leader_epoch=leader_epoch)
        except StreamlogError as error:
            self._refused(trace, error)
            raise
        self._appended(trace, base)
        return base

    def produce(
        self,
        batch: ProducedBatch,
        ack: Acknowledgement,
        *,
        verified: VerifiedTransaction | None = None,
    ) -> ProducerAppend:
        trace = self.traces.begin(self.tp, self.leader_epoch)
        if trace is None:
            return super().produce(batch, ack, verified=verified)
        trace.records = batch.record_count
        try:
            appended = super().produce(batch, _TracedAck(ack, trace, self), verified=verified)
        except StreamlogError as error:
            self._refused(trace, error)
            raise
        if not trace.acked_ns:  # what is there already may be committed
            self._appended(trace, appended.base_offset)
        return appended

    def offsets_changed(self) -> None:
        super().offsets_changed()
        if self._open:
            now_ns, point = self.traces.now_ns(), self.recovery_point
            for trace in self._open:
                if not trace.synced_ns and trace.end_offset <= point:
                    trace.synced_ns = now_ns

    async def read_for_follower(
        self,
        node_id: NodeId,
        node_epoch: int,
        offset: int,
        last_epoch: int,
        max_bytes: int,
        *,
        log_start: int = 0,
        incarnation: int = NO_INCARNATION,
        partition_epoch: int = NO_EPOCH,
    ) -> FileSlice | EpochEnd:
        if self._open:  # what it has counts at once, and may end the trace
            now_ns = self.traces.now_ns()
            for trace in self._open:
                if trace.end_offset <= offset:
                    trace.replicated_ns.setdefault(node_id, now_ns)
        return await super().read_for_follower(
            node_id,
            node_epoch,
            offset,
            last_epoch,
            max_bytes,
            log_start=log_start,
            incarnation=incarnation,
            partition_epoch=partition_epoch,
        )

    def note_commit(self, trace: BatchTrace) -> None:
        """A sync that commits is told of after the acks."""
        trace.committed_ns = self.traces.now_ns()
        if not trace.synced_ns and trace.end_offset <= self.recovery_point:
            trace.synced_ns = trace.committed_ns

    def end(self, trace: BatchTrace) -> None:
        """Its acks are on their way, or it has failed."""
        trace.acked_ns = self.traces.now_ns()
        if trace in self._open:
            self._open.remove(trace)
        self.traces.end(trace)

    def _appended(self, trace: BatchTrace, base_offset: int) -> None:
        trace.appended_ns = self.traces.now_ns()
        trace.base_offset, trace.end_offset = base_offset, self.log_end_offset
        trace.size_bytes = self.state.appended_bytes
        self._open.append(trace)

    def _refused(self, trace: BatchTrace, error: StreamlogError) -> None:
        trace.error = type(error).__name__
        self.end(trace)
