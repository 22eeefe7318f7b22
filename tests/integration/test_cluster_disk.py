"""A full disk on one node: what it holds up is told, nothing is lost, and it goes on with room."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.campaign import campaign
from tests.cluster import Cluster, ClusterNode
from tests.history import Lane
from tests.server_process import wait_until

DISK_BYTES: Final = 48 * 1024 * 1024
FULL_S: Final = 4.0
GAP_S: Final = 20.0
"""A leader without room refuses until there is some; a follower leaves the ISR when it has lagged
for ``replica_lag_time_ms``.
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Take all room there is."""
    block = bytes(64 * 1024)
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(block)
        except OSError:
            return


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_node_with_a_full_disk(tmp_path: Path, small_disk: Path, role: str) -> None:
    lane, limited = Lane("filled"), 1

    def make_node(number: int, folder: Path) -> ClusterNode:
        own = small_disk / "data" if number == limited else None
        return ClusterNode(number, folder, data_dir=own)

    with Cluster(tmp_path, make_node=make_node) as cluster:

        def faults() -> None:
            if (cluster.leader(lane) == limited) != (role == "leader"):
                wanted = limited if role == "leader" else 2
                elect(cluster, lane, wanted)
            fill(small_disk / "ballast")
            threading.Event().wait(FULL_S)
            (small_disk / "ballast").unlink()
            wait_until(cluster[limited].is_running, "the node runs")
            cluster.restart(limited)

        histories = await campaign(cluster, [lane], faults)
        assert histories[lane].longest_gap_s() < GAP_S


def elect(cluster: Cluster, lane: Lane, leader: int) -> None:
    """Have that node lead."""
    cluster.command("cluster", "elect", lane.stream, str(lane.partition), "--leader", str(leader))
    wait_until(lambda: cluster.leader(lane) == leader, f"node {leader} leads")
