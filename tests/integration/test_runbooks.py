"""Every page of docs/runbooks, carried out on real nodes."""

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.runbook import FOLDER, Operator, pages

RECORDS = 50
QUICK = {"backups.md", "no-leader.md", "damaged-disk.md", "full-disk.md"}
"""One cluster for all of these: none of them stops a node."""
ELSEWHERE = {"turn-on-security.md"}
"""Needs certificates and users: ``test_turn_on_security.py``."""
SLOW = [page for page in pages() if page.name not in QUICK | ELSEWHERE]


def prepared(cluster: Cluster, backups: Path) -> Operator:
    cluster.command_without_servers("stream", "add", "orders", "--replicas", "3")
    publish = ["publish", "orders", "an order", "--count", str(RECORDS), "--ack"]
    cluster.command_without_servers(*publish)
    return Operator(cluster, backups)


def records(cluster: Cluster) -> int:
    return len(cluster.command("read", "orders").splitlines())


def test_pages_that_stop_no_node(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        operator = prepared(cluster, tmp_path)
        for name in sorted(QUICK):
            operator.follow(FOLDER / name)
            assert records(cluster) == RECORDS, name


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW, ids=lambda page: page.stem)
def test_a_page(tmp_path: Path, page: Path) -> None:
    with Cluster(tmp_path / "cluster", nodes=4, voters=3, started=(1, 2, 3)) as cluster:
        prepared(cluster, tmp_path).follow(page)
        for node in cluster.running():
            node.wait_ready()
        assert records(cluster) == RECORDS
