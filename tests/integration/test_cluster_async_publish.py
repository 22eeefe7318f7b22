"""nats-py's ``publish_async`` with a full window while leaders move."""

import asyncio
import json

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.integration.conftest import read_stream
from tests.local_node import until
from tools.nodes.dev import Dev

PENDING = 4000
"""nats-py's own limit, which it keeps to."""
MESSAGES = 20_000
MOVES = 4
ACK_S = 5.0
STREAM = "moving"


class Publisher:
    """Each message is sent until it is acknowledged, with an id, so that it is stored once."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self.sequences: dict[int, int] = {}
        self.pending_max = 0
        self.retries = 0

    async def publish_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(MESSAGES):
                group.create_task(self._publish(number))

    async def _publish(self, number: int) -> None:
        while number not in self.sequences:
            try:
                future = await self._js.publish_async(
                    STREAM, b"%d" % number, headers={"Nats-Msg-Id": str(number)}
                )
                self.pending_max = max(self.pending_max, self._js.publish_async_pending())
                self.sequences[number] = (await asyncio.wait_for(future, ACK_S)).seq
            except (TimeoutError, nats.errors.Error):
                self.retries += 1
                await asyncio.sleep(0.02)


async def move_leader(client: Client, publisher: Publisher) -> int:
    """Each time a share of the messages is acknowledged; how often it moved."""
    moved = 0
    for share in range(1, MOVES + 1):
        enough = share * MESSAGES // (MOVES + 1)
        await until(lambda enough=enough: len(publisher.sequences) >= enough, timeout_s=60)  # type: ignore[misc]
        reply = await client.request(
            f"$JS.streamlog.API.STREAM.LEADER.STEPDOWN.{STREAM}", b"", timeout=10
        )
        moved += "error" not in json.loads(reply.data)
    return moved


async def test_a_full_window_through_moves(trio: Dev) -> None:
    client = await nats.connect(trio.nats)
    try:
        body = json.dumps({"name": STREAM, "num_replicas": 3, "storage": "file"}).encode()
        subject = f"$JS.streamlog.API.STREAM.CREATE.{STREAM}"
        created = json.loads((await client.request(subject, body, timeout=10)).data)
        assert "error" not in created, created
        publisher = Publisher(client.jetstream(publish_async_max_pending=PENDING))
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            group.create_task(publisher.publish_all())
            moving = group.create_task(move_leader(client, publisher))
        assert moving.result() == MOVES
        assert publisher.pending_max == PENDING
    finally:
        await client.close()
    stored = await asyncio.to_thread(read_stream, trio.kafka, STREAM)
    assert {int(read.value): read.offset + 1 for read in stored} == publisher.sequences
    assert len(stored) == MESSAGES, "each once, and where its ack says"
