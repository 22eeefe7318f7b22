"""What a node counts and times. Gauges of partitions are read at scrape time, see ``http.gauges``."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from streamlog.condition import Condition

ACKS_SLOW: Final = Condition(
    "SL-0901",
    "acknowledgements are slow",
    "compare with streamlog_fsync_duration_seconds (disk), streamlog_follower_lag_max (followers), "
    "the event loop",
    meaning="From append to commit takes longer than half a second in one of a hundred batches.",
)
ISR_FLAPS: Final = Condition(
    "SL-0902",
    "in-sync sets flap",
    "a follower is at its limit: compare streamlog_fsync_duration_seconds and the event loops of "
    "the nodes",
    meaning="Replicas leave the in-sync sets and come back, with every node alive.",
)

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


class OperationTallies(Collector):
    """Operations of the control plane that were asked at this node, by whichever protocol."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        registry.register(self)

    def note(self, operation: str, by: str, error: str, seconds: float) -> None:
        """``error``: the name of its class; empty where there was none."""
        of, outcome = (operation, by), (operation, by, error)
        self._counts[outcome] = self._counts.get(outcome, 0) + 1
        self._seconds[of] = self._seconds.get(of, 0.0) + seconds

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As the registry wants it."""
        counts = CounterMetricFamily(
            "streamlog_operations",
            "Operations on streams, messages, groups, nodes, users, rules and quotas that ended; without an error"
            " the label is empty",
            labels=["operation", "by", "error"],
        )
        for outcome, count in tuple(self._counts.items()):
            counts.add_metric(outcome, count)
        yield counts
        seconds = CounterMetricFamily(
            "streamlog_operation_seconds",
            "Duration of operations, as counted by streamlog_operations_total",
            labels=["operation", "by"],
        )
        for of, taken in tuple(self._seconds.items()):
            seconds.add_metric(of, taken)
        yield seconds


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
            "streamlog_event_loop_lag_seconds",
            "Delay of the last event loop timer",
            registry=self.registry,
        )
        self.event_loop_lag_max_seconds = Gauge(
            "streamlog_event_loop_lag_max_seconds",
            "Largest event loop timer delay in the last minute",
            registry=self.registry,
        )

    def _count_log(self, r: CollectorRegistry) -> None:
        self.append_batches = Tally("streamlog_append_batches", "Batches appended", r)
        self.append_records = Tally("streamlog_append_records", "Records appended", r)
        self.append_bytes = Tally("streamlog_append_bytes", "Bytes appended", r)
        self.append_failures = Counter(
            "streamlog_append_failures", "Failed appends", ["reason"], registry=r
        )
        self.fsync_duration_seconds = Spread(
            "streamlog_fsync_duration_seconds", "Duration of one fdatasync call", r
        )
        self.commit_latency_seconds = Spread(
            "streamlog_commit_latency_seconds", "Time from append to commit of one batch", r
        )
        self.tier_uploads = Counter(
            "streamlog_tier_uploaded_segments",
            "Segments copied to the object store",
            registry=r,
        )
        self.tier_uploaded_bytes = Counter(
            "streamlog_tier_uploaded_bytes",
            "Bytes of segments copied to the object store",
            registry=r,
        )
        self.tier_failures = Counter(
            "streamlog_tier_failures",
            "Attempts to bring a partition to the object store that failed",
            ["error"],
            registry=r,
        )
        self.tier_orphans = Counter(
            "streamlog_tier_orphans_removed",
            "Objects removed from the object store that no manifest named",
            registry=r,
        )
        self.log_repairs = Counter(
            "streamlog_log_repairs",
            "Logs truncated at a damaged batch, to be fetched again from their leaders",
            registry=r,
        )
        self.scrubbed_bytes = Counter(
            "streamlog_scrubbed_bytes", "Segment bytes read by the scrubber", registry=r
        )
        self.compaction_read_bytes = Counter(
            "streamlog_compaction_read_bytes", "Bytes read by compaction", registry=r
        )
        self.compaction_removed_bytes = Counter(
            "streamlog_compaction_removed_bytes", "Bytes freed by compaction", registry=r
        )
        self.compaction_last_seconds = Gauge(
            "streamlog_compaction_last_seconds",
            "Duration of the last compaction of a log",
            registry=r,
        )
        self.compaction_dirty_ratio = Gauge(
            "streamlog_compaction_dirty_ratio",
            "Largest share of uncompacted bytes among compacted logs",
            registry=r,
        )
        self.compaction_failures = Counter(
            "streamlog_compaction_failures", "Failed compactions", registry=r
        )
        self.compaction_failing = Gauge(
            "streamlog_compaction_failing", "Logs whose last compaction failed", registry=r
        )
        self.disk_full = Gauge(
            "streamlog_disk_full",
            "1 while the disk is full and the node stores nothing",
            registry=r,
        )
        self.old_data_keys = Gauge(
            "streamlog_encryption_old_data_keys",
            "Data keys of local segments that are not encrypted with the active key",
            registry=r,
        )
        self.corrupt_batches = Counter(
            "streamlog_corrupt_batches", "Damaged batches found; they are never served", registry=r
        )

    def _count_ingest(self, r: CollectorRegistry) -> None:
        self.publish_acked = Tally(
            "streamlog_publish_acked", "Positive acknowledgements sent to publishers", r
        )
        self.publish_rejected = Counter(
            "streamlog_publish_rejected",
            "Published messages that were rejected",
            ["reason"],
            registry=r,
        )
        self.produce_duplicates = Counter(
            "streamlog_produce_duplicates",
            "Batches of idempotent Kafka producers that were already stored",
            registry=r,
        )
        self.publish_late_copies = Counter(
            "streamlog_publish_late_copies",
            "Messages without Nats-Msg-Id that were under way while the leader changed, left out",
            registry=r,
        )
        self.publish_duplicates = Counter(
            "streamlog_publish_duplicates",
            "Published messages whose Nats-Msg-Id was already stored",
            registry=r,
        )
        self.in_flight_bytes = Gauge(
            "streamlog_in_flight_bytes", "Bytes appended but not yet committed", registry=r
        )
        self.ingest_paused_seconds = Counter(
            "streamlog_ingest_paused_seconds",
            "Time during which the node did not read from NATS because of backpressure",
            registry=r,
        )
        self.nats_connected = Gauge(
            "streamlog_nats_connected", "1 while the node is connected to NATS", registry=r
        )
        self.nats_round_trip = Gauge(
            "streamlog_nats_round_trip_seconds", "Round-trip time to NATS", registry=r
        )
        self.nats_reconnects = Counter(
            "streamlog_nats_reconnects", "Reconnections to NATS", registry=r
        )
        self.nats_connection_failures = Counter(
            "streamlog_nats_connection_failures",
            "Failed attempts to connect to NATS",
            ["reason"],
            registry=r,
        )
        self.republish_dropped = Counter(
            "streamlog_republish_dropped",
            "Committed messages that were not republished",
            ["reason"],
            registry=r,
        )
        self.nats_permission_violations = Counter(
            "streamlog_nats_permission_violations",
            "Operations that NATS denied for missing permissions",
            ["operation"],
            registry=r,
        )
        self.nats_slow_consumer_disconnects = Counter(
            "streamlog_nats_slow_consumer_disconnects",
            "Disconnections by NATS because the node was a slow consumer",
            ["connection"],
            registry=r,
        )

        for counter, labels in (
            (self.nats_connection_failures, ("unreachable", "login", "tls", "limit", "other")),
            (self.nats_permission_violations, ("publish", "subscribe")),
            (self.nats_slow_consumer_disconnects, ("ingest", "admin")),
        ):
            for label in labels:  # from 0 on: Prometheus sees no increase in what begins at 1
                counter.labels(label)

    def _count_server(self, r: CollectorRegistry) -> None:
        self.fetch_bytes = Tallies(
            "streamlog_fetch_bytes", "Record bytes sent to consumers and followers", "path", r
        )
        self.operations = OperationTallies(r)
        self.api_refused = Tallies(
            "streamlog_api_refused_requests",
            "Requests of the JSON API that were refused before an operation began",
            "error",
            r,
        )
        self.requests = Tallies("streamlog_requests", "Kafka API requests received", "api", r)
        self.connections = Gauge("streamlog_connections", "Open Kafka API connections", registry=r)
        self.nats_port_connections = Gauge(
            "streamlog_nats_port_connections", "Open connections of the NATS port", registry=r
        )
        self.nats_port_closed = Counter(
            "streamlog_nats_port_connections_closed",
            "Connections of the NATS port that ended, by reason",
            ["reason"],
            registry=r,
        )
        self.unauthenticated_connections = Gauge(
            "streamlog_unauthenticated_connections",
            "Open connections without TLS or authentication, accepted because of security.permissive",
            registry=r,
        )
        self.connections_closed = Counter(
            "streamlog_connections_closed",
            "Kafka API connections that this node closed",
            ["reason"],
            registry=r,
        )
        self.logins_refused = Counter(
            "streamlog_logins_refused",
            "Failed logins, and requests without credentials where they are required",
            ["by"],
            registry=r,
        )
        for by in ("Kafka", "HTTP", "NATS", "NATS port"):
            self.logins_refused.labels(by)
        self.throttled = Counter(
            "streamlog_throttled_requests",
            "Requests answered with a throttle time",
            ["quota"],
            registry=r,
        )
        self.throttle_seconds = Counter(
            "streamlog_throttle_seconds",
            "Throttle time imposed on clients",
            ["quota"],
            registry=r,
        )
        self.tls_reloads = Counter(
            "streamlog_tls_reloads",
            "Reloads of the certificates; after a failed one the old certificates stay in use",
            ["result"],
            registry=r,
        )
        for result in ("loaded", "failed"):
            self.tls_reloads.labels(result)
        self.tls_certificate_not_after = Gauge(
            "streamlog_tls_certificate_not_after_timestamp_seconds",
            "Expiry of the listener's certificate",
            ["listener"],
            registry=r,
        )
        self.protocol_errors = Counter(
            "streamlog_protocol_errors", "Connections closed because of invalid data", registry=r
        )

    def _count_replication(self, r: CollectorRegistry) -> None:
        self.replication_bytes = Counter(
            "streamlog_replication_bytes", "Record bytes fetched from leaders", registry=r
        )
        self.leader_elections = Counter(
            "streamlog_leader_elections",
            "Partitions of which this node became the leader",
            registry=r,
        )
        self.isr_shrinks = Counter(
            "streamlog_isr_shrinks",
            "Removals of a replica from the in-sync set of a partition led by this node",
            registry=r,
        )
        self.isr_expands = Counter(
            "streamlog_isr_expands",
            "Additions of a replica to the in-sync set of a partition led by this node",
            registry=r,
        )
