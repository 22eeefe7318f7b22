"""Gauges of partitions, made from statistics at scrape time: of all together, or of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Self

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog.condition import Condition
from streamlog.fairness import cooperatively
from streamlog.partition.partition import Partition
from streamlog.partition.state import PartitionStatistics

STREAMS_MAX: Final = 100
"""Named in one request."""


class PartitionScrape:
    """Ten thousand partitions are 90,000 series: a Prometheus asks for those that it is to keep."""

    def __init__(
        self,
        *,
        statistics: Callable[[Iterable[str] | None], Awaitable[list[PartitionStatistics]]],
        partitions_max: int,
    ) -> None:
        """``statistics``: of the partitions here of these streams; None: of all."""
        self._statistics = statistics
        self._partitions_max = partitions_max

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics/partitions", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        streams = request.query.getall("stream", [])
        if len(streams) > STREAMS_MAX:
            raise web.HTTPBadRequest(text=f"stream: at most {STREAMS_MAX} in one request\n")
        found = await self._statistics(set(streams) if streams else None)
        found.sort(key=lambda it: it.tp)
        shown = tuple(islice(found, self._partitions_max))
        gauges = EachPartition(shown, omitted=len(found) - len(shown))
        text = await asyncio.to_thread(generate_latest, gauges)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


TIER_FALLS_BEHIND: Final = Condition(
    "SL-0908",
    "tiered storage falls behind",
    "raise tier.bandwidth_bytes_per_s or tier.concurrency, or see why the object store is slow",
    meaning="Leaders close segments of tiered streams faster than they copy them to the object store.",
)

Value = Callable[[PartitionStatistics], int]

GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    ("log_start_offset", "First offset of the partition", lambda p: p.log_start_offset),
    (
        "local_log_start_offset",
        "First offset of the log on this node; what a tiered partition has below is in the object store",
        lambda p: p.local_log_start_offset,
    ),
    (
        "tiered_end_offset",
        "End of what the object store has of the partition; -1: nothing",
        lambda p: p.tiered_end_offset,
    ),
    (
        "tier_lag_bytes",
        "Bytes of closed segments that this leader has yet to copy to the object store",
        lambda p: p.tier_lag_bytes,
    ),
    (
        "high_watermark",
        "High watermark: all records below it are committed",
        lambda p: p.high_watermark,
    ),
    ("log_end_offset", "Next offset to be written", lambda p: p.log_end_offset),
    (
        "undecided_offsets",
        "Committed offsets that readers of committed records wait for: from the first open transaction on",
        lambda p: p.undecided,
    ),
    ("size_bytes", "Bytes of the partition's segments", lambda p: p.size_bytes),
    ("segments", "Segments of the partition", lambda p: p.segment_count),
    ("leader_epoch", "Leader epoch; it grows with each leader change", lambda p: p.leader_epoch),
    ("isr_size", "In-sync replicas", lambda p: p.isr_size),
    ("follower_lag", "Records that the slowest follower lacks", lambda p: p.follower_lag),
    ("in_flight_bytes", "Bytes appended but not yet committed", lambda p: p.in_flight_bytes),
)

Counted = Callable[[PartitionStatistics], bool]

LED: Final[tuple[tuple[str, str, Counted], ...]] = (
    ("led", "Partitions led by this node", lambda p: True),
    (
        "under_replicated",
        "Partitions led by this node with replicas out of sync",
        lambda p: p.isr_size < p.replica_count,
    ),
    (
        "under_min_isr",
        "Partitions led by this node with fewer than min_isr replicas in sync; they commit nothing",
        lambda p: p.isr_size < p.min_isr,
    ),
)
"""Of the partitions that this node leads, so that a sum over nodes counts each once."""


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
        self.tier_lag_bytes = 0
        self.tier_lag_segments = 0
        self.led = [0] * len(LED)

    @classmethod
    async def of(cls, partitions: Iterable[Partition]) -> Self:
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
        self.tier_lag_bytes += it.tier_lag_bytes
        self.tier_lag_segments += it.tier_lag_segments
        self.follower_lag_max = max(self.follower_lag_max, it.follower_lag)
        if it.is_leader:
            for number, (_, _, counted) in enumerate(LED):
                self.led[number] += counted(it)


class PartitionGauges(Collector):
    """One scrape's gauges, the same number of them however many partitions there are. Built on the
    event loop, turned into text anywhere.
    """

    def __init__(self, totals: PartitionTotals, *, failed: int, gone: int = 0) -> None:
        """``gone``: the number of partitions that lost records for good."""
        self._totals = totals
        self._failed = failed
        self._gone = gone

    def collect(self) -> Iterator[Metric]:
        here = self._totals
        for name, text, value in (
            ("partitions", "Partitions with a replica on this node", here.partitions),
            (
                "failed_partitions",
                "Partitions whose local log has failed; they accept no writes until a restart",
                self._failed,
            ),
            (
                "partitions_damaged",
                "Partitions with records that this node cannot read",
                here.damaged,
            ),
            (
                "partitions_with_lost_records",
                "Partitions that lost acknowledged records for good: no replica has them",
                self._gone,
            ),
            (
                "partitions_auto_paused",
                "Partitions paused because they have been idle for auto_pause_ms or log.idle_close_ms",
                here.auto_paused,
            ),
            ("log_size_bytes", "Bytes of all segments of this node", here.size_bytes),
            ("log_segments", "Segments of this node", here.segments),
            (
                "follower_lag_max",
                "Records that the slowest follower lacks, over all partitions led by this node",
                here.follower_lag_max,
            ),
            (
                "tier_lag_bytes",
                "Bytes of closed segments of tiered streams that this node has yet to copy to the object store",
                here.tier_lag_bytes,
            ),
            (
                "tier_lag_segments",
                "Closed segments of tiered streams that this node has yet to copy to the object store",
                here.tier_lag_segments,
            ),
        ):
            yield GaugeMetricFamily(f"streamlog_{name}", text, value)
        for (name, text, _), count in zip(LED, here.led, strict=True):
            yield GaugeMetricFamily(f"streamlog_partitions_{name}", text, count)


class EachPartition(Collector):
    """Gauges of each partition, for those who ask for some."""

    def __init__(self, partitions: Iterable[PartitionStatistics], *, omitted: int = 0) -> None:
        self._partitions = tuple(partitions)
        self._omitted = omitted

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "streamlog_partitions_series_omitted",
            "Requested partitions without series, beyond http.metrics_partitions_max",
            self._omitted,
        )
        for name, text, value in GAUGES:
            family = GaugeMetricFamily(
                f"streamlog_partition_{name}", text, labels=("stream", "partition")
            )
            for partition in self._partitions:
                labels = (partition.tp.stream, str(partition.tp.partition))
                family.add_metric(labels, value(partition))
            yield family
