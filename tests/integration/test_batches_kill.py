"""Nodes are killed in the midst of atomic batches: every batch is whole or absent, everywhere."""

import asyncio
import random
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from tests.history import Lane
from tests.integration.campaign import connect, create_streams
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog

LANES: Final = [Lane("orders", 0), Lane("orders", 1)]
SIZE_MAX: Final = 40
ANSWER_S: Final = 3.0
"""A batch that a leader took along is not answered: it is begun anew."""
CALM_BATCHES: Final = 5
"""Of each publisher, before the kills and after them."""


class Publisher:
    """Batches one after the other on one partition, now at once and now message by message."""

    def __init__(self, number: int, lane: Lane, cluster: Cluster) -> None:
        self._name, self._lane, self._cluster = f"p{number}", lane, cluster
        self._chosen = random.Random(number)
        self.sizes: dict[str, int] = {}
        """Of all that was begun."""
        self.acknowledged: dict[str, int] = {}
        """The sequence of the last message."""
        self.stopping = False

    async def run(self) -> None:
        client = await connect(self._cluster)
        try:
            while not self.stopping:
                batch_id = f"{self._name}-{len(self.sizes)}"
                self.sizes[batch_id] = self._chosen.randrange(1, SIZE_MAX + 1)
                with suppress(nats.errors.Error, TimeoutError):
                    await self._publish(client, batch_id)
        finally:
            await client.close()

    async def _publish(self, client: NatsClient, batch_id: str) -> None:
        size, slowly = self.sizes[batch_id], self._chosen.random() < 0.3
        subject = self._lane.subject
        for sequence in range(1, size + 1):
            lines = [f"Nats-Batch-Id: {batch_id}", f"Nats-Batch-Sequence: {sequence}"]
            headers = dict(line.split(": ") for line in lines)
            payload = f"{batch_id}/{sequence}/{size}".encode() + bytes(self._chosen.randrange(200))
            if sequence < size:
                await client.publish(subject, payload, headers=headers)
                if slowly:
                    await asyncio.sleep(self._chosen.random() / 100)
                continue
            headers["Nats-Batch-Commit"] = "1"
            answer = await client.request(subject, payload, headers=headers, timeout=ANSWER_S)
            if b'"count"' in answer.data:
                self.acknowledged[batch_id] = int(answer.data.split(b'"seq":')[1].split(b",")[0])


def check_whole(log: ReplicaLog, publishers: list[Publisher]) -> None:
    """Every batch stands there with all of its messages in a row, or not at all."""
    places: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for record in log.records:
        batch_id, sequence, size = record.value.rstrip(b"\0").decode().split("/")
        places[batch_id].append((record.offset, int(sequence), int(size)))
    for batch_id, found in places.items():
        base, messages = found[0][0], found[0][2]
        expected = [(base + place, place + 1, messages) for place in range(messages)]
        assert found == expected, f"{log.name}: {batch_id} is torn, or there twice"
    for publisher in publishers:
        for batch_id, acknowledged in publisher.acknowledged.items():
            offset, number, count = places[batch_id][-1]
            assert (offset + 1, number) == (acknowledged, count), f"{log.name}: {batch_id}"


async def until(condition: object, timeout_s: float = 60.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
async def test_every_batch_is_whole_or_absent(tmp_path: Path, rounds: int) -> None:
    pause = threading.Event()
    with Cluster(tmp_path) as cluster:

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
        await client.close()
        await allow_batches(cluster)
        cluster.wait_settled(LANES)
        publishers = [Publisher(number, LANES[number % 2], cluster) for number in range(4)]

        def acknowledged(than: list[int]) -> bool:
            counts = [len(it.acknowledged) for it in publishers]
            return all(
                count >= more + CALM_BATCHES for count, more in zip(counts, than, strict=True)
            )

        async with asyncio.TaskGroup() as group:
            for publisher in publishers:
                group.create_task(publisher.run())
            await until(lambda: acknowledged([0] * 4))
            await asyncio.to_thread(faults)
            before = [len(it.acknowledged) for it in publishers]
            await until(lambda: acknowledged(before))
            for publisher in publishers:
                publisher.stopping = True
        unanswered = sum(len(it.sizes) - len(it.acknowledged) for it in publishers)
        assert unanswered > 0, "no kill has hit a batch"
        for lane in LANES:
            await asyncio.to_thread(cluster.wait_replicated, lane)
            mine = [it for it in publishers if it._lane == lane]
            for log in cluster.replicas(lane):
                check_whole(log, mine)


async def allow_batches(cluster: Cluster) -> None:
    """As an operator does it."""
    client = await connect(cluster)
    js = client.jetstream(domain="streamlog", timeout=10)
    config = (await js.stream_info("orders")).config
    config.allow_atomic = True
    assert (await js.update_stream(config)).config.allow_atomic
    await client.close()
