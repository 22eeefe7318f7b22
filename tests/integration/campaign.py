"""A campaign: publish and consume on all lanes while faults happen, then look at every log."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import nats
import nats.errors
from nats.aio.client import Client
from nats.js.api import StreamConfig

from tests.history import Lane, LaneHistory, Publishers, check
from tests.integration.watching_consumer import WatchingConsumer
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import SETTLE_TIMEOUT_S
from tools.nodes.server_process import wait_until

DOMAIN: Final = "streamlog"
ATTEMPTS: Final = 5
"""NATS may give a request to a connection that it does not know yet to be dead, after a cut."""
CALM_ACKS: Final = 20
"""Of each lane, before the faults and after them."""


class Acks:
    """Those of a campaign's publishers, for its faults: what is acknowledged while they last."""

    def __init__(self) -> None:
        self.histories: dict[Lane, LaneHistory] = {}

    def go_on(self) -> None:
        """Wait until each lane is acknowledged something, from now on."""
        before = {lane: len(history.acked) for lane, history in self.histories.items()}
        assert before
        wait_until(
            lambda: all(len(self.histories[it].acked) > count for it, count in before.items()),
            "messages are acknowledged",
        )


async def connect(cluster: Cluster) -> Client:
    """A NATS client that never gives up."""
    return await nats.connect(
        cluster.nats.url,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,
        error_cb=_ignore,  # that the server went away is what some campaigns are about
    )


async def _ignore(_: Exception) -> None:
    pass


async def create_streams(client: Client, lanes: Sequence[Lane], **settings: str) -> None:
    """A stream for each name, with partitions enough; ``settings``: what streamlog alone has."""
    context = client.jetstream(domain=DOMAIN, timeout=5)
    for name in dict.fromkeys(lane.stream for lane in lanes):
        partitions = 1 + max(lane.partition for lane in lanes if lane.stream == name)
        own = {"partitions": str(partitions), "replicas": "3"} | settings
        replicas = int(own.pop("replicas"))
        metadata = {f"streamlog.{key}": value for key, value in own.items()}
        config = StreamConfig(name=name, num_replicas=replicas, metadata=metadata)
        for attempt in range(ATTEMPTS):
            try:
                await context.add_stream(config)
                break
            except nats.errors.TimeoutError:
                if attempt == ATTEMPTS - 1:
                    raise


async def campaign(
    cluster: Cluster,
    lanes: Sequence[Lane],
    faults: Callable[[], None],
    *,
    settings: dict[str, str] | None = None,
    acks: Acks | None = None,
    **publishers: Any,
) -> dict[Lane, LaneHistory]:
    """Create the streams, run ``faults`` (in a thread) under load, let everything settle, check.

    ``faults`` must leave all nodes running, or about to. ``acks``: for them. ``publishers``: of ``Publishers``.
    """
    client = await connect(cluster)
    try:
        await create_streams(client, lanes, **settings or {})
        await asyncio.to_thread(cluster.wait_settled, lanes)
        context = client.jetstream(domain=DOMAIN)
        with WatchingConsumer(cluster.servers, lanes) as consumer:
            async with Publishers(context, lanes, **publishers) as histories:
                await all_is_well(histories)
                if acks is not None:
                    acks.histories = histories
                await asyncio.to_thread(faults)
                await all_is_well(histories)
            await asyncio.to_thread(verify, cluster, histories, consumer)
        return histories
    finally:
        await client.close()


async def all_is_well(histories: dict[Lane, LaneHistory]) -> None:
    """Each lane is acknowledged something, from now on."""
    wanted = {lane: len(history.acked) + CALM_ACKS for lane, history in histories.items()}
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while any(len(histories[it].acked) < count for it, count in wanted.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def verify(
    cluster: Cluster, histories: dict[Lane, LaneHistory], consumer: WatchingConsumer
) -> None:
    """Wait until all is replicated and read; raise Violation if anything is not as promised."""
    cluster.wait_settled(list(histories))
    for lane, history in histories.items():
        end = cluster.wait_replicated(lane)
        consumer.wait_for(lane, end)
        check(history, cluster.replicas(lane), end, consumer.seen[lane])
        _say(
            f"{lane.stream}/{lane.partition}: {len(history.acked)} acked, {end} stored, "
            f"longest gap {history.longest_gap_s():.2f} s, refused {dict(history.refused)}"
        )
    assert consumer.problems == []


def _say(text: str) -> None:
    """Shown when the test fails, or with ``-s``."""
    print(text, file=sys.stderr)
