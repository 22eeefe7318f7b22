"""Gauges of mirrors and sources, exported by the leader of each partition that takes from another stream."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.condition import Condition
from streamlog.jetstream.mirroring.mirror_statistics import FedStatistics

ORIGIN_SILENT: Final = Condition(
    "SL-0906",
    "a mirror or source hears nothing",
    "see that the origin is there, and reached; docs/mirrors.md for where it may be",
    meaning="Nothing has been heard of an origin for more than a minute.",
)
LABELS: Final = ("stream", "partition", "origin")
ORIGINS_MAX: Final = 2_000
"""With metrics of their own; of more, the first by stream."""


class MirrorGauges(Collector):
    """The mirrors and sources of partitions that this node leads, as they were when the scrape began."""

    def __init__(self, fed: Sequence[FedStatistics]) -> None:
        self._fed = fed

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        lag = GaugeMetricFamily(
            "streamlog_origin_lag",
            "Messages of a mirrored or sourced stream that are not here yet, as its origin said last",
            labels=LABELS,
        )
        silence = GaugeMetricFamily(
            "streamlog_origin_silence_seconds",
            "Time since something was heard of the origin of a mirror or source; -1: nothing yet",
            labels=LABELS,
        )
        failed = GaugeMetricFamily(
            "streamlog_origin_error",
            "1: a mirror or source stands still, for the reason that STREAM.INFO shows",
            labels=LABELS,
        )
        restarts = CounterMetricFamily(
            "streamlog_origin_restarts",
            "Times that the reading of an origin began again, since the partition is led here",
            labels=LABELS,
        )
        states = ((part, state) for part in self._fed for state in part.states)
        for (stream, partition, _), state in [*states][:ORIGINS_MAX]:
            labels = [stream, str(partition), state.place]
            lag.add_metric(labels, state.lag)
            silence.add_metric(labels, state.active_ms / 1_000 if state.active_ms >= 0 else -1)
            failed.add_metric(labels, 1 if state.error else 0)
            restarts.add_metric(labels, state.restarts)
        yield from (lag, silence, failed, restarts)
