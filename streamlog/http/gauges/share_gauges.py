"""Gauges of share groups, exported by the leader of each partition that they read."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.shares.share_service import ShareStatistics


class ShareGauges(Collector):
    """What this node delivers to share groups, as it was when the scrape began."""

    def __init__(self, statistics: ShareStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        told = self._statistics
        yield GaugeMetricFamily(
            "streamlog_share_partitions",
            "Partitions led by this node that share groups read, once for each group",
            value=told.partitions,
        )
        yield GaugeMetricFamily(
            "streamlog_share_sessions",
            "Share sessions: members of share groups that fetch from this node",
            value=told.sessions,
        )
        yield CounterMetricFamily(
            "streamlog_share_acquired_records",
            "Records acquired by members of share groups, redeliveries included",
            value=told.acquired,
        )
        yield CounterMetricFamily(
            "streamlog_share_acknowledged_records",
            "Records that members of share groups accepted or rejected",
            value=told.acknowledged,
        )
        yield CounterMetricFamily(
            "streamlog_share_archived_records",
            "Records given up after share.delivery.count.limit deliveries",
            value=told.archived,
        )
