"""Nodes are killed in the midst of atomic batches: every batch is whole or absent, everywhere."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from tests.history import Lane
from tests.integration.batch_campaign import publish_through_kills
from tests.integration.campaign import DOMAIN, connect
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog

SIZE_MAX: Final = 40
ANSWER_S: Final = 3.0
"""A batch that a leader took along is not answered: it is begun anew."""


class Publisher:
    """Batches one after the other on one partition, now at once and now message by message."""

    def __init__(self, number: int, lane: Lane, cluster: Cluster) -> None:
        self._name, self.lane, self._cluster = f"p{number}", lane, cluster
        self._chosen = random.Random(number)
        self.sizes: dict[str, int] = {}
        """Of all that was begun."""
        self.acknowledged: dict[str, int] = {}
        """The sequence of the last message."""
        self.stopping = False

    @property
    def begun_count(self) -> int:
        return len(self.sizes)

    @property
    def ended_count(self) -> int:
        return len(self.acknowledged)

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
        subject = self.lane.subject
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


def check_whole(log: ReplicaLog, publishers: Sequence[Publisher]) -> None:
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


async def allow(client: NatsClient) -> None:
    """As an operator does it."""
    js = client.jetstream(domain=DOMAIN, timeout=10)
    config = (await js.stream_info("orders")).config
    config.allow_atomic = True
    assert (await js.update_stream(config)).config.allow_atomic


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
async def test_every_batch_is_whole_or_absent(tmp_path: Path, rounds: int) -> None:
    await publish_through_kills(tmp_path, Publisher, rounds=rounds, allow=allow, check=check_whole)
