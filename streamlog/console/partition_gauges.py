"""Gauges of each partition, made from statistics at scrape time."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog.model import TopicPartition


class PartitionStatistics(Protocol):
    """What the console needs to know about a partition; an immutable value."""

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


class PartitionGauges(Collector):
    """One scrape's gauges. Built on the event loop, turned into text anywhere."""

    def __init__(self, partitions: Iterable[PartitionStatistics], *, offline: int) -> None:
        self._partitions = tuple(partitions)
        self._offline = offline

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "streamlog_partitions_offline",
            "Partitions that cannot be written to until a restart",
            self._offline,
        )
        yield GaugeMetricFamily(
            "streamlog_partitions_damaged",
            "Partitions of which this node cannot read some records",
            sum(1 for it in self._partitions if it.is_damaged),
        )
        yield GaugeMetricFamily(
            "streamlog_partitions_auto_paused",
            "Partitions on this node that nobody has written to for as long as auto_pause_ms says",
            sum(1 for it in self._partitions if it.is_auto_paused),
        )
        for name, text, counted in LED:
            count = sum(1 for it in self._partitions if it.is_leader and counted(it))
            yield GaugeMetricFamily(f"streamlog_partitions_{name}", text, count)
        for name, text, value in GAUGES:
            family = GaugeMetricFamily(
                f"streamlog_partition_{name}", text, labels=("stream", "partition")
            )
            for partition in self._partitions:
                labels = (partition.tp.stream, str(partition.tp.partition))
                family.add_metric(labels, value(partition))
            yield family
