"""Packets lost, late, out of order and twice: slow, but nothing is lost, doubled or misplaced."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.history import Lane
from tests.integration.campaign import campaign
from tests.integration.namespaced import cluster_in
from tests.integration.rough_network import CALM, RoughNetwork, Weather, unavailable
from tools.nodes.cluster import Cluster

WEATHERS: Final = {
    "slow": Weather(delay_ms=100, jitter_ms=50),
    "lossy": Weather(loss=0.05, delay_ms=2, jitter_ms=2),
    "all": Weather(loss=0.1, duplicate=0.1, delay_ms=20, jitter_ms=20),
}

World = tuple[Cluster, RoughNetwork]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """In calm weather."""
    if reason := unavailable():
        pytest.skip(reason)
    with RoughNetwork((1, 2, 3)) as network, cluster_in(network, tmp_path) as cluster:
        yield cluster, network


@pytest.mark.slow
@pytest.mark.parametrize("name", WEATHERS)
async def test_publishing_in_all_weathers(world: World, name: str) -> None:
    """With a kill of the leader in the midst of it."""
    cluster, network = world
    lanes = [Lane("h0"), Lane("h1"), Lane("h2")]

    def faults() -> None:
        network.set_weather(WEATHERS[name])
        for lane in lanes:
            threading.Event().wait(5.0)
            leader = cluster.leader(lane)
            cluster.kill(leader)
            threading.Event().wait(5.0)
            cluster.start(leader)
        network.set_weather(CALM)

    await campaign(cluster, lanes, faults, patience_s=90)
