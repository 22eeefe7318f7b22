"""kill -9 of one node, of two, of all, under load: nothing acknowledged is lost on any replica."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.registry import LIST_OFFSETS
from tests.history import Lane
from tests.integration.campaign import Acks, campaign
from tests.integration.victims import VICTIMS, victims
from tests.raw_client import RawClient
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that each test leaves running."""
    with Cluster(tmp_path_factory.mktemp("kill")) as cluster:
        yield cluster


def kill_again_and_again(
    cluster: Cluster,
    lanes: list[Lane],
    kinds: list[str],
    *,
    away_s: float = 0.5,
    up_s: float = 0.5,
) -> Callable[[], None]:
    """Kill, leave them away for a while, start them again, wait until all are in sync."""

    def faults() -> None:
        pause = threading.Event()
        for kind in kinds:
            chosen = victims(cluster, kind, random.choice(lanes))
            cluster.kill(*chosen)
            pause.wait(random.uniform(0.0, 2 * away_s))
            cluster.start(*chosen)
            if random.random() < 0.7:
                cluster.wait_settled(lanes)
                pause.wait(random.uniform(0.0, 2 * up_s))

    return faults


async def test_each_kind_of_node_is_killed_once(cluster: Cluster) -> None:
    lanes = [Lane("once"), Lane("both", 0), Lane("both", 1)]
    faults = kill_again_and_again(cluster, lanes, list(VICTIMS))
    histories = await campaign(cluster, lanes, faults)
    assert all(len(history.acked) > 50 for history in histories.values())


async def test_a_killed_leader_is_succeeded_without_it(cluster: Cluster) -> None:
    """The service is back while the node is still away."""
    lane, acks = Lane("succeeded"), Acks()
    away = 0

    def faults() -> None:
        nonlocal away
        away = cluster.leader(lane)
        cluster.kill(away)
        wait_until(lambda: cluster.leader(lane) != away, "another leads")
        threading.Event().wait(1.0)
        assert cluster.leader(lane) != away
        acks.go_on()
        cluster.start(away)

    await campaign(cluster, [lane], faults, acks=acks)


async def test_a_node_that_starts_alone_calls_no_partition_unknown(tmp_path: Path) -> None:
    """It knows less than it knew, and librdkafka never asks again for what is unknown."""
    with Cluster(tmp_path) as cluster:
        cluster.command("stream", "add", "new", "--replicas", "3")
        cluster.kill()
        node = cluster[1]
        node.spawn()
        host, port = node.kafka.split(":")
        wait_until(lambda: listens(host, int(port)), "the node listens")
        partition = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "new", "partitions": [partition]}],
        }
        async with RawClient(int(port)) as client:
            answer = await client.ask(LIST_OFFSETS, 7, request)
        (told,) = answer["topics"][0]["partitions"]
        assert told["error_code"] in {ErrorCode.not_leader_or_follower, ErrorCode.none}


def listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port)):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["commit", "os"])
@pytest.mark.parametrize("kind", VICTIMS)
async def test_fifty_kills(tmp_path: Path, kind: str, sync: str) -> None:
    lanes = [Lane("h0"), Lane("h1"), Lane("h2", 0), Lane("h2", 1)]
    with Cluster(tmp_path) as cluster:
        faults = kill_again_and_again(cluster, lanes, [kind] * 50)
        await campaign(cluster, lanes, faults, settings={"sync": sync})


@pytest.mark.slow
async def test_fifty_kills_of_any(tmp_path: Path) -> None:
    lanes = [Lane("h0"), Lane("h1"), Lane("h2", 0), Lane("h2", 1)]
    with Cluster(tmp_path) as cluster:
        kinds = random.choices(VICTIMS, k=50)
        await campaign(cluster, lanes, kill_again_and_again(cluster, lanes, kinds, away_s=2.0))
