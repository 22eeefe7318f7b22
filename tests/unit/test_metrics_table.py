"""docs/metrics.md tells of every metric, and of no other."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.core import Metric

from tests.unit.metric_families import families

TABLE = Path(__file__).parents[2] / "docs" / "metrics.md"
LABELS: Mapping[str, str] = {
    "streamlog_append_failures_total": "reason",
    "streamlog_tier_failures_total": "error",
    "streamlog_publish_rejected_total": "reason",
    "streamlog_nats_connection_failures_total": "reason",
    "streamlog_nats_permission_violations_total": "operation",
    "streamlog_republish_dropped_total": "reason",
    "streamlog_nats_slow_consumer_disconnects_total": "connection",
    "streamlog_fetch_bytes_total": "path",
    "streamlog_api_refused_requests_total": "error",
    "streamlog_operation_seconds_total": "operation, by",
    "streamlog_operations_total": "operation, by, error",
    "streamlog_requests_total": "api",
    "streamlog_connections_closed_total": "reason",
    "streamlog_nats_port_connections_closed_total": "reason",
    "streamlog_throttled_requests_total": "quota",
    "streamlog_tls_certificate_not_after_timestamp_seconds": "listener",
    "streamlog_throttle_seconds_total": "quota",
    "streamlog_consumer_group_state": "group, state",
    "streamlog_consumer_group_members": "group",
    "streamlog_consumer_group_lag": "group, stream, partition",
    "streamlog_consumer_group_committed_offset": "group, stream, partition",
}
"""Of what has no sample before something happens."""


class Row(NamedTuple):
    name: str
    kind: str
    labels: str
    meaning: str
    worry: str


def rows() -> dict[str, Row]:
    lines = [line for line in TABLE.read_text().splitlines() if re.match(r"\| `\w+` \|", line)]
    found = [
        Row(*(cell.strip().strip("`") for cell in line.strip("| ").split(" | "))) for line in lines
    ]
    assert len({row.name for row in found}) == len(found), "one row for each"
    return {row.name: row for row in found}


def labels_of(name: str, family: Metric) -> str:
    if name in LABELS:
        return LABELS[name]
    if name.startswith("streamlog_origin_"):
        return "stream, partition, origin"
    if name.startswith("streamlog_partition_"):
        return "stream, partition"
    found = [label for sample in family.samples[:1] for label in sample.labels if label != "le"]
    return ", ".join(found) or "-"


def test_the_table_has_them_all() -> None:
    assert sorted(rows()) == sorted(families())


@pytest.mark.parametrize("name", sorted(families()))
def test_a_row_is_right(name: str) -> None:
    family, row = families()[name], rows()[name]
    assert row.kind == family.type
    assert row.labels == labels_of(name, family)
    assert row.meaning and row.worry


@pytest.mark.parametrize("name", sorted(families()))
def test_names_follow_the_conventions_of_prometheus(name: str) -> None:
    family = families()[name]
    assert re.fullmatch(r"(streamlog|process)_[a-z0-9_]+", name)
    assert (family.type == "counter") == name.endswith("_total")
    assert not re.search(r"_(ms|milliseconds|kib|mib|percent)(_|$)", name), "base units"


def test_a_scrape_does_not_grow_with_the_partitions() -> None:
    from streamlog.http.gauges.partition_gauges import PartitionGauges, PartitionTotals
    from streamlog.model import TopicPartition
    from tests.unit.http.test_endpoints import numbered

    def samples(count: int) -> int:
        totals = PartitionTotals()
        for number in range(count):
            totals.add(numbered(TopicPartition("s", number)))
        return sum(len(it.samples) for it in PartitionGauges(totals, failed=0).collect())

    assert samples(10_000) == samples(1)
