"""Planned stops under load: each node in turn, others lead before it goes."""

from pathlib import Path
from typing import Final

import pytest

from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

PATIENT: Final[Settings] = {
    "cluster": {"pause_tolerance_ms": 90_000, "session_timeout_ms": 120_000}
}
"""Whoever waits for the end of a session waits longer than the test does."""


@pytest.mark.parametrize("rounds", [1, pytest.param(15, marks=pytest.mark.slow)])
async def test_a_rolling_restart(tmp_path: Path, rounds: int) -> None:
    """Readiness is all that an orchestrator waits for before it stops the next one."""
    lanes = [Lane("first"), Lane("second"), Lane("third", 0), Lane("third", 1)]
    acks = Acks()
    with Cluster(tmp_path, settings=PATIENT) as cluster:

        def faults() -> None:
            for _ in range(rounds):
                for number, node in cluster.nodes.items():
                    assert node.stop() == 0
                    acks.go_on()  # leaders moved before the stop
                    cluster.start(number)
                    partitions = node.view().partitions
                    assert all(number in partitions[lane].isr for lane in lanes)

        await campaign(cluster, lanes, faults, acks=acks)


@pytest.mark.slow
async def test_leaders_move_again_and_again(tmp_path: Path) -> None:
    """Elections by hand, and the controller too, while everybody publishes."""
    lanes = [Lane("first"), Lane("second")]
    with Cluster(tmp_path) as cluster:

        def faults() -> None:
            for i in range(30):
                lane = lanes[i % 2]
                wanted = (cluster.leader(lane) % 3) + 1
                partition = [lane.stream, str(lane.partition)]
                cluster.command("cluster", "elect-leader", *partition, "--leader", str(wanted))
                if i % 5 == 0:
                    cluster.command("cluster", "transfer-controller")

        await campaign(cluster, lanes, faults)
