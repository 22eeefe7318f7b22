"""Gauges of consumer groups, exported by each group's coordinator alone; among them consumer lag."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.condition import Condition
from streamlog.groups.group import CLASSIC_TYPE, CONSUMER_TYPE, State
from streamlog.groups.offsets import consumer_lag
from streamlog.groups.service import GroupProgress, GroupStatistics
from streamlog.groups.shares.share_group import SHARE_TYPE
from streamlog.model import TopicPartition

GROUP_BEHIND: Final = Condition(
    "SL-0903",
    "consumer group falls behind",
    "add consumers, up to the number of partitions, or make them quicker",
    meaning="The consumer lag of a group is large and grows.",
)
GROUP_STALLED: Final = Condition(
    "SL-0904",
    "consumer group commits nothing",
    "`streamlog group info` names its members; see their logs",
    meaning="A group has members and records to read, and its committed offsets do not move.",
)
GROUP_EMPTY: Final = Condition(
    "SL-0905",
    "consumer group has no members",
    "start its consumers, or delete the group: `streamlog group rm`",
    meaning="A group has records to read, and no consumer reads them.",
)


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
        for state in (*(it.value for it in State), "Assigning", "Reconciling"):
            states.add_metric([state], groups.states[state])
        yield states
        types = GaugeMetricFamily(
            "streamlog_consumer_groups_by_type",
            "Consumer groups coordinated by this node, by the protocol of their members",
            labels=["type"],
        )
        for type_ in (CLASSIC_TYPE, CONSUMER_TYPE, SHARE_TYPE):
            types.add_metric([type_], groups.types[type_])
        yield types
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


PARTITION_LABELS: Final = ("group", "stream", "partition")


class LagGauges(Collector):
    """One scrape's gauges. Built on the event loop, turned into text anywhere."""

    def __init__(
        self,
        groups: Sequence[GroupProgress],
        *,
        omitted: int,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._groups = groups
        self._omitted = omitted  # groups that have no series of their own
        self._ends = ends  # high watermarks, as far as they are known

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "streamlog_consumer_groups_series_omitted",
            "Consumer groups without series of their own, beyond http.metrics_group_partitions_max",
            self._omitted,
        )
        yield self._states()
        yield self._members()
        yield from self._partitions()

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "streamlog_consumer_group_state",
            "1 for the state of the group",
            labels=("group", "state"),
        )
        for group in self._groups:
            family.add_metric((group.group_id, group.state), 1)
        return family

    def _members(self) -> Metric:
        family = GaugeMetricFamily(
            "streamlog_consumer_group_members", "Members of the group", labels=("group",)
        )
        for group in self._groups:
            family.add_metric((group.group_id,), group.member_count)
        return family

    def _partitions(self) -> Iterator[Metric]:
        offsets = GaugeMetricFamily(
            "streamlog_consumer_group_committed_offset",
            "Committed offset of the group",
            labels=PARTITION_LABELS,
        )
        lags = GaugeMetricFamily(
            "streamlog_consumer_group_lag",
            "Records that the group has not committed; absent while the log end is unknown",
            labels=PARTITION_LABELS,
        )
        for group in self._groups:
            for tp, offset in group.committed.items():
                labels = (group.group_id, tp.stream, str(tp.partition))
                offsets.add_metric(labels, offset)
                end = self._ends.get(tp)
                if end is not None:
                    lags.add_metric(labels, consumer_lag(end, offset))
        yield offsets
        yield lags
