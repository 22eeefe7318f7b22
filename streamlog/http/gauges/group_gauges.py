from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.groups.group import State
from streamlog.groups.service import GroupStatistics


class GroupGauges(Collector):
    """The consumer groups that this node coordinates, as they were when the scrape began."""

    def __init__(self, statistics: GroupStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        groups = self._statistics
        states = GaugeMetricFamily(
            "streamlog_consumer_groups",
            "Consumer groups coordinated by this node",
            labels=["state"],
        )
        for state in State:
            states.add_metric([state.value], groups.states[state.value])
        yield states
        yield GaugeMetricFamily(
            "streamlog_consumer_group_offsets",
            "Committed offsets kept for consumer groups coordinated by this node",
            value=groups.offsets,
        )
        yield GaugeMetricFamily(
            "streamlog_consumer_group_partitions_loading",
            "Partitions of __consumer_offsets that this node is loading",
            value=groups.loading,
        )
        yield CounterMetricFamily(
            "streamlog_consumer_group_rebalances", "Rebalances started", value=groups.rebalances
        )
        yield CounterMetricFamily(
            "streamlog_consumer_group_commits", "Offsets committed", value=groups.commits
        )
        yield CounterMetricFamily(
            "streamlog_consumer_group_expired_offsets",
            "Committed offsets removed by offset retention",
            value=groups.expired,
        )
