"""Flights in, over plain NATS: an ordinary nats-py client that asks for an ack of each."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final

import nats
from nats.aio.msg import Msg

from demo.flights import Flights

STREAM: Final = "flights"
ONE_BY_ONE: Final = 1_000
"""The first ones go with ``js.publish``, each after the ack of the last, to see what that takes."""
WINDOW: Final = 20_000
"""So many of the others may be on their way at once."""
ACK_TIMEOUT_S: Final = 30.0


class WrongAck(Exception):
    """An acknowledgement is missing, an error, or out of order."""


async def publish_flights(
    url: str, flights: Flights, advance: Callable[[int], None]
) -> tuple[float, float]:
    """Create the stream and publish all. Returns the median seconds of an ack, and the rate."""
    client = await nats.connect(url, pending_size=16 << 20)
    try:
        await client.jetstream().add_stream(name=STREAM, subjects=["flights.>"])
        median_s = await _one_by_one(client, flights, advance)
        started = time.monotonic()
        await Window(client, flights, advance).publish_from(ONE_BY_ONE)
        rate = (len(flights) - ONE_BY_ONE) / (time.monotonic() - started)
    finally:
        await client.close()
    return median_s, rate


async def _one_by_one(client: Any, flights: Flights, advance: Callable[[int], None]) -> float:
    js = client.jetstream()
    took = []
    for i in range(ONE_BY_ONE):
        started = time.monotonic()
        ack = await js.publish(flights.subjects[i], flights.payloads[i])
        took.append(time.monotonic() - started)
        if (ack.stream, ack.seq) != (STREAM, i + 1):
            raise WrongAck(f"flight {i} was acknowledged as {ack.stream} {ack.seq}")
        advance(1)
    return sorted(took)[len(took) // 2]


class Window:
    """Publishes with one reply subject for each message, so that each ack tells what it is for."""

    def __init__(self, client: Any, flights: Flights, advance: Callable[[int], None]) -> None:
        self._client = client
        self._flights = flights
        self._advance = advance
        self._inbox = client.new_inbox()
        self._acked = 0  # flights below it are acknowledged; acks come in order
        self._wrong = ""
        self._progress = asyncio.Event()

    async def publish_from(self, first: int) -> None:
        """All flights from ``first`` on; returns when the last one is acknowledged."""
        self._acked = first
        await self._client.subscribe(
            f"{self._inbox}.*", cb=self._on_ack, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        publish, inbox = self._client.publish, self._inbox
        pairs = zip(self._flights.subjects[first:], self._flights.payloads[first:], strict=True)
        for i, (subject, payload) in enumerate(pairs, first):
            await publish(subject, payload, reply=f"{inbox}.{i}")
            if i - self._acked >= WINDOW:
                await self._wait_for(i - WINDOW // 2)
        await self._wait_for(len(self._flights))

    async def _on_ack(self, message: Msg) -> None:
        number = int(message.subject[len(self._inbox) + 1 :])
        answer = json.loads(message.data)
        if number != self._acked or answer.get("seq") != number + 1 or "error" in answer:
            self._wrong = self._wrong or f"flight {number}, after {self._acked}: {message.data!r}"
        self._acked += 1
        if self._acked % 1_000 == 0 or self._acked == len(self._flights):
            self._progress.set()

    async def _wait_for(self, count: int) -> None:
        while self._acked < count and not self._wrong:
            before = self._acked
            self._progress.clear()
            try:
                async with asyncio.timeout(ACK_TIMEOUT_S):
                    await self._progress.wait()
            except TimeoutError:
                raise WrongAck(f"no ack of flight {self._acked} in {ACK_TIMEOUT_S:.0f} s") from None
            self._advance(self._acked - before)
        if self._wrong:
            raise WrongAck(self._wrong)
