"""SIGSTOP for longer than a session: whoever comes back has been succeeded, and acks nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.campaign import campaign
from tests.cluster import Cluster, Settings
from tests.history import Lane

QUICK: Final[Settings] = {
    "cluster": {"heartbeat_ms": 200, "lease_ms": 1_200, "session_ms": 1_500},
}
PAUSE_S: Final = 3.0
"""Twice the session."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with short sessions."""
    with Cluster(tmp_path_factory.mktemp("pause"), settings=QUICK) as cluster:
        yield cluster


def pause(
    cluster: Cluster, choose: Callable[[], int], *, times: int = 1, pause_s: float = PAUSE_S
) -> Callable[[], None]:
    """Stop the chosen node in its tracks, look for a successor, let it go on."""

    def faults() -> None:
        for _ in range(times):
            chosen = cluster[choose()]
            chosen.pause()
            try:
                threading.Event().wait(pause_s)
            finally:
                chosen.resume()
            chosen.wait_ready()

    return faults


@pytest.mark.parametrize("kind", ["leader", "controller"])
async def test_a_paused_node_is_succeeded(cluster: Cluster, kind: str) -> None:
    lane = Lane(f"paused-{kind}")

    def choose() -> int:
        return cluster.leader(lane) if kind == "leader" else cluster.controller()

    histories = await campaign(cluster, [lane], pause(cluster, choose))
    assert histories[lane].longest_gap_s() < 2 * PAUSE_S


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.7, 3.0])
async def test_pauses_of_leaders_again_and_again(tmp_path: Path, pause_s: float) -> None:
    lanes = [Lane("h0"), Lane("h1"), Lane("h2")]
    with Cluster(tmp_path, settings=QUICK) as cluster:

        def choose() -> int:
            return cluster.leader(lanes[0])

        await campaign(cluster, lanes, pause(cluster, choose, times=50, pause_s=pause_s))
