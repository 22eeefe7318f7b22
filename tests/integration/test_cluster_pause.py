"""SIGSTOP for longer than a session: whoever comes back has been succeeded, and acks nothing."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from benchmarks import silence
from tests.history import Lane
from tests.integration.campaign import Acks, campaign, connect, create_streams
from tests.integration.victims import VICTIMS, victims
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings

QUICK: Final[Settings] = {
    "cluster": {
        "heartbeat_interval_ms": 200,
        "leader_lease_ms": 1_200,
        "session_timeout_ms": 1_500,
    },
}
PAUSE_S: Final = 3.0
"""Twice the session."""
SOON_S: Final = 1.9
"""Four times what it takes on a machine that has time; followers report a leader after 2 s."""
HUNG_S: Final = 5.0
"""Half of what a follower may lag."""
SHIM: Final = Path(silence.__file__).with_name("hung_sync.c")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with short sessions."""
    with Cluster(tmp_path_factory.mktemp("pause"), settings=QUICK) as cluster:
        yield cluster


def pause(
    cluster: Cluster,
    kind: str,
    lane: Lane,
    *,
    times: int = 1,
    pause_s: float = PAUSE_S,
    acks: Acks | None = None,
) -> Callable[[], None]:
    """Stop the chosen nodes in their tracks, let the others go on without, then let them go on.

    ``acks``: they must come while the nodes stand still.
    """

    def faults() -> None:
        for _ in range(times):
            chosen = [cluster[number] for number in victims(cluster, kind, lane)]
            for node in chosen:
                node.pause()
            try:
                threading.Event().wait(pause_s)
                if acks is not None:
                    acks.go_on()
            finally:
                for node in chosen:
                    node.resume()
            for node in chosen:
                node.wait_ready()

    return faults


@pytest.mark.parametrize("kind", VICTIMS)
async def test_paused_nodes_are_succeeded_or_waited_for(cluster: Cluster, kind: str) -> None:
    lane = Lane(f"paused-{kind}")
    acks = Acks()
    has_majority = kind not in ("two", "all")
    faults = pause(cluster, kind, lane, acks=acks if has_majority else None)
    await campaign(cluster, [lane], faults, acks=acks)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["leader", "two", "all"])
@pytest.mark.parametrize("pause_s", [0.7, 3.0])
async def test_pauses_again_and_again(tmp_path: Path, kind: str, pause_s: float) -> None:
    lanes = [Lane("h0"), Lane("h1"), Lane("h2")]
    with Cluster(tmp_path, settings=QUICK) as cluster:
        await campaign(cluster, lanes, pause(cluster, kind, lanes[0], times=50, pause_s=pause_s))


async def publish_until_acknowledged(client: Client, lane: Lane, *, within_s: float) -> None:
    """Again and again, as a publisher does that is not answered."""
    async with asyncio.timeout(within_s):
        while True:
            with contextlib.suppress(NatsError):
                await client.jetstream().publish(lane.subject, b"after", timeout=0.1)
                return


@pytest.mark.parametrize("kind", ["leader", "controller"])
async def test_a_silent_node_is_replaced_soon(tmp_path: Path, kind: str) -> None:
    """With heartbeats each 30 ms, before followers report it. ``benchmarks.silence`` measures how soon."""
    lane = Lane("silence")
    with Cluster(tmp_path, settings=silence.SETTINGS) as cluster:
        client = await connect(cluster)
        await create_streams(client, [lane])
        await asyncio.to_thread(cluster.wait_settled, [lane])
        await client.jetstream().publish(lane.subject, b"before")
        (number,) = victims(cluster, kind, lane)
        cluster[number].pause()
        try:
            await publish_until_acknowledged(client, lane, within_s=SOON_S)
        finally:
            cluster[number].resume()
            await client.close()


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For LD_PRELOAD: syncs do not return while a file exists."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    shim = tmp_path_factory.mktemp("shim") / "hung_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
    return shim


@pytest.mark.parametrize("kind", ["leader", "follower", "controller"])
async def test_a_node_whose_disk_does_not_return_is_replaced(
    tmp_path: Path, shim: Path, kind: str
) -> None:
    """Its process answers, and its syncs hang. Before, a leader led on, and a follower was waited for."""

    def node(number: int, folder: Path) -> NodeProcess:
        environment = os.environ | {"LD_PRELOAD": str(shim), "HUNG": str(folder / "hung")}
        return NodeProcess(number, folder, environment=environment)

    lane = Lane("hung")
    with Cluster(tmp_path, make_node=node) as cluster:
        client = await connect(cluster)
        await create_streams(client, [lane])
        await asyncio.to_thread(cluster.wait_settled, [lane])
        (number,) = victims(cluster, kind, lane)
        hung = cluster[number].directory / "hung"
        await client.jetstream().publish(lane.subject, b"before")
        hung.touch()
        await publish_until_acknowledged(client, lane, within_s=HUNG_S)
        hung.unlink()
        await asyncio.to_thread(cluster.wait_settled, [lane])
        await client.close()
