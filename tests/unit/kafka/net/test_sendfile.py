import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from streamlog.kafka.net.channel import CHUNK_BYTES, SliceTruncated, SocketChannel
from streamlog.partition.page_cache import is_cold, read_warm
from tests.fake_partition import FileRange

CONTENT = os.urandom(3 * CHUNK_BYTES + 17)


class Pipe(NamedTuple):
    channel: SocketChannel
    peer: socket.socket


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    channel = SocketChannel(ours, asyncio.get_running_loop(), idle_timeout_ms=10_000)
    yield Pipe(channel, theirs)
    channel.close()
    theirs.close()


async def received(pipe: Pipe, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    out = bytearray()
    while len(out) < size:
        out += await loop.sock_recv(pipe.peer, 100_000)
    return bytes(out)


class Readers(ThreadPoolExecutor):
    """Counts the chunks read ahead."""

    chunks = 0

    def submit(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.chunks += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(
    ("position", "length"), [(0, len(CONTENT)), (5, 100), (CHUNK_BYTES - 1, CHUNK_BYTES + 2)]
)
async def test_any_range_arrives(pipe: Pipe, tmp_path: Path, position: int, length: int) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with path.open("rb") as file, Readers(1) as readers:
        async with asyncio.TaskGroup() as tasks:
            part = FileRange(file, position, length)
            tasks.create_task(pipe.channel.send_slice(part, readers))
            assert await received(pipe, length) == CONTENT[position : position + length]
        assert readers.chunks == 0, "what was just written is in the page cache"


async def test_what_is_not_in_the_page_cache_is_read_in_another_thread(
    pipe: Pipe, tmp_path: Path
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with path.open("rb") as file, Readers(1) as readers:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        # Whoever asks has it read ahead there, so it is asked of what is sent last.
        if not is_cold(file.fileno(), 2 * CHUNK_BYTES, CHUNK_BYTES):
            pytest.skip("this filesystem keeps or does not tell what it caches")
        async with asyncio.TaskGroup() as tasks:
            part = FileRange(file, 0, len(CONTENT))
            tasks.create_task(pipe.channel.send_slice(part, readers))
            assert await received(pipe, len(CONTENT)) == CONTENT
        assert readers.chunks >= 1
        assert not is_cold(file.fileno(), 0, len(CONTENT))


async def test_a_read_ahead_is_waited_for_when_the_sender_is_cancelled(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its thread would read from a file descriptor that somebody else has got by then."""
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    release, entered = threading.Event(), threading.Event()

    def slow(*_: int) -> bytes:
        entered.set()
        release.wait(10)
        return b""

    monkeypatch.setattr("streamlog.kafka.net.channel.is_cold", lambda *_: True)
    monkeypatch.setattr("streamlog.partition.page_cache.os.pread", slow)
    with path.open("rb") as file, ThreadPoolExecutor(1) as readers:
        part = FileRange(file, 0, len(CONTENT))
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(pipe.channel.send_slice(part, readers))
            await asyncio.to_thread(entered.wait, 10)
            sending.cancel()
            await asyncio.sleep(0.01)
            assert not sending.done()
            release.set()


async def test_a_file_that_ends_too_early(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"abc")
    with path.open("rb") as file, Readers(1) as readers:
        with pytest.raises(SliceTruncated, match="file ends at 3, slice at 9"):
            await pipe.channel.send_slice(FileRange(file, 0, 9), readers)
        assert await received(pipe, 3) == b"abc"


async def test_a_full_socket_is_waited_for_and_not_tried_again(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    sendfile, sent = os.sendfile, list[int]()

    def counted(*arguments: int) -> int:
        sent.append(0)
        sent[-1] = sendfile(*arguments)
        return sent[-1]

    monkeypatch.setattr("streamlog.kafka.net.channel.os.sendfile", counted)
    with path.open("rb") as file, Readers(1) as readers:
        async with asyncio.TaskGroup() as tasks:
            part = FileRange(file, 0, len(CONTENT))
            tasks.create_task(pipe.channel.send_slice(part, readers))
            assert await received(pipe, len(CONTENT)) == CONTENT
    assert len(sent) > 3, "the socket took it in pieces"
    assert all(sent)


def test_what_is_in_the_page_cache_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with path.open("rb") as file:
        assert read_warm(FileRange(file, 7, 1_000)) == CONTENT[7:1_007]
        assert read_warm(FileRange(file, len(CONTENT) - 9, 10)) is None, "it is too short"
        os.fsync(file.fileno())
        answers: list[bytes | bytearray | None] = []
        were_cold = False
        for _ in range(20):  # the question itself may have the kernel read ahead
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            answers.append(read_warm(FileRange(file, 0, 4_000)))
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            were_cold |= is_cold(file.fileno(), 0, 4_000)
        assert all(answer in (None, CONTENT[:4_000]) for answer in answers)
        assert not were_cold or None in answers


async def test_others_get_their_turn_between_chunks(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for side in (pipe.channel.sock, pipe.peer):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**24)
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
    with path.open("rb") as file, Readers(1) as readers:
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(count())
            reading = tasks.create_task(received(pipe, len(CONTENT)))
            await pipe.channel.send_slice(FileRange(file, 0, len(CONTENT)), readers)
            await reading
            other.cancel()
    assert turns >= 3
