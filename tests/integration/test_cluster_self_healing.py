"""A node is lost for good while everybody publishes: its replicas move to the other nodes by themselves."""

from pathlib import Path
from typing import Final

from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings
from tools.nodes.server_process import wait_until

LANES: Final = [Lane("healed", number) for number in range(4)]
HEALS: Final[Settings] = {"cluster": {"self_healing_ms": 2_000}}


async def test_replicas_of_a_node_that_is_lost_are_whole_on_the_others(tmp_path: Path) -> None:
    acks = Acks()
    with Cluster(tmp_path, nodes=4, voters=3, settings=HEALS) as cluster:

        def kept() -> dict[Lane, set[int]]:
            partitions = cluster.view().partitions
            return {lane: set(partitions[lane].replicas) for lane in LANES}

        def is_whole_without(lost: int) -> bool:
            partitions = [cluster.view().partitions[lane] for lane in LANES]
            return all(
                len(it.replicas) == 3
                and lost not in it.replicas
                and set(it.isr) == set(it.replicas)
                for it in partitions
            )

        def faults() -> None:
            lost = next(node for node in (4, 3, 2) if any(node in it for it in kept().values()))
            cluster.kill(lost)
            acks.go_on()
            wait_until(lambda: is_whole_without(lost), "every partition has three replicas again")
            acks.go_on()
            before = kept()
            cluster.start(lost)
            acks.go_on()
            assert kept() == before, "nothing moves back by itself"

        await campaign(cluster, LANES, faults, acks=acks)


def test_what_only_the_lost_node_has_is_left_alone(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=4, voters=3, settings=HEALS) as cluster:
        cluster.command("stream", "add", "alone", "--replicas", "1")
        cluster.command("stream", "add", "kept", "--replicas", "3")
        cluster.command("stream", "move", "alone", "0", "4", "--wait")
        cluster.command("stream", "move", "kept", "0", "2,3,4", "--wait")
        cluster.kill(4)
        wait_until(
            lambda: set(cluster.view().partitions[Lane("kept")].isr) == {1, 2, 3},
            "the replica of node 4 has moved",
        )
        metrics = [node.metric("streamlog_self_healing_stuck") for node in list(cluster.running())]
        assert sorted(metrics) == [0, 0, 1], "the controller tells"
        assert set(cluster.view().partitions[Lane("alone")].replicas) == {4}
        cluster.start(4)
        cluster.wait_settled([Lane("alone"), Lane("kept")])
        wait_until(
            lambda: all(not it.metric("streamlog_self_healing_stuck") for it in cluster.running()),
            "nothing is left alone",
        )
