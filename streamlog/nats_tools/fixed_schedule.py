"""Messages on a fixed schedule, whatever comes back: how late is each ack, from when it was due."""

import asyncio
import secrets
from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.errors import Overloaded, RequestTimedOut
from streamlog.nats_tools.ack_reader import AckReader
from streamlog.nats_tools.burst import BurstLoad, first_ack, payload, stored_twice
from streamlog.nats_tools.connect import Nats
from streamlog.nats_tools.raw_connection import TIMEOUT_S, RawConnection

LEAD_S: Final = 0.05
"""From now until the first is due."""
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGES_MAX: Final = 20_000_000
"""Of one run: each latency is kept."""


class Paced(NamedTuple):
    """What came of it."""

    stream: str
    base_offset: int
    messages: int
    latencies_s: "array[float]"
    """From when a message was due until its ack was read, in order of acks."""
    send_lag_s: float
    """The most that a message was sent too late: ours, and in the latencies."""


async def paced(
    nats: Nats,
    load: BurstLoad,
    rate: int,
    *,
    begun: Callable[[str], None] = lambda _: None,
) -> Paced:
    """``load.count`` messages, so many a second; ``begun`` hears which stream stores them."""
    first = await first_ack(nats, load)
    begun(first.stream)
    schedule = _Schedule(load, rate)
    async with await RawConnection.open(nats, schedule.received) as raw:
        await raw.run(schedule.run(raw))
    return Paced(
        first.stream, first.sequence - 1, load.count, schedule.latencies_s, schedule.send_lag_s
    )


class _Schedule:
    """When each message is due, and when its ack came."""

    def __init__(self, load: BurstLoad, rate: int) -> None:
        self.latencies_s = array("d")
        self.send_lag_s = 0.0
        self._load = load
        self._rate = rate
        self._reader = AckReader(load.subject)
        inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._inbox = inbox
        self._head = b"PUB %s %s." % (load.subject.encode(), inbox.encode())
        self._tail = b" %d\r\n%s\r\n" % (load.size_bytes, payload(load.size_bytes))
        self._clock = asyncio.get_running_loop().time
        self._start = 0.0

    async def run(self, raw: RawConnection) -> None:
        """Until the last is acknowledged."""
        raw.write(f"SUB {self._inbox}.* 1\r\n".encode())
        await raw.round_trip()
        self._start = self._clock() + LEAD_S
        await self._send_all(raw)
        while len(self.latencies_s) < self._load.count:
            try:
                await raw.wait_arrived(TIMEOUT_S)
            except RequestTimedOut:
                raise RequestTimedOut(
                    f"{len(self.latencies_s)} of {self._load.count} acks, and no more in"
                    f" {TIMEOUT_S:g} s"
                ) from None
        if self._reader.count > self._load.count:
            raise stored_twice(self._load.subject)

    def received(self, chunk: bytes) -> None:
        now = self._clock()
        self.latencies_s.extend(
            now - self._start - number / self._rate for number in self._reader.numbers(chunk)
        )

    async def _send_all(self, raw: RawConnection) -> None:
        sent = 0
        while sent < self._load.count:
            now = self._clock() - self._start
            due = min(self._load.count, int(now * self._rate) + 1) if now >= 0 else 0
            if due > sent:
                self.send_lag_s = max(self.send_lag_s, now - sent / self._rate)
                raw.write(
                    b"".join(b"%s%d%s" % (self._head, i, self._tail) for i in range(sent, due))
                )
                sent = due
            if raw.unsent_bytes > UNSENT_BYTES_MAX:
                raise Overloaded(f"NATS does not take {self._rate} messages a second")
            await asyncio.sleep(max(0.0, self._start + sent / self._rate - self._clock()))
