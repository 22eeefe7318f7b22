"""Streams are administered over the socket alone: NATS is away, and nothing waits for it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tools.nodes.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its nats-server is gone, and three nodes are there, with a stream."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.command("stream", "add", "orders", "--subject", "orders.>", "--replicas", "3")
        for number in range(4):
            cluster.command_without_servers("publish", f"orders.{number % 2}", str(number), "--ack")
        cluster.nats.kill()
        yield cluster


def asked(cluster: Cluster, *words: str) -> Any:
    return json.loads(cluster.command(*words, "--json"))


def test_a_stream_is_created_edited_described_and_deleted(cluster: Cluster) -> None:
    made = asked(cluster, "stream", "add", "made", "--replicas", "3", "--partitions", "2")
    assert made["created"] and made["config"]["replicas"] == 3
    assert not asked(cluster, "stream", "add", "made", "--replicas", "3", "--partitions", "2")[
        "created"
    ]
    cluster.command("stream", "edit", "made", "--max-age", "10m", "--partitions", "3")
    found = asked(cluster, "stream", "info", "made")
    assert (found["config"]["retention_ms"], len(found["partitions"])) == (600_000, 3)
    assert "is paused" in cluster.command("stream", "pause", "made")
    assert "takes records" in cluster.command("stream", "resume", "made")
    assert {it["config"]["name"] for it in asked(cluster, "stream", "ls")} == {"made", "orders"}
    cluster.command("stream", "rm", "made", "--yes")
    assert {it["config"]["name"] for it in asked(cluster, "stream", "ls")} == {"orders"}


def test_records_are_found_and_removed(cluster: Cluster) -> None:
    assert cluster.command("stream", "get", "orders", "1") == "1\n"
    last = asked(cluster, "stream", "get", "orders", "--last", "orders.0")
    assert (last["offset"], last["value"], last["headers"]) == (2, "2", [["subject", "orders.0"]])
    assert cluster.command("stream", "get", "orders", "0", "--next", "orders.1") == "1\n"
    cluster.command("stream", "erase", "orders", "1", "--yes")
    assert cluster.command("stream", "get", "orders", "0", "--next", "orders.1") == "3\n"
    assert (
        asked(cluster, "stream", "purge", "orders", "--subject", "orders.0", "--yes")["purged"] == 2
    )
    assert asked(cluster, "stream", "info", "orders")["messages"] == 1


def test_how_far_each_replica_is_behind_is_shown(cluster: Cluster) -> None:
    (partition,) = asked(cluster, "stream", "info", "orders")["partitions"]
    followers = {1, 2, 3} - {partition["leader"]}
    assert partition["replica_lags"] == {str(node): 0 for node in followers}
    table = cluster.command("stream", "info", "orders")
    assert "RECORDS BEHIND" in table and "…" not in table
