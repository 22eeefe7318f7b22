"""How far consumer groups are: each is told of by its coordinator alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog.model import TopicPartition

PARTITION_LABELS: Final = ("group", "stream", "partition")


class MeasuredGroup(Protocol):
    """What HTTP shows to know about a group; an immutable value."""

    @property
    def group_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def member_count(self) -> int: ...
    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """Where it goes on."""


class LagGauges(Collector):
    """One scrape's gauges. Built on the event loop, turned into text anywhere."""

    def __init__(
        self,
        groups: Sequence[MeasuredGroup],
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
                    lags.add_metric(labels, max(0, end - offset))
        yield offsets
        yield lags
