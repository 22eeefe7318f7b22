"""Nodes come and go, replicas move, voters change, all under load and with kills in between."""

import random
import shutil
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings
from tools.nodes.server_process import wait_until

NODES: Final = 4
VOTERS: Final = 3
PATIENT: Final[Settings] = {
    "cluster": {"pause_tolerance_ms": 90_000, "session_timeout_ms": 120_000}
}
"""Whoever waits for the end of a session waits longer than the test does."""
LANES: Final = [Lane("h0"), Lane("h1"), Lane("h2", 0), Lane("h2", 1)]


def replace_node(cluster: Cluster, leaving: int, coming: int, acks: Acks | None = None) -> None:
    """As an operator does it: drain, let the new one vote, take the vote, stop, remove."""
    cluster.command("cluster", "drain", str(leaving), "--wait", "--timeout", "60")
    view = cluster.view()
    assert all(leaving not in one.replicas for one in view.partitions.values())
    cluster.command("cluster", "add-voter", str(coming))
    cluster.command("cluster", "remove-voter", str(leaving), "--yes")
    assert cluster[leaving].stop() == 0
    if acks is not None:
        acks.go_on()
    wait_until(lambda: leaving not in cluster.view().nodes, f"node {leaving} is away")
    cluster.command("cluster", "remove-node", str(leaving), "--yes")


async def test_a_node_is_replaced(tmp_path: Path) -> None:
    """The fourth takes over what the first had; nobody notices."""
    with Cluster(tmp_path, nodes=NODES, voters=VOTERS, settings=PATIENT) as cluster:
        acks = Acks()
        await campaign(cluster, LANES, lambda: replace_node(cluster, 1, 4, acks), acks=acks)


@pytest.mark.slow
async def test_every_node_is_replaced_again_and_again(tmp_path: Path) -> None:
    """Each time the one that left comes back with an empty folder."""
    with Cluster(tmp_path, nodes=NODES, voters=VOTERS) as cluster:

        def faults() -> None:
            spare = 4
            for leaving in [1, 2, 3, 4] * 3:
                replace_node(cluster, leaving, spare)
                shutil.rmtree(cluster[leaving].data_dir)
                cluster.start(leaving)
                cluster.wait_settled(LANES)
                spare = leaving

        await campaign(cluster, LANES, faults)


@pytest.mark.slow
async def test_moves_with_kills(tmp_path: Path) -> None:
    """A replica set is changed and a node killed while it moves; in the end all is whole."""
    with Cluster(tmp_path, nodes=NODES, voters=VOTERS) as cluster:

        def faults() -> None:
            for _ in range(25):
                for lane in LANES:
                    wanted = ",".join(map(str, random.sample(range(1, NODES + 1), 3)))
                    cluster.command("stream", "move", lane.stream, str(lane.partition), wanted)
                threading.Event().wait(random.uniform(0.0, 0.5))
                victim = random.randrange(1, NODES + 1)
                cluster.kill(victim)
                threading.Event().wait(random.uniform(0.0, 1.0))
                cluster.start(victim)
                cluster.wait_settled(LANES, timeout_s=60)

        await campaign(cluster, LANES, faults)


@pytest.mark.slow
async def test_voters_change_with_kills(tmp_path: Path) -> None:
    """Three voters of four nodes, another three each time; the controller is killed meanwhile."""
    with Cluster(tmp_path, nodes=NODES, voters=VOTERS) as cluster:

        def faults() -> None:
            spare = 4
            for i in range(25):
                leaving = random.choice([n for n in cluster.nodes if n != spare])
                cluster.command("cluster", "add-voter", str(spare))
                if i % 2:
                    cluster.restart(cluster.controller())
                cluster.command("cluster", "remove-voter", str(leaving), "--yes")
                spare = leaving
                cluster.restart(random.choice(list(cluster.nodes)))
                cluster.wait_settled(LANES)

        await campaign(cluster, LANES, faults)
