"""How simulated nodes are set: all that a story needs happens within seconds of it."""

from streamlog.config import (
    ClusterSection,
    IngestSection,
    KafkaSection,
    LogSection,
    NatsSection,
    ReplicationSection,
    SyncPolicy,
)
from streamlog.model import NodeId
from tests.simulation.cluster.sockets import PORT, host_name

CLUSTER_ID = "c"


def cluster_section(voters: int) -> ClusterSection:
    return ClusterSection(
        id=CLUSTER_ID,
        voters=tuple(
            f"{number}@{host_name(NodeId(number))}:{PORT}" for number in range(1, voters + 1)
        ),
        heartbeat_interval_ms=200,
        pause_tolerance_ms=120,
        session_timeout_ms=1_200,
        leader_lease_ms=900,
        election_timeout_ms=400,
        request_timeout_ms=800,
        leader_rebalance_ms=5_000,
    )


def replication_section(fetch_bytes_max: int | None = None) -> ReplicationSection:
    """``fetch_bytes_max``: less than anybody may set, so that it takes its time to catch up."""
    section = ReplicationSection(
        replica_lag_time_max_ms=1_500, fetch_wait_max_ms=400, fetch_backoff_ms=50
    )
    if fetch_bytes_max is None:
        return section
    return section.model_copy(update={"fetch_bytes_max": fetch_bytes_max})


def log_section(sync: SyncPolicy) -> LogSection:
    return LogSection(
        sync=sync, sync_interval_ms=300, segment_bytes=8 * 1024, retention_check_ms=3_000
    )


NATS = NatsSection(reconnect_backoff_ms=100)
INGEST = IngestSection()
KAFKA = KafkaSection()
