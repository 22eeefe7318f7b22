"""Every page of docs/runbooks, carried out on real nodes.

The damage that a page is about is done here, never by the page.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from documentation.runbooks import FOLDER, runbooks, steps
from tests.runbook import Operator
from tools.nodes.cluster import Cluster

RECORDS = 50
QUICK = {"backups.md", "no-leader.md", "damaged-disk.md", "full-disk.md"}
"""One cluster for all of these: none of them stops a node."""
ELSEWHERE = {"turn-on-security.md"}
"""Needs certificates and users: ``test_turn_on_security.py``."""
SLOW = [page for page in runbooks() if page.name not in QUICK | ELSEWHERE]


def lose_disks(*numbers: int) -> Callable[[Cluster, Path], None]:
    """These nodes are gone, and so are their data folders."""

    def lose(cluster: Cluster, _: Path) -> None:
        for number in numbers:
            node = cluster[number]
            node.ask_to_stop()
            node.wait(60)
            shutil.rmtree(node.data_dir)

    return lose


def take_backup(cluster: Cluster, backups: Path) -> None:
    cluster.command("backup", "create", str(backups / "backup"))


DAMAGE: Final = {
    "lost-quorum.md": lose_disks(1, 2),
    "replace-a-node.md": lose_disks(2),
    "restore-a-cluster.md": take_backup,
    "restore-a-stream.md": take_backup,
}
"""What has happened before an operator opens the page."""


def prepared(cluster: Cluster, backups: Path) -> Operator:
    cluster.command("stream", "add", "orders", "--replicas", "3")
    publish = ["publish", "orders", "an order", "--count", str(RECORDS), "--ack"]
    cluster.command_without_servers(*publish)
    return Operator(cluster, backups)


def records(cluster: Cluster) -> int:
    return len(cluster.command("consume", "orders").splitlines())


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
        operator = prepared(cluster, tmp_path)
        if page.name in DAMAGE:
            DAMAGE[page.name](cluster, tmp_path)
        operator.follow(page)
        for node in cluster.running():
            node.wait_ready()
        assert records(cluster) == RECORDS


@pytest.mark.parametrize("page", runbooks(), ids=lambda page: page.stem)
def test_a_page_deletes_no_folder(page: Path) -> None:
    """An operator who copies its commands into the wrong terminal loses nothing."""
    deleting = [step.command for step in steps(page.read_text()) if step.command.startswith("rm ")]
    assert deleting == []
