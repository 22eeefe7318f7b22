"""The nats-server goes and comes back: replication goes on, publishing resumes by itself."""

import threading
from pathlib import Path

import pytest

from tests.history import Lane
from tests.integration.campaign import campaign
from tools.nodes.cluster import Cluster


@pytest.mark.parametrize(
    ("times", "away_s"), [(1, 0.5), pytest.param(50, 0.2, marks=pytest.mark.slow)]
)
async def test_a_restarted_nats_server(tmp_path: Path, times: int, away_s: float) -> None:
    lanes = [Lane("first"), Lane("second")]
    with Cluster(tmp_path) as cluster:

        def faults() -> None:
            for _ in range(times):
                leaders = [cluster.leader(lane) for lane in lanes]
                cluster.nats.kill()
                threading.Event().wait(away_s)
                cluster.nats.start()
                for node in cluster.nodes.values():
                    node.wait_ready()
                assert [cluster.leader(lane) for lane in lanes] == leaders

        await campaign(cluster, lanes, faults)
