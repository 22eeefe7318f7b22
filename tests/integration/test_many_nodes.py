"""Twenty real nodes on one machine."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import pytest

from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import wait_until

NODES: Final = 20
VOTERS: Final = 5
KILLED: Final = 4
STARTED_AT_ONCE: Final = 4
START_S: Final = 240.0
SETTLE_S: Final = 240.0
SLOW: Final[Settings] = {
    # Two processors start twenty interpreters: what is slow there is not dead.
    "cluster": {"session_timeout_ms": 20_000, "leader_lease_ms": 15_000},
    "nats": {"reconnect_backoff_ms": 50},
}


@pytest.mark.slow
def test_twenty_nodes_go_on_without_four(tmp_path: Path) -> None:
    """A stream for each; nobody but who was killed is missed, and no other controller is elected."""
    with Cluster(
        tmp_path, nodes=NODES, voters=VOTERS, settings=SLOW, started=range(1, VOTERS + 1)
    ) as cluster:
        for first in range(VOTERS + 1, NODES + 1, STARTED_AT_ONCE):
            start(cluster, *range(first, min(first + STARTED_AT_ONCE, NODES + 1)))
        assert set(cluster.view().nodes) == set(cluster.nodes)
        names = [f"s{number}" for number in range(NODES)]
        for name in names:
            cluster.command("stream", "add", name, "--replicas", "3")
        partitions = [(name, 0) for name in names]
        cluster.wait_settled(partitions, SETTLE_S)
        together = [cluster.view().partitions[it].replicas for it in partitions]
        keepers = [number for replicas in together for number in replicas]
        assert {keepers.count(number) for number in cluster.nodes} == {3}

        epochs = {quorum_epoch(node) for node in cluster.running()}
        assert len(epochs) == 1
        killed = apart(together)
        cluster.kill(*killed)

        def led_by_others() -> bool:
            known = cluster[1].view().partitions
            return all(known[it].leader > 0 and known[it].leader not in killed for it in partitions)

        wait_until(led_by_others, "others lead", SETTLE_S)
        assert {quorum_epoch(node) for node in cluster.running()} == epochs
        assert len(killed) == fenced(cluster[1]) == KILLED
        start(cluster, *killed)
        cluster.wait_settled(partitions, SETTLE_S)
        cluster.command("cluster", "rebalance")
        cluster.wait_settled(partitions, SETTLE_S)
        known = cluster.view().partitions
        assert all(known[it].leader == known[it].replicas[0] for it in partitions)
        assert {quorum_epoch(node) for node in cluster.running()} == epochs
        assert fenced(cluster[1]) == 0


def apart(together: Sequence[Collection[int]]) -> list[int]:
    """Nodes, no voters, of which each stream has one at most: the others go on."""
    chosen: list[int] = []
    for number in range(VOTERS + 1, NODES + 1):
        if not any(number in it and not set(it).isdisjoint(chosen) for it in together):
            chosen.append(number)
    return chosen[:KILLED]


def start(cluster: Cluster, *numbers: int) -> None:
    for number in numbers:
        cluster[number].spawn()
    for number in numbers:
        cluster[number].wait_ready(START_S)


def quorum_epoch(node: NodeProcess) -> float:
    return node.metric("streamlog_quorum_epoch")


def fenced(node: NodeProcess) -> float:
    return node.metric("streamlog_nodes_fenced")
