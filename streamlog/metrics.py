"""What a node counts and times. Gauges of partitions are read at scrape time, see ``http.gauges``."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

LATENCY_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10,
)  # fmt: skip


class Tally(Collector):
    """A counter that the event loop alone adds to: it needs no lock, which costs more than an
    addition where each batch is of another partition.
    """

    def __init__(self, name: str, help_text: str, registry: CollectorRegistry) -> None:
        self.count = 0
        self._name, self._help = name, help_text
        registry.register(self)

    def inc(self, amount: int = 1) -> None:
        self.count += amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As the registry wants it."""
        yield CounterMetricFamily(self._name, self._help, value=self.count)


class Count:
    """What has been counted under one label's value."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, amount: int = 1) -> None:
        self.count += amount


class Tallies(dict[str, Count]):
    """As a ``Tally``, but by the value of a label; one that is new is shown from then on."""

    def __init__(self, name: str, help_text: str, label: str, registry: CollectorRegistry) -> None:
        super().__init__()
        registry.register(_Shown(self, name, help_text, label))

    def __missing__(self, value: str) -> Count:
        self[value] = count = Count()
        return count


class _Shown(Collector):
    """Some tallies, as the registry wants them."""

    def __init__(self, tallies: Tallies, name: str, help_text: str, label: str) -> None:
        self._tallies, self._name, self._help, self._label = tallies, name, help_text, label

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=[self._label])
        for value, count in tuple(self._tallies.items()):
            family.add_metric([value], count.count)
        yield family


class Spread(Collector):
    """A histogram of seconds that the event loop alone adds to."""

    def __init__(self, name: str, help_text: str, registry: CollectorRegistry) -> None:
        self._name, self._help = name, help_text
        self._counts = [0] * (len(LATENCY_SECONDS) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """As the registry wants it."""
        bounds = (*map(str, map(float, LATENCY_SECONDS)), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets=buckets, sum_value=self._sum)


class NodeMetrics:
    """One node's collectors, on a registry of its own; counted per batch, never per message."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._count_log(self.registry)
        self._count_ingest(self.registry)
        self._count_server(self.registry)
        self._count_replication(self.registry)
        self.event_loop_lag_seconds = Gauge(
            "streamlog_event_loop_lag_seconds", "How late a timer fired", registry=self.registry
        )
        self.event_loop_lag_max_seconds = Gauge(
            "streamlog_event_loop_lag_max_seconds",
            "How late it fired at worst in the last minute",
            registry=self.registry,
        )

    def _count_log(self, r: CollectorRegistry) -> None:
        self.append_batches = Tally("streamlog_append_batches", "Batches appended", r)
        self.append_records = Tally("streamlog_append_records", "Records appended", r)
        self.append_bytes = Tally("streamlog_append_bytes", "Bytes appended", r)
        self.append_failures = Counter(
            "streamlog_append_failures", "Appends that failed", ["reason"], registry=r
        )
        self.sync_seconds = Histogram(
            "streamlog_sync_seconds", "One fdatasync", buckets=LATENCY_SECONDS, registry=r
        )
        self.ack_seconds = Spread("streamlog_ack_seconds", "From append to commit, one batch", r)
        self.mended_logs = Counter(
            "streamlog_mended_logs",
            "Logs cut where they were damaged, to be fetched again from their leaders",
            registry=r,
        )
        self.scrubbed_bytes = Counter(
            "streamlog_scrubbed_bytes", "Bytes of segments read again to be checked", registry=r
        )
        self.compaction_read_bytes = Counter(
            "streamlog_compaction_read_bytes", "Bytes read to be compacted by key", registry=r
        )
        self.compaction_removed_bytes = Counter(
            "streamlog_compaction_removed_bytes", "Bytes that compaction freed", registry=r
        )
        self.compaction_last_seconds = Gauge(
            "streamlog_compaction_last_seconds", "How long the last cleaning took", registry=r
        )
        self.compaction_dirty_ratio = Gauge(
            "streamlog_compaction_dirty_ratio",
            "Share of the dirtiest compacted log that is to be cleaned",
            registry=r,
        )
        self.compaction_failures = Counter(
            "streamlog_compaction_failures", "Cleanings that failed", registry=r
        )
        self.compaction_failing = Gauge(
            "streamlog_compaction_failing", "Logs whose last cleaning failed", registry=r
        )
        self.disk_full = Gauge(
            "streamlog_disk_full", "1 while the disk has no room: nothing is stored", registry=r
        )
        self.old_data_keys = Gauge(
            "streamlog_encryption_old_data_keys",
            "Data keys of segments here that are not under the current key",
            registry=r,
        )
        self.corrupt_batches = Counter(
            "streamlog_corrupt_batches", "Batches found damaged, never served", registry=r
        )

    def _count_ingest(self, r: CollectorRegistry) -> None:
        self.acks = Tally("streamlog_acks", "Positive acks sent", r)
        self.refusals = Counter("streamlog_refusals", "Messages refused", ["reason"], registry=r)
        self.produce_duplicates = Counter(
            "streamlog_produce_duplicates",
            "Batches of idempotent Kafka producers that were there already",
            registry=r,
        )
        self.duplicates = Counter(
            "streamlog_duplicates", "Messages known by their Nats-Msg-Id", registry=r
        )
        self.inflight_bytes = Gauge(
            "streamlog_inflight_bytes", "Appended, not yet committed", registry=r
        )
        self.ingest_paused_seconds = Counter(
            "streamlog_ingest_paused_seconds",
            "Time not reading from NATS for want of room",
            registry=r,
        )
        self.nats_connected = Gauge(
            "streamlog_nats_connected", "1 while connected to NATS", registry=r
        )
        self.nats_reconnects = Counter("streamlog_nats_reconnects", "Reconnections", registry=r)
        self.nats_connection_failures = Counter(
            "streamlog_nats_connection_failures",
            "Attempts to connect to NATS that failed",
            ["reason"],
            registry=r,
        )
        self.republish_dropped = Counter(
            "streamlog_republish_dropped",
            "Committed messages that were not published again",
            ["reason"],
            registry=r,
        )
        self.nats_permission_violations = Counter(
            "streamlog_nats_permission_violations",
            "Times that NATS did not permit this node what it needs",
            ["operation"],
            registry=r,
        )
        self.nats_slow_consumer_cuts = Counter(
            "streamlog_nats_slow_consumer_cuts",
            "Times that NATS cut a connection off for not taking messages fast enough",
            ["connection"],
            registry=r,
        )

        for counter, labels in (
            (self.nats_connection_failures, ("unreachable", "login", "tls", "limit", "other")),
            (self.nats_permission_violations, ("publish", "subscribe")),
            (self.nats_slow_consumer_cuts, ("ingest", "admin")),
        ):
            for label in labels:  # from 0 on: Prometheus sees no increase in what begins at 1
                counter.labels(label)

    def _count_server(self, r: CollectorRegistry) -> None:
        self.fetch_bytes = Tallies("streamlog_fetch_bytes", "Record bytes sent", "path", r)
        self.requests = Tallies("streamlog_requests", "Requests of the socket API", "api", r)
        self.connections = Gauge(
            "streamlog_connections", "Open connections of the socket API", registry=r
        )
        self.tolerated_connections = Gauge(
            "streamlog_tolerated_connections",
            "Open connections that only security.optional lets in: in the clear, without proof",
            registry=r,
        )
        self.connections_closed = Counter(
            "streamlog_connections_closed",
            "Connections of the socket API that this node closed",
            ["reason"],
            registry=r,
        )
        self.logins_refused = Counter(
            "streamlog_logins_refused",
            "Logins that were refused, and requests without a login where one is needed",
            ["by"],
            registry=r,
        )
        for by in ("Kafka", "HTTP", "NATS"):
            self.logins_refused.labels(by)
        self.throttled = Counter(
            "streamlog_throttled_requests",
            "Requests that were answered with a time to wait",
            ["quota"],
            registry=r,
        )
        self.throttle_seconds = Counter(
            "streamlog_throttle_seconds",
            "Times that clients were told to wait",
            ["quota"],
            registry=r,
        )
        self.tls_reloads = Counter(
            "streamlog_tls_reloads",
            "Times that certificates were read anew: loaded, or failed and kept as they were",
            ["result"],
            registry=r,
        )
        for result in ("loaded", "failed"):
            self.tls_reloads.labels(result)
        self.tls_not_after = Gauge(
            "streamlog_tls_certificate_not_after_timestamp_seconds",
            "When the certificate that a door shows expires",
            ["door"],
            registry=r,
        )
        self.protocol_errors = Counter(
            "streamlog_protocol_errors", "Connections closed for what they sent", registry=r
        )

    def _count_replication(self, r: CollectorRegistry) -> None:
        self.replication_bytes = Counter(
            "streamlog_replication_bytes", "Record bytes fetched from leaders", registry=r
        )
        self.leaderships = Counter(
            "streamlog_leaderships", "Partitions that this node began to lead", registry=r
        )
        self.isr_shrinks = Counter(
            "streamlog_isr_shrinks", "Times a led partition's in-sync set lost a member", registry=r
        )
        self.isr_expands = Counter(
            "streamlog_isr_expands", "Times it got a member back", registry=r
        )
