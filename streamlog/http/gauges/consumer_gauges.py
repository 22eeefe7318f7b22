"""Gauges of JetStream consumers, exported by each consumer's coordinator alone."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.jetstream.consumers.consumer_statistics import ConsumerStatistics


class ConsumerGauges(Collector):
    """The JetStream consumers that this node coordinates, as they were when the scrape began."""

    def __init__(self, statistics: ConsumerStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        told = self._statistics
        consumers = GaugeMetricFamily(
            "streamlog_jetstream_consumers",
            "JetStream consumers coordinated by this node",
            labels=["kind"],
        )
        consumers.add_metric(["durable"], told.durable)
        consumers.add_metric(["ephemeral"], told.ephemeral)
        yield consumers
        yield GaugeMetricFamily(
            "streamlog_jetstream_consumer_partitions_loading",
            "Partitions of __consumer_state that this node is loading",
            value=told.loading,
        )
        yield CounterMetricFamily(
            "streamlog_jetstream_consumer_deliveries",
            "Messages delivered by JetStream consumers, redeliveries included",
            value=told.deliveries,
        )
        yield CounterMetricFamily(
            "streamlog_jetstream_consumer_redeliveries",
            "Messages that JetStream consumers delivered again",
            value=told.redeliveries,
        )
        yield CounterMetricFamily(
            "streamlog_jetstream_consumer_acks",
            "Acknowledgements taken by JetStream consumers, of every kind",
            value=told.acks,
        )
        yield GaugeMetricFamily(
            "streamlog_jetstream_unreported_streams",
            "Streams whose leaders this node could not tell which acknowledged messages to remove",
            value=told.unreported,
        )
        held = GaugeMetricFamily(
            "streamlog_jetstream_held_messages",
            "Messages that a stream keeps for a consumer, at most; of the consumers that hold most",
            labels=["stream", "consumer"],
        )
        for it in told.holders:
            held.add_metric([it.stream, it.consumer], it.messages)
        yield held
