"""Publishers that retry with ``Nats-Msg-Id`` through kills of all that they depend on.

Each message that was ever acknowledged is on every replica once, at the sequence of its ack; what
was not acknowledged is there once at most: ``tests.history.check`` looks at the logs themselves.
"""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.history import Lane
from tests.integration.campaign import campaign
from tests.secured_nats import NatsCluster
from tools.nodes.cluster import Cluster

PAUSE_S = 0.005
"""Between messages of a publisher: faults are what counts here, not how much is stored."""


def kills(cluster: Cluster, servers: NatsCluster, lanes: list[Lane]) -> list[Callable[[], None]]:
    """Of a nats-server, the leader, the controller, and of a leader and a nats-server at once.

    Each is away for a while that is now shorter, now longer than a failover takes.
    """
    pause = threading.Event()

    def away() -> None:
        pause.wait(random.uniform(0.05, 1.5))

    def a_nats_server() -> None:
        server = random.choice(servers.servers)
        server.kill()
        away()
        server.start()

    def nodes(choose: Callable[[], int]) -> Callable[[], None]:
        def kill() -> None:
            victim = choose()
            cluster.kill(victim)
            away()
            cluster.start(victim)

        return kill

    def all_nats_servers_and_a_leader() -> None:
        victim = cluster.leader(random.choice(lanes))
        cluster.kill(victim)
        servers.kill()
        away()
        servers.start()
        cluster.start(victim)

    leader = nodes(lambda: cluster.leader(random.choice(lanes)))
    return [a_nats_server, leader, nodes(cluster.controller), all_nats_servers_and_a_leader]


@pytest.mark.parametrize("rounds", [1, pytest.param(25, marks=pytest.mark.slow)])
async def test_each_record_once_on_every_replica(tmp_path: Path, rounds: int) -> None:
    lanes = [Lane("orders", 0), Lane("orders", 1)]
    servers = NatsCluster(tmp_path / "nats", size=2)
    with Cluster(tmp_path, nats=servers) as cluster:

        def faults() -> None:
            for _ in range(rounds):
                for kill in random.sample(every := kills(cluster, servers, lanes), len(every)):
                    kill()
                    cluster.wait_settled(lanes)

        histories = await campaign(cluster, lanes, faults, pause_s=PAUSE_S)
    for history in histories.values():
        retried = sum(history.refused.values())
        assert retried > 0, "no publisher had to try again"
