"""Nodes are killed in the midst of fast batches: what was acknowledged is there, once and in order, everywhere."""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from tests.history import Lane
from tests.integration.batch_campaign import publish_through_kills
from tests.integration.campaign import DOMAIN, connect
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog

SIZE_MAX: Final = 400
FLOW: Final = 10
OUTSTANDING_MAX: Final = 60
"""Messages after the last ack."""
ANSWER_S: Final = 3.0
"""What is not answered by then was sent while no leader listened."""
START, APPEND, COMMIT, EOB, _ = range(5)


class FastPublisher:
    """Batches one after the other on one partition, each told as far as it gets."""

    def __init__(self, number: int, lane: Lane, cluster: Cluster) -> None:
        self._name, self.lane, self._cluster = f"p{number}", lane, cluster
        self._chosen = random.Random(number)
        self.acknowledged: dict[str, int] = {}
        """By batch: all of its messages up to this one, of each batch that was begun."""
        self.ended: dict[str, tuple[int, int]] = {}
        """By batch: the sequence and the count of its PubAck."""
        self.stopping = False

    @property
    def begun_count(self) -> int:
        return len(self.acknowledged)

    @property
    def ended_count(self) -> int:
        return len(self.ended)

    async def run(self) -> None:
        client = await connect(self._cluster)
        try:
            while not self.stopping:
                await self._publish(client, f"{self._name}-{len(self.acknowledged)}")
        finally:
            await client.close()

    async def _publish(self, client: NatsClient, batch_id: str) -> None:
        size = self._chosen.randrange(1, SIZE_MAX + 1)
        self.acknowledged[batch_id] = 0
        inbox, heard = client.new_inbox(), asyncio.Queue[Msg]()
        subscription = await client.subscribe(f"{inbox}.>", cb=heard.put)
        try:
            for number in range(1, size + 1):
                operation = COMMIT if number == size else APPEND if number > 1 else START
                reply = f"{inbox}.{batch_id}.{FLOW}.fail.{number}.{operation}.$FI"
                payload = f"{batch_id}/{number}".encode() + bytes(self._chosen.randrange(200))
                await client.publish(self.lane.subject, payload, reply=reply)
                while number == size or number - self.acknowledged[batch_id] >= OUTSTANDING_MAX:
                    async with asyncio.timeout(ANSWER_S):
                        if self._is_over(batch_id, await heard.get()):
                            return
        except TimeoutError:
            return
        finally:
            await subscription.unsubscribe()

    def _is_over(self, batch_id: str, message: Msg) -> bool:
        """The batch has ended with this answer."""
        answer: dict[str, Any] = json.loads(message.data or b'{"error":"no responders"}')
        if answer.get("type") == "ack":
            assert answer["seq"] >= self.acknowledged[batch_id]
            self.acknowledged[batch_id] = answer["seq"]
            return False
        if "count" in answer:
            assert answer["count"] >= self.acknowledged[batch_id]
            self.acknowledged[batch_id] = answer["count"]
            self.ended[batch_id] = answer["seq"], answer["count"]
        return answer.get("type") is None


def check_kept(log: ReplicaLog, publishers: Sequence[FastPublisher]) -> None:
    """Of every batch its first messages are there, in order, at least those that were acknowledged."""
    places: dict[str, list[int]] = defaultdict(list)
    at: dict[int, tuple[str, int]] = {}
    for record in log.records:
        batch_id, number = record.value.rstrip(b"\0").decode().split("/")
        places[batch_id].append(int(number))
        at[record.offset + 1] = batch_id, int(number)
    for batch_id, numbers in places.items():
        assert numbers == list(range(1, len(numbers) + 1)), f"{log.name}: {batch_id}"
    for publisher in publishers:
        for batch_id, acknowledged in publisher.acknowledged.items():
            assert len(places[batch_id]) >= acknowledged, f"{log.name}: {batch_id}"
        for batch_id, (sequence, count) in publisher.ended.items():
            assert at[sequence] == (batch_id, count), f"{log.name}: {batch_id}"
            assert len(places[batch_id]) == count, f"{log.name}: {batch_id}"


async def allow(client: NatsClient) -> None:
    """As an operator does it."""
    answer = await client.request(f"$JS.{DOMAIN}.API.STREAM.INFO.orders", timeout=10)
    body = json.dumps(json.loads(answer.data)["config"] | {"allow_batched": True}).encode()
    answer = await client.request(f"$JS.{DOMAIN}.API.STREAM.UPDATE.orders", body, timeout=10)
    assert json.loads(answer.data)["config"]["allow_batched"] is True


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost_or_stored_twice(tmp_path: Path, rounds: int) -> None:
    await publish_through_kills(
        tmp_path, FastPublisher, rounds=rounds, allow=allow, check=check_kept
    )
