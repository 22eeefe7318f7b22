"""As many messages as NATS and the stream will take: prebuilt blocks out, acks counted in bytes."""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from string import ascii_letters, digits
from typing import Final, NamedTuple

from streamlog.errors import InvalidRequest, RequestTimedOut
from streamlog.nats_tools.ack_reader import AckReader
from streamlog.nats_tools.connect import Nats
from streamlog.nats_tools.publisher import Published, Publisher
from streamlog.nats_tools.raw_connection import TIMEOUT_S, RawConnection

BLOCK_MESSAGES: Final = 200
BLOCK_BYTES: Final = 256 * 1024
RING_BYTES: Final = 64 * 1024 * 1024
RING_BLOCKS: Final = 40
"""Prebuilt blocks used in turn, so that thousands of reply subjects differ."""
SECOND_ACK_S: Final = 0.1
"""At least so long it is waited for before the clock starts."""
LAST_TIMEOUT_S: Final = 60.0
"""What is not acknowledged one by one may be far behind."""

_LETTERS: Final = (4 * (ascii_letters + digits + "ab")).encode()
"""For each byte a letter or a digit."""


@dataclass(frozen=True)
class BurstLoad:
    """What to publish. ``in_flight``: so many messages may be unanswered, where acks are wanted."""

    subject: str
    size_bytes: int
    count: int
    in_flight: int
    acks: bool = True


class Burst(NamedTuple):
    """What came of it, the message before the clock left out."""

    stream: str
    base_offset: int
    """Of that message; the others follow it."""
    messages: int
    acks: int
    stored: int
    """By the stream's own numbers; what others publish there meanwhile is counted, too."""
    seconds: float
    """From the first write to the last ack."""


def payload(size_bytes: int) -> bytes:
    """Letters by chance, so that it does not compress to nothing; free of line ends."""
    return random.Random(size_bytes).randbytes(size_bytes).translate(_LETTERS)


async def first_ack(nats: Nats, load: BurstLoad) -> Published:
    """One message by itself: whatever is wrong is said of it, before any clock starts.

    Another stream's ack, which would spoil the figures, is waited for as long as the first took;
    one that comes later is noticed in the end.
    """
    async with Publisher(nats) as publisher:
        began = time.perf_counter()
        first = await publisher.publish(load.subject, payload(load.size_bytes))
        await asyncio.sleep(max(SECOND_ACK_S, time.perf_counter() - began))
        if publisher.second is not None:
            raise stored_twice(load.subject)
        return first


def stored_twice(subject: str) -> InvalidRequest:
    """There are more acks than messages."""
    return InvalidRequest(f"more than one stream stores {subject!r}: publish to another subject")


async def burst(
    nats: Nats,
    load: BurstLoad,
    *,
    connections: int = 1,
    begun: Callable[[str], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Burst:
    """Publish it over so many connections at once.

    ``begun`` hears which stream stores it, ``progress`` how many more are sent.
    """
    first = await first_ack(nats, load)
    begun(first.stream)
    async with contextlib.AsyncExitStack() as stack:
        senders = [_Sender(share, progress) for share in shares(load, connections)]
        for sender in senders:
            await stack.enter_async_context(await sender.connect(nats))
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for sender in senders:
                tasks.create_task(sender.run())
        seconds = time.perf_counter() - started
    acks = sum(sender.acks for sender in senders)
    stored = max(sender.last_sequence for sender in senders) - first.sequence
    return Burst(first.stream, first.sequence - 1, load.count, acks, stored, seconds)


def shares(load: BurstLoad, connections: int) -> Iterator[BurstLoad]:
    """The load in parts as even as can be, none of them empty."""
    parts = min(connections, load.count)
    for i in range(parts):
        count = load.count // parts + (i < load.count % parts)
        yield replace(load, count=count, in_flight=max(1, load.in_flight // parts))


def block_messages(load: BurstLoad) -> int:
    """How many go into one write."""
    fitting = max(1, BLOCK_BYTES // max(1, load.size_bytes))
    most = min(BLOCK_MESSAGES, fitting, load.count)
    return min(most, load.in_flight) if load.acks else most


class _Sender:
    """One connection and its share; everything is built before it runs."""

    def __init__(self, load: BurstLoad, progress: Callable[[int], None]) -> None:
        self._load = load
        self._progress = progress
        self._reader = AckReader(load.subject)
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._body = payload(load.size_bytes)
        self._each = block_messages(load)
        # The last block is one for itself: it may be short, and its last message wants an ack.
        self._blocks = (load.count - 1) // self._each
        ring = max(1, min(RING_BLOCKS, RING_BYTES // (self._each * (load.size_bytes + 1))))
        self._ring = [self._block(i, self._each) for i in range(min(ring, self._blocks))]
        self._last = self._block(ring, load.count - self._blocks * self._each, last_asks=True)
        self._sent = 0
        self._raw: RawConnection | None = None

    @property
    def acks(self) -> int:
        return self._reader.count

    @property
    def last_sequence(self) -> int:
        return self._reader.last_sequence or 0

    async def connect(self, nats: Nats) -> RawConnection:
        self._raw = await RawConnection.open(nats, self._received)
        return self._raw

    async def run(self) -> None:
        """Until the last message is acknowledged."""
        assert self._raw is not None, "connected"
        self._raw.write(f"SUB {self._inbox}.* 1\r\n".encode())
        await self._raw.run(self._publish(self._raw))

    def _received(self, chunk: bytes) -> None:
        self._reader.feed(chunk)

    async def _publish(self, raw: RawConnection) -> None:
        for i in range(self._blocks):
            await self._send(raw, self._ring[i % len(self._ring)], self._each)
        await self._send(raw, self._last, self._load.count - self._sent)
        wanted = self._load.count if self._load.acks else 1
        await self._wait_for_acks(raw, wanted, TIMEOUT_S if self._load.acks else LAST_TIMEOUT_S)
        await raw.round_trip()
        if self.acks > wanted:
            raise stored_twice(self._load.subject)

    async def _send(self, raw: RawConnection, block: bytes, count: int) -> None:
        if self._load.acks:
            await self._wait_for_acks(raw, self._sent + count - self._load.in_flight, TIMEOUT_S)
        raw.write(block)
        await raw.drain()
        self._sent += count
        self._progress(count)

    async def _wait_for_acks(self, raw: RawConnection, wanted: int, timeout_s: float) -> None:
        while self.acks < wanted:
            try:
                await raw.wait_arrived(timeout_s)
            except RequestTimedOut:
                raise RequestTimedOut(
                    f"{self.acks} of {self._sent} acks, and no more in {timeout_s:g} s"
                ) from None

    def _block(self, number: int, count: int, *, last_asks: bool = False) -> bytes:
        """So many PUB lines, with their payloads; without acks none asks, but the very last."""
        subject, size = self._load.subject.encode(), self._load.size_bytes

        def line(i: int) -> bytes:
            asks = self._load.acks or (last_asks and i == count - 1)
            reply = b"%s.%d-%d " % (self._inbox.encode(), number, i) if asks else b""
            return b"PUB %s %s%d\r\n%s\r\n" % (subject, reply, size, self._body)

        return b"".join(map(line, range(count)))
