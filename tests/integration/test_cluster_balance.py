"""Nodes that carry unlike loads are balanced while everybody publishes; a plan is shown, carried out, cancelled."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings
from tools.nodes.server_process import program, wait_until

LANES: Final = [Lane("skewed", number) for number in range(6)]
PATIENT: Final[Settings] = {"cluster": {"pause_tolerance_ms": 25_000, "session_timeout_ms": 30_000}}
"""A node that stands still for a moment is not fenced for it."""
QUICKLY: Final = ("--sample-seconds", "1")


async def test_a_skewed_cluster_is_balanced_while_everybody_publishes(tmp_path: Path) -> None:
    """Two of three nodes keep all, and one of them leads it."""
    acks = Acks()
    with Cluster(tmp_path) as cluster:

        def kept() -> dict[Lane, tuple[int, ...]]:
            partitions = cluster.view().partitions
            return {lane: tuple(partitions[lane].replicas) for lane in LANES}

        def plan(*options: str) -> Any:
            return json.loads(cluster.command("cluster", "balance", *QUICKLY, *options, "--json"))

        def faults() -> None:
            for lane in LANES:
                cluster.command("stream", "move", lane.stream, str(lane.partition), "1,2", "--wait")
                cluster.command("cluster", "elect-leader", lane.stream, str(lane.partition))
            acks.go_on()
            before = kept()
            assert set(before.values()) == {(1, 2)}
            shown = plan()
            assert shown["moves"]
            assert shown["missing"] == []
            assert kept() == before, "a plan moves nothing"
            rates = {it["node"]: it["before"]["bytes_in_per_s"] for it in shown["nodes"]}
            assert rates[1] > 0
            done = plan("--execute", "--yes", "--concurrent-moves", "2")
            assert (done["moved"], done["failed"]) == (len(done["moves"]), {})
            wanted = {(it["stream"], it["partition"]): tuple(it["after"]) for it in done["moves"]}
            acks.go_on()
            wait_until(
                lambda: kept() == {**before, **{Lane(*it): to for it, to in wanted.items()}},
                "the partitions are where they were planned to be",
            )
            partitions = cluster.view().partitions
            led = [partitions[lane].leader for lane in LANES]
            assert sorted(led) == [1, 1, 2, 2, 3, 3]
            assert all(partitions[lane].leader == kept()[lane][0] for lane in LANES)
            assert plan()["moves"] == []

        await campaign(cluster, LANES, faults, acks=acks, settings={"replicas": "2"})


async def test_a_node_that_dies_while_partitions_move_to_it_loses_nothing(tmp_path: Path) -> None:
    """What was not moved then is moved by the next plan."""
    acks = Acks()
    with Cluster(tmp_path) as cluster:

        def command(*options: str) -> list[str]:
            return [program("streamlog"), "cluster", "balance", *QUICKLY, *options]

        def is_kept_by_three() -> bool:
            partitions = cluster.view().partitions
            return any(3 in partitions[lane].replicas for lane in LANES)

        def faults() -> None:
            for lane in LANES:
                cluster.command("stream", "move", lane.stream, str(lane.partition), "1,2", "--wait")
                cluster.command("cluster", "elect-leader", lane.stream, str(lane.partition))
            servers = ("--bootstrap-server", cluster.servers)
            with subprocess.Popen(
                command("--execute", "--yes", "--concurrent-moves", "2", *servers),
                stdout=subprocess.DEVNULL,
            ) as execution:
                try:
                    wait_until(is_kept_by_three, "a partition moves to node 3")
                    cluster.kill(3)
                    acks.go_on()
                    cluster.start(3)
                    assert execution.wait(timeout=60) in (0, 1)  # 1: some were refused meanwhile
                finally:
                    execution.kill()
            cluster.wait_settled(LANES)
            cluster.command(*command("--execute", "--yes")[1:])
            shown = json.loads(cluster.command(*command("--json")[1:]))
            assert (shown["moves"], shown["missing"]) == ([], [])
            partitions = cluster.view().partitions
            assert sorted(partitions[lane].leader for lane in LANES) == [1, 1, 2, 2, 3, 3]

        alone = {"replicas": "2", "min_isr": "1"}  # else what node 3 keeps waits for it
        await campaign(cluster, LANES, faults, acks=acks, settings=alone)


def test_moves_under_way_are_cancelled(tmp_path: Path) -> None:
    """The node that a partition moves to stands still."""
    with Cluster(tmp_path, settings=PATIENT) as cluster:
        cluster.command("stream", "add", "kept", "--replicas", "2")
        cluster.command("stream", "move", "kept", "0", "1,2", "--wait")
        able = [f"{node.kafka}" for number, node in cluster.nodes.items() if number != 3]
        if cluster.controller() == 3:
            cluster.command("cluster", "transfer-controller", "1")
            wait_until(lambda: cluster.controller() != 3, "another controller")
        servers = ("--bootstrap-server", ",".join(able))
        cluster[3].pause()
        try:
            cluster.command_without_servers("stream", "move", "kept", "0", "3,2", *servers)
            said = cluster.command_without_servers(
                "cluster", "balance", "--cancel", "--yes", "--json", *servers
            )
        finally:
            cluster[3].resume()
        assert json.loads(said) == {"cancelled": ["kept/0"], "refused": {}}
        assert set(cluster.view().partitions[Lane("kept")].replicas) == {1, 2}
