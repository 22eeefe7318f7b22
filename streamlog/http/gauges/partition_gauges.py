"""Gauges of partitions, made from statistics at scrape time: of all together, or of each."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, Self

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog.fairness import cooperatively
from streamlog.model import TopicPartition


class PartitionStatistics(Protocol):
    """What HTTP shows to know about a partition; an immutable value."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def segment_count(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def replica_count(self) -> int: ...
    @property
    def isr_size(self) -> int: ...
    @property
    def min_isr(self) -> int: ...
    @property
    def follower_lag(self) -> int: ...
    @property
    def in_flight_bytes(self) -> int: ...
    @property
    def is_auto_paused(self) -> bool: ...
    @property
    def is_damaged(self) -> bool: ...


Value = Callable[[PartitionStatistics], int]

GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    ("log_start_offset", "First offset that is still there", lambda p: p.log_start_offset),
    ("high_watermark", "All records below it are committed", lambda p: p.high_watermark),
    ("log_end_offset", "Next offset to be written", lambda p: p.log_end_offset),
    ("size_bytes", "Bytes of all segments", lambda p: p.size_bytes),
    ("segments", "Segments", lambda p: p.segment_count),
    ("leader_epoch", "Grows with each change of the leader", lambda p: p.leader_epoch),
    ("isr_size", "Replicas in sync", lambda p: p.isr_size),
    ("follower_lag", "Records that the follower furthest behind lacks", lambda p: p.follower_lag),
    ("in_flight_bytes", "Appended, not yet committed", lambda p: p.in_flight_bytes),
)

Counted = Callable[[PartitionStatistics], bool]

LED: Final[tuple[tuple[str, str, Counted], ...]] = (
    ("led", "Led by this node", lambda p: True),
    ("under_replicated", "... with replicas out of sync", lambda p: p.isr_size < p.replica_count),
    (
        "under_min_isr",
        "... which commit nothing for want of them",
        lambda p: p.isr_size < p.min_isr,
    ),
)
"""Of the partitions that this node leads, so that a sum over nodes counts each once."""


class KeptPartition(Protocol):
    """``partition.partition.Partition``."""

    @property
    def closed(self) -> bool: ...
    @property
    def failure(self) -> Exception | None: ...
    def statistics(self) -> PartitionStatistics: ...


class PartitionTotals:
    """Of the partitions that are added."""

    def __init__(self) -> None:
        self.partitions = 0
        self.failed = 0
        """Partitions that cannot be written to."""
        self.damaged = 0
        self.auto_paused = 0
        self.size_bytes = 0
        self.segments = 0
        self.follower_lag_max = 0
        self.led = [0] * len(LED)

    @classmethod
    async def of(cls, partitions: Iterable[KeptPartition]) -> Self:
        """In turns: there may be very many."""
        totals = cls()
        async for it in cooperatively(partitions):
            if not it.closed:
                totals.add(it.statistics())
                totals.failed += it.failure is not None
        return totals

    def add(self, it: PartitionStatistics) -> None:
        self.partitions += 1
        self.damaged += it.is_damaged
        self.auto_paused += it.is_auto_paused
        self.size_bytes += it.size_bytes
        self.segments += it.segment_count
        self.follower_lag_max = max(self.follower_lag_max, it.follower_lag)
        if it.is_leader:
            for number, (_, _, counted) in enumerate(LED):
                self.led[number] += counted(it)


class PartitionGauges(Collector):
    """One scrape's gauges, the same number of them however many partitions there are. Built on the
    event loop, turned into text anywhere.
    """

    def __init__(self, totals: PartitionTotals, *, offline: int, gone: int = 0) -> None:
        """``gone``: of so many, records are gone for good."""
        self._totals = totals
        self._offline = offline
        self._gone = gone

    def collect(self) -> Iterator[Metric]:
        here = self._totals
        for name, text, value in (
            ("partitions", "Partitions that this node keeps", here.partitions),
            (
                "partitions_offline",
                "Partitions that cannot be written to until a restart",
                self._offline,
            ),
            (
                "partitions_damaged",
                "Partitions of which this node cannot read some records",
                here.damaged,
            ),
            (
                "partitions_with_lost_records",
                "Partitions that lost acknowledged records of which no replica has any more",
                self._gone,
            ),
            (
                "partitions_auto_paused",
                "Partitions here that nobody has written to for as long as auto_pause_ms says",
                here.auto_paused,
            ),
            ("log_size_bytes", "All segments of this node", here.size_bytes),
            ("log_segments", "Segments of this node", here.segments),
            (
                "follower_lag_max",
                "Records that the follower furthest behind lacks, of all that this node leads",
                here.follower_lag_max,
            ),
        ):
            yield GaugeMetricFamily(f"streamlog_{name}", text, value)
        for (name, text, _), count in zip(LED, here.led, strict=True):
            yield GaugeMetricFamily(f"streamlog_partitions_{name}", text, count)


class EachPartition(Collector):
    """Gauges of each partition, for those who ask for some."""

    def __init__(self, partitions: Iterable[PartitionStatistics], *, hidden: int = 0) -> None:
        self._partitions = tuple(partitions)
        self._hidden = hidden

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "streamlog_partitions_hidden",
            "Partitions asked for without series, beyond http.partition_series_max",
            self._hidden,
        )
        for name, text, value in GAUGES:
            family = GaugeMetricFamily(
                f"streamlog_partition_{name}", text, labels=("stream", "partition")
            )
            for partition in self._partitions:
                labels = (partition.tp.stream, str(partition.tp.partition))
                family.add_metric(labels, value(partition))
            yield family
