"""A NATS server of a few lines, which does what a real one does only by misfortune."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

INFO = b'INFO {"server_id":"fake","version":"2.11.0","headers":true,"max_payload":1000}\r\n'

Greeting = Callable[[asyncio.StreamWriter], Awaitable[bool]]
"""Before the server's own; False: there will be none."""


class FakeNats:
    """Greets as nats-server does; what else comes is kept, what else is said is up to the test."""

    def __init__(self) -> None:
        self.heard = b""
        """But for pings, which are answered unless it is mute."""
        self.mute = False
        """Pings are answered later."""
        self.taking = asyncio.Event()
        """Cleared: it takes nothing more."""
        self.taking.set()
        self.dropped: set[int] = set()
        """Connections that end right after the handshake, by their number."""
        self.pings = 0
        self.connections = 0
        self.writer: asyncio.StreamWriter | None = None
        self.greeting: Greeting | None = None

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.heard = b""
        try:
            if self.greeting is not None and not await self.greeting(writer):
                return
            writer.write(INFO)
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            if self.connections in self.dropped:
                return
            self.writer = writer
            owed = 0
            while line := await reader.readline():
                await self.taking.wait()
                if line == b"PING\r\n":
                    self.pings += 1
                    owed += 1
                    if not self.mute:
                        writer.write(b"PONG\r\n" * owed)
                        owed = 0
                elif not line.startswith(b"x"):
                    self.heard += line
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def say(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address."""
        listener = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        try:
            yield f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        finally:
            listener.close()
