"""Where no leader listens a publisher hears so at once, and not after a time-out."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.history import Lane
from tests.integration.campaign import connect, create_streams
from tools.nodes.cluster import Cluster

AT_ONCE_S = 5.0
"""nats-server answers within a millisecond; this machine may be busy."""
LONE = Lane("lone")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    client = await connect(cluster)
    yield client
    await client.close()


async def until_nobody_listens(client: Client, subject: str, timeout_s: float = 15) -> None:
    """Then each attempt is answered at once."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                await client.request(subject, b"x", timeout=0.5)
            except NoRespondersError:
                break
            except nats.errors.TimeoutError:
                pass  # the lease has not run out yet
            await asyncio.sleep(0.02)
    for _ in range(3):
        with pytest.raises(NoRespondersError):  # and not by a time-out
            await client.request(subject, b"x", timeout=AT_ONCE_S)


async def until_stored(client: Client, subject: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.request(subject, b"x", timeout=1)
            except (NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_deleted_stream(cluster: Cluster, client: Client) -> None:
    await create_streams(client, [Lane("gone")])
    await until_stored(client, "gone")
    await client.jetstream(domain="streamlog", timeout=5).delete_stream("gone")
    await until_nobody_listens(client, "gone", timeout_s=AT_ONCE_S)


async def test_a_stream_without_a_leader(cluster: Cluster, client: Client) -> None:
    await create_streams(client, [LONE], replicas="1")
    leader = await asyncio.to_thread(cluster.leader, LONE)
    await until_stored(client, LONE.subject)
    await asyncio.to_thread(cluster.kill, leader)
    await until_nobody_listens(client, LONE.subject)
    await asyncio.to_thread(cluster.start, leader)
    await until_stored(client, LONE.subject)


async def test_a_leader_whose_lease_has_run_out(cluster: Cluster, client: Client) -> None:
    """It is alive and connected to NATS, and cannot know whether it leads still."""
    await create_streams(client, [LONE], replicas="1")
    leader = await asyncio.to_thread(cluster.leader, LONE)
    others = [number for number in cluster.nodes if number != leader]
    await until_stored(client, LONE.subject)
    for number in others:
        cluster[number].pause()
    try:
        await until_nobody_listens(client, LONE.subject)
        assert cluster[leader].metric("streamlog_nats_connected") == 1
        assert "no word from the controller" in cluster[leader].http("/readyz")[1]
    finally:
        for number in others:
            cluster[number].resume()
    await until_stored(client, LONE.subject)
