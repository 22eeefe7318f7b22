"""Snapshots and restores of three nodes. A stream that is seen is whole, whichever node is killed, and whenever."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tests.integration.snapshot_client import (
    Asked,
    Backup,
    ask,
    backup,
    begin_restore,
    restore,
    send_chunks,
)
from tests.integration.test_consumers_cluster import (
    FAILED,
    SETTINGS,
    assert_no_faults,
    connected,
    elect,
    retried,
    state_partition,
)
from tools.nodes.cluster import Cluster, NoNats

PREFIX = "$JS.API"
NAME = "moved"
COUNT = 3_000

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


async def filled(client: Client, payload_bytes: int = 4_000) -> Backup:
    """A backup of a stream that is no more: messages, a gap, and a consumer that has some of them."""
    js = client.jetstream()
    await retried(lambda: js.add_stream(name=NAME, subjects=[f"{NAME}.>"], num_replicas=3))
    for start in range(0, COUNT, 500):
        await asyncio.gather(
            *(
                js.publish(f"{NAME}.{it % 7}", b"%d " % it + os.urandom(payload_bytes))
                for it in range(start, start + 500)
            )
        )
    await js.delete_msg(NAME, 10)
    config = {"durable_name": "w", "ack_policy": "explicit", "ack_wait": 600_000_000_000}
    body = {"stream_name": NAME, "config": config}
    await ask(client, f"{PREFIX}.CONSUMER.DURABLE.CREATE.{NAME}.w", body)
    subscription = await js.pull_subscribe_bind("w", NAME)
    for message in await subscription.fetch(20):
        await message.ack_sync()
    await subscription.fetch(5)
    kept = await backup(client, PREFIX, NAME)
    assert kept.status == "204" and kept.config["num_replicas"] == 3
    assert await js.delete_stream(NAME)
    return kept


async def assert_whole(client: Client, kept: Backup) -> None:
    info = await ask(client, f"{PREFIX}.STREAM.INFO.{NAME}", {"deleted_details": True})
    state, before = info["state"], kept.state
    for key in ("messages", "first_seq", "last_seq"):
        assert state[key] == before[key]
    assert 10 in state["deleted"]
    consumer = await ask(client, f"{PREFIX}.CONSUMER.INFO.{NAME}.w", b"")
    assert consumer["num_ack_pending"] == 5
    assert consumer["ack_floor"]["consumer_seq"] == 20
    for sequence in (1, 11, COUNT):
        got = await ask(client, f"{PREFIX}.STREAM.MSG.GET.{NAME}", {"seq": sequence})
        assert got["message"]["subject"] == f"{NAME}.{int(sequence - 1) % 7}"


async def is_seen(client: Client) -> bool:
    names = await ask(client, f"{PREFIX}.STREAM.NAMES", b"")
    try:
        await ask(client, f"{PREFIX}.STREAM.INFO.{NAME}", b"")
    except Asked as refused:
        assert refused.code == 10059 and NAME not in names["streams"]
        return False
    return True


async def restored(client: Client, kept: Backup, *, replicas: int = 3) -> dict[str, Any]:
    """Again while something of an earlier restore is in the way, and leaders change."""

    async def once() -> dict[str, Any]:
        try:
            return await restore(client, PREFIX, kept, num_replicas=replicas)
        except (Asked, AssertionError) as refused:
            raise TimeoutError(str(refused)) from None

    found: dict[str, Any] = await retried(once, timeout_s=60)
    return found


async def test_client_node_leader_and_coordinator_are_different_nodes(trio: Cluster) -> None:
    async with connected(trio, 1) as client:
        kept = await filled(client)
        await asyncio.to_thread(elect, trio, state_partition(NAME), 2)
    async with connected(trio, 3) as client:
        await restored(client, kept)
        await assert_whole(client, kept)
        again = await backup(client, PREFIX, NAME)
        assert again.status == "204"


@pytest.mark.parametrize("at", [0.0, 0.1, 0.3, 0.6, 1.0])
async def test_kill_of_the_node_that_restores_leaves_nothing_that_is_seen(
    trio: Cluster, at: float
) -> None:
    """In the middle of the upload, or of what follows it."""
    async with connected(trio, 1) as client, connected(trio, 2, 3) as other:
        kept = await filled(client)
        subject = await begin_restore(client, PREFIX, kept)
        await send_chunks(client, subject, kept.data if at else kept.data[: 1 << 20])
        if at:
            await client.publish(subject, b"", reply=client.new_inbox())
            await client.flush()
            await asyncio.sleep(at)
        trio.kill(1)
        seen = await retried(lambda: is_seen(other))
        if seen:
            await assert_whole(other, kept)
            await other.jetstream().delete_stream(NAME)
        await restored(other, kept, replicas=2)
        await assert_whole(other, kept)
        trio.start(1)
        await asyncio.to_thread(trio.wait_settled, [(NAME, 0)])
        await retried(lambda: assert_whole(other, kept))
        assert not list((trio[1].data_dir / "restores").glob("*"))


async def test_what_a_killed_node_has_left_goes_when_it_is_back(trio: Cluster) -> None:
    async with connected(trio, 1) as client, connected(trio, 2, 3) as other:
        kept = await filled(client)
        subject = await begin_restore(client, PREFIX, kept)
        await send_chunks(client, subject, kept.data)
        await client.publish(subject, b"", reply=client.new_inbox())
        await client.flush()
        async with asyncio.timeout(20):
            while not has_folder(trio):  # noqa: ASYNC110 (of another process)
                await asyncio.sleep(0.005)
        trio.kill(1)
        trio.start(1)
        async with asyncio.timeout(60):
            while has_folder(trio) and not await retried(lambda: is_seen(other)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if await is_seen(other):  # it was whole before the blow
            await assert_whole(other, kept)


def has_folder(trio: Cluster) -> bool:
    return any((trio[it].data_dir / "streams" / NAME).exists() for it in (1, 2, 3))


def led_counts(trio: Cluster) -> dict[int, int]:
    """How often each node has come to lead the stream."""
    led = f"partition led stream={NAME} "
    return {it: trio[it].log_text().count(led) for it in (1, 2, 3)}


async def test_kill_of_the_leader_does_not_end_a_restore(trio: Cluster) -> None:
    async with connected(trio, 1) as client:
        kept = await filled(client)
        before = led_counts(trio)
        subject = await begin_restore(client, PREFIX, kept)
        await send_chunks(client, subject, kept.data)
        done = asyncio.create_task(ask(client, subject, b"", timeout_s=90))
        async with asyncio.timeout(20):
            while (counts := led_counts(trio)) == before:  # noqa: ASYNC110 (of other processes)
                await asyncio.sleep(0.01)
        (leader,) = (it for it in counts if counts[it] > before[it])
        if leader == 1:  # that would end the restore itself
            leader = 2
        trio.kill(leader)
        try:
            await done
        except (Asked, *FAILED):
            trio.start(leader)
            await restored(client, kept)
        else:
            trio.start(leader)
        await retried(lambda: assert_whole(client, kept))
