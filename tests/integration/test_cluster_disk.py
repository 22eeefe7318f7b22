"""A full disk on one node: others go on at once, and it comes back by itself when it has room."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tests.small_disk import mounted
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

DISK_BYTES: Final = 48 * 1024 * 1024
RESTARTS_MAX: Final = 12
FULL_S: Final = 8.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    with mounted(tmp_path / "disk", DISK_BYTES) as path:
        yield path


def fill(path: Path) -> None:
    """Take all room there is."""
    block = bytes(64 * 1024)
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(block)
        except OSError:
            return


@pytest.mark.parametrize(
    "role", ["leader", "follower", pytest.param("controller", marks=pytest.mark.slow)]
)
async def test_a_node_with_a_full_disk(tmp_path: Path, small_disk: Path, role: str) -> None:
    lane, limited, acks = Lane("filled"), 1, Acks()

    def make_node(number: int, folder: Path) -> NodeProcess:
        own = small_disk / "data" if number == limited else None
        return NodeProcess(number, folder, data_dir=own)

    with Cluster(tmp_path, make_node=make_node) as cluster:

        def faults() -> None:
            if role == "controller":
                have_control(cluster, limited)
            leads = role != "follower"
            if (cluster.leader(lane) == limited) != leads:
                elect(cluster, lane, limited if leads else 2)
            fill(small_disk / "ballast")
            threading.Event().wait(FULL_S)
            acks.go_on()  # others lead, and this node has left the in-sync replicas
            (small_disk / "ballast").unlink()
            assert cluster[limited].is_running()

        await campaign(cluster, [lane], faults, acks=acks)
        log = cluster[limited].log_text()
        assert "disk full" in log
        assert "disk has room" in log


def have_control(cluster: Cluster, number: int) -> None:
    """Have that node be the controller: whoever is instead is restarted until the vote falls so."""
    for _ in range(RESTARTS_MAX):
        if cluster.controller() == number:
            return
        cluster.restart(cluster.controller())
        cluster.wait_settled([])
    raise AssertionError("the other two have it in turns")


def elect(cluster: Cluster, lane: Lane, leader: int) -> None:
    """Have that node lead."""
    cluster.command(
        "cluster", "elect-leader", lane.stream, str(lane.partition), "--leader", str(leader)
    )
    wait_until(lambda: cluster.leader(lane) == leader, f"node {leader} leads")
