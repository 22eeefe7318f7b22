"""A campaign with batches: publishers send them while nodes are killed; then every replica is looked at."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from nats.aio.client import Client as NatsClient

from tests.history import Lane
from tests.integration.campaign import connect, create_streams
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog

LANES: Final = [Lane("orders", 0), Lane("orders", 1)]
CALM_BATCHES: Final = 5
"""Of each publisher, before the kills and after them."""


class BatchPublisher(Protocol):
    """Sends batches one after the other to one partition."""

    lane: Lane
    stopping: bool

    async def run(self) -> None:
        """Until it is to stop."""

    @property
    def begun_count(self) -> int:
        """Batches."""

    @property
    def ended_count(self) -> int:
        """Batches that were acknowledged as a whole."""


P = TypeVar("P", bound=BatchPublisher)


async def publish_through_kills(
    folder: Path,
    make: Callable[[int, Lane, Cluster], P],
    *,
    rounds: int,
    allow: Callable[[NatsClient], Awaitable[None]],
    check: Callable[[ReplicaLog, Sequence[P]], None],
) -> None:
    """``allow`` has the stream take the batches; ``check`` looks at a replica, with its partition's publishers."""
    pause = threading.Event()
    with Cluster(folder) as cluster:

        def faults() -> None:
            for _ in range(rounds):
                for victims in ([cluster.leader(random.choice(LANES))], [1, 2, 3]):
                    pause.wait(random.uniform(0.05, 0.4))
                    cluster.kill(*victims)
                    pause.wait(random.uniform(0.05, 0.5))
                    cluster.start(*victims)
                    cluster.wait_settled(LANES)

        client = await connect(cluster)
        await create_streams(client, LANES, min_isr="2")
        await allow(client)
        await client.close()
        cluster.wait_settled(LANES)
        publishers = [make(number, LANES[number % 2], cluster) for number in range(4)]
        async with asyncio.TaskGroup() as group:
            for publisher in publishers:
                group.create_task(publisher.run())
            await _some_more(publishers, [0] * len(publishers))
            await asyncio.to_thread(faults)
            await _some_more(publishers, [it.ended_count for it in publishers])
            for publisher in publishers:
                publisher.stopping = True
        cut = sum(it.begun_count - it.ended_count for it in publishers)
        assert cut > 0, "no kill has hit a batch"
        for lane in LANES:
            await asyncio.to_thread(cluster.wait_replicated, lane)
            mine = [it for it in publishers if it.lane == lane]
            for log in cluster.replicas(lane):
                check(log, mine)


async def _some_more(publishers: Sequence[BatchPublisher], before: Sequence[int]) -> None:
    async with asyncio.timeout(60.0):
        while any(  # noqa: ASYNC110
            it.ended_count < count + CALM_BATCHES
            for it, count in zip(publishers, before, strict=True)
        ):
            await asyncio.sleep(0.05)
