"""Which confirmed acknowledgements a kill -9 takes along: ``python -m benchmarks.confirmed_lost``.

A client acknowledges some messages, has each confirmed, and the server is killed at once. Started again, it delivers
what it does not know to be acknowledged.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Final

import nats
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from benchmarks.consumers import RestartedJetStream, RestartedPort
from benchmarks.side import STREAM

ROUNDS: Final = 5
MESSAGES: Final = 50
CONFIRMED: Final = 20
ACK_WAIT_S: Final = 1
LISTEN_S: Final = 4
BACK_S: Final = 30.0
RETRY_S: Final = 0.1


async def lost(side: RestartedJetStream | RestartedPort) -> int:
    """How many are delivered again."""
    client = await nats.connect(f"nats://{side.nats}", allow_reconnect=False)
    jetstream = client.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=[f"{STREAM}.>"])
    for number in range(MESSAGES):
        await jetstream.publish(f"{STREAM}.a", b"%d" % number)
    config = ConsumerConfig(ack_wait=ACK_WAIT_S)
    consumer = await jetstream.pull_subscribe("", durable="d", stream=STREAM, config=config)
    for message in await consumer.fetch(CONFIRMED):
        await message.ack_sync()
    side.restart()
    with contextlib.suppress(nats.errors.Error, OSError):
        await client.close()
    return sum(number < CONFIRMED for number in await _delivered(side))


async def _delivered(side: RestartedJetStream | RestartedPort) -> set[int]:
    client, jetstream = await _back(side)
    consumer = await jetstream.pull_subscribe_bind("d", STREAM)
    found = set[int]()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LISTEN_S):
            while True:
                with contextlib.suppress(nats.errors.TimeoutError):
                    for message in await consumer.fetch(MESSAGES, timeout=1):
                        found.add(int(message.data))
                        await message.ack()
    await client.close()
    return found


async def _back(
    side: RestartedJetStream | RestartedPort,
) -> tuple[Client, JetStreamContext]:
    """Once it knows the consumer."""
    async with asyncio.timeout(BACK_S):
        while True:
            with contextlib.suppress(nats.errors.Error, OSError):
                client = await nats.connect(f"nats://{side.nats}", allow_reconnect=False)
                jetstream = client.jetstream()
                with contextlib.suppress(nats.errors.Error):
                    await jetstream.consumer_info(STREAM, "d")
                    return client, jetstream
                await client.close()
            await asyncio.sleep(RETRY_S)


def main() -> None:
    for kind in (RestartedJetStream, RestartedPort):
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as directory:
                side = kind(Path(directory) / "server")
                try:
                    print(
                        f"{side.name}: {asyncio.run(lost(side))} of {CONFIRMED} are delivered again"
                    )
                finally:
                    side.stop()


if __name__ == "__main__":
    main()
