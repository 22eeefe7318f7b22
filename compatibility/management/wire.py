"""A NATS connection that sends any bytes as a subject, and tells what comes back."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple, Self

SILENCE_S: Final = 1.5
"""So long nothing comes where nothing will."""
INBOX: Final = b"_INBOX.differential"
REFUSED: Final = b"-ERR"
"""In place of an inbox: by nats-server, which carried the message nowhere."""
PONG: Final = b"PONG"
"""Likewise: nats-server has taken all that was sent before."""


class Reply(NamedTuple):
    """One message that came back; ``status`` is what stands on the first line of its headers."""

    status: str
    headers: dict[str, list[str]]
    data: bytes


class Wire:
    """``async with Wire.to(url) as wire: replies = await wire.ask(subject, body)``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Self]:
        host, _, port = url.removeprefix("nats://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**26)
        await reader.readline()  # INFO
        options = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
        writer.write(b"CONNECT %b\r\n" % json.dumps(options).encode())
        writer.write(b"SUB %b.* 1\r\n" % INBOX)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def ask(
        self,
        subject: bytes,
        body: bytes,
        headers: Mapping[str, str] | bytes = b"",
        *,
        several: bool = False,
    ) -> list[Reply]:
        """``headers``: as bytes, a block that need not be one. ``several``: replies up to and with
        a status; otherwise the first. Nothing where none comes.
        """
        await self._forget()
        self._count += 1
        inbox = b"%b.%d" % (INBOX, self._count)
        block = headers if isinstance(headers, bytes) else _block(headers)
        self._write(subject, inbox, block, body)
        replies: list[Reply] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                while not replies or (several and not replies[-1].status):
                    came, reply = await self._next()
                    if came in (inbox, REFUSED):
                        replies.append(reply)
        return replies

    async def _forget(self) -> None:
        """What still comes for a former request, errors without a name above all."""
        self._writer.write(b"PING\r\n")
        while (await self._next())[0] != PONG:
            pass

    async def say(self, subject: bytes, reply: bytes, block: bytes = b"") -> None:
        """An empty message, sent when it returns."""
        self._write(subject, reply, block, b"")
        await self._writer.drain()

    def _write(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if block:
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            self._writer.write(b"HPUB %b %b %b\r\n" % (subject, reply, sizes))
        else:
            self._writer.write(b"PUB %b %b %d\r\n" % (subject, reply, len(body)))
        self._writer.write(block + body + b"\r\n")

    async def _next(self) -> tuple[bytes, Reply]:
        while True:
            line = await self._reader.readline()
            if not line:
                raise ConnectionError("the server closed the connection")
            words = line.split()
            match words[0]:
                case b"MSG":
                    data = await self._payload(int(words[-1]))
                    return words[1], Reply("", {}, data)
                case b"HMSG":
                    header_size = int(words[-2])
                    data = await self._payload(int(words[-1]))
                    return words[1], _parsed(data[:header_size], data[header_size:])
                case b"PING":
                    self._writer.write(b"PONG\r\n")
                case b"PONG":
                    return PONG, Reply("", {}, b"")
                case b"-ERR":
                    return REFUSED, Reply(line.decode(errors="replace").strip(), {}, b"")

    async def _payload(self, size: int) -> bytes:
        data = await self._reader.readexactly(size + 2)
        return data[:-2]


def _block(headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""


def _parsed(block: bytes, data: bytes) -> Reply:
    first, *lines = block.decode(errors="replace").split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in filter(None, lines):
        name, _, text = line.partition(":")
        headers.setdefault(name, []).append(text.strip())
    return Reply(first.removeprefix("NATS/1.0").strip(), headers, data)
