"""On both event loops, since each has a way of its own to change a protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from streamlog.nats_tools.raw_connection import SocketReader
from tests.local_node import until

BUFFER_BYTES = 4096
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(main, 10))

    return run


class Reader(SocketReader):
    """Of a ``Line``."""

    line: "Line"

    def buffer_updated(self, count: int) -> None:
        if self._error is not None:
            return
        try:
            if not self.line.feed(self._buffer[:count]):
                self._pause()
        except Exception as error:
            self._end(error)


class Line:
    """A connection whose first line is read with a stream, the rest by an intake."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer, self.peer = reader, writer, peer
        self.fed = b""
        self.reads = 0
        self.answer: bool | Exception = True
        """What a feed returns or raises."""
        self.intake = Reader(writer.transport, reader, buffer_bytes=BUFFER_BYTES)  # type: ignore[arg-type]
        self.intake.line = self

    def feed(self, data: memoryview) -> bool:
        self.fed += data
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def until_fed(self, size: int) -> None:
        await until(lambda: len(self.fed) >= size)


@asynccontextmanager
async def lined(first: bytes) -> AsyncIterator[Line]:
    peers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: peers.put_nowait(writer), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    peer = await peers.get()
    peer.write(first)
    line = Line(reader, writer, peer)
    try:
        yield line
    finally:
        line.intake.stop()
        for each in (writer, peer):
            each.close()
        server.close()


def test_what_the_handshake_read_too_far_comes_first(run: Run) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\nhalf a ") as line:
            assert await line.reader.readline() == b"INFO\r\n"
            line.intake.start()
            await line.until_fed(7)
            line.peer.write(b"frame")
            await line.until_fed(12)
            assert line.fed == b"half a frame"

    run(main())


def test_more_than_the_buffer_comes_in_order(run: Run) -> None:
    async def main() -> None:
        content = bytes(range(256)) * 1000
        async with lined(b"INFO\r\n") as line:
            await line.reader.readline()
            line.intake.start()
            line.peer.write(content)
            await line.until_fed(len(content))
            assert line.fed == content
            assert line.reads >= len(content) // BUFFER_BYTES

    run(main())


def test_nothing_is_fed_in_a_pause(run: Run) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\nx") as line:
            await line.reader.readline()
            line.answer = False
            line.intake.start()
            for number in range(1, 5):
                await line.intake.wait_paused()
                assert line.reads == number
                line.peer.write(b"y")
                await asyncio.sleep(0.01)
                assert line.reads == number
                line.intake.resume()
            await line.until_fed(5)

    run(main())


def test_what_a_feed_raises_ends_it(run: Run) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\n") as line:
            await line.reader.readline()
            line.answer = ValueError("garbage")
            line.intake.start()
            line.peer.write(b"x")
            with pytest.raises(ValueError, match="garbage"):
                await line.intake.wait_paused()
            line.intake.resume()
            line.peer.write(b"y")
            await asyncio.sleep(0.01)
            assert line.fed == b"x"

    run(main())


@pytest.mark.parametrize("abort", [False, True])
def test_the_end_of_the_connection_is_told(run: Run, abort: bool) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\n") as line:
            await line.reader.readline()
            line.intake.start()
            if abort:
                line.peer.transport.abort()
            else:
                line.peer.close()
            with pytest.raises(ConnectionError):
                await line.intake.wait_paused()
            line.intake.resume()

    run(main())


def test_an_end_before_the_start_is_told(run: Run) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\n") as line:
            await line.reader.readline()
            line.peer.close()
            assert await line.reader.read() == b""
            with pytest.raises(ConnectionError):
                line.intake.start()

    run(main())


def test_a_writer_that_waits_for_room_goes_on_when_there_is_some(run: Run) -> None:
    async def main() -> None:
        async with lined(b"INFO\r\n") as line:
            await line.reader.readline()
            line.intake.start()
            line.peer.transport.pause_reading()  # type: ignore[attr-defined]
            line.writer.write(bytes(32 * 1024 * 1024))
            draining = asyncio.ensure_future(line.writer.drain())
            await asyncio.sleep(0.05)
            assert not draining.done()
            line.peer.transport.abort()
            with pytest.raises(ConnectionError):
                await draining

    run(main())
