"""Cut networks, silently: one leader for each epoch, no acknowledgement from a minority."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.network import Network, unavailable
from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tests.integration.cuts import CUTS, NODES, Cut, all_apart, isolated, lost, mute
from tests.integration.namespaced import cluster_in
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

QUICK: Final[Settings] = {
    "cluster": {
        "heartbeat_interval_ms": 200,
        "leader_lease_ms": 1_200,
        "session_timeout_ms": 1_500,
    },
}
CUT_S: Final = 3.5
"""Over two sessions."""

World = tuple[Cluster, Network]


def start_world(directory: Path) -> Iterator[World]:
    """Nodes in namespaces of their own; nats-server and clients outside."""
    if reason := unavailable():
        pytest.skip(reason)
    with Network(NODES) as network, cluster_in(network, directory, settings=QUICK) as cluster:
        yield cluster, network


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all tests of this file that leave it whole."""
    yield from start_world(tmp_path_factory.mktemp("partition"))


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """One for a long test."""
    yield from start_world(tmp_path)


def cut_and_heal(
    world: World,
    cut: Cut,
    choose: Callable[[], int],
    *,
    times: int = 1,
    cut_s: float = CUT_S,
    acks: Acks | None = None,
) -> Callable[[], None]:
    """Cut, wait, heal, and wait until all are ready again. ``acks`` must come during the cut."""
    cluster, network = world

    def faults() -> None:
        for _ in range(times):
            victim = choose()
            cut(network, victim)
            try:
                threading.Event().wait(cut_s)
                if acks is not None:
                    acks.go_on()
            finally:
                network.heal()
            for node in cluster.nodes.values():
                node.wait_ready()

    return faults


async def test_a_leader_that_only_publishers_reach_is_succeeded(world: World) -> None:
    """It still listens, so whatever it told publishers after its lease would be a lie."""
    cluster, lane = world[0], Lane("isolated")
    acks = Acks()
    faults = cut_and_heal(world, isolated, lambda: cluster.leader(lane), acks=acks)
    await campaign(cluster, [lane], faults, acks=acks)


async def test_a_leader_that_nobody_hears_is_succeeded(world: World) -> None:
    cluster, lane = world[0], Lane("mute")
    await campaign(cluster, [lane], cut_and_heal(world, mute, lambda: cluster.leader(lane)))


async def test_a_follower_that_nobody_hears_is_not_waited_for(world: World) -> None:
    """It leaves the in-sync replicas, and comes back by itself."""
    cluster, lane = world[0], Lane("follower")
    faults = cut_and_heal(world, lost, lambda: cluster.leader(lane) % len(NODES) + 1)
    await campaign(cluster, [lane], faults)


async def test_without_a_majority_nothing_is_acknowledged(world: World) -> None:
    """Nobody reaches anybody for longer than a lease; then all is as it was."""
    cluster, lane = world[0], Lane("apart")
    faults = cut_and_heal(world, all_apart, lambda: 1)
    histories = await campaign(cluster, [lane], faults)
    assert histories[lane].longest_gap_s() > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("who", ["leader", "controller"])
async def test_cuts_again_and_again(own_world: World, cut: Cut, who: str) -> None:
    cluster, lanes = own_world[0], [Lane("h0"), Lane("h1"), Lane("h2", 0), Lane("h2", 1)]

    def choose() -> int:
        return cluster.leader(lanes[0]) if who == "leader" else cluster.controller()

    faults = cut_and_heal(own_world, cut, choose, times=15)
    await campaign(cluster, lanes, faults)


@pytest.mark.slow
async def test_short_cuts_again_and_again(own_world: World) -> None:
    """Too short for a session to end, long enough for requests to be lost."""
    cluster, lanes = own_world[0], [Lane("h0"), Lane("h1"), Lane("h2")]
    faults = cut_and_heal(
        own_world, isolated, lambda: cluster.leader(lanes[0]), times=50, cut_s=0.6
    )
    await campaign(cluster, lanes, faults)


@pytest.mark.slow
async def test_a_crash_behind_a_cut(own_world: World) -> None:
    """The isolated leader is killed before the network heals, and restarts into the healed one."""
    cluster, network = own_world
    lanes = [Lane("h0"), Lane("h1"), Lane("h2")]

    def faults() -> None:
        for _ in range(15):
            victim = cluster.leader(lanes[0])
            isolated(network, victim)
            threading.Event().wait(1.0)
            cluster.kill(victim)
            network.heal()
            threading.Event().wait(1.0)
            cluster.start(victim)
            cluster.wait_settled(lanes)

    await campaign(cluster, lanes, faults)
