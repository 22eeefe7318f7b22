"""A slice of a segment file into a socket, without a copy in this process where there is no TLS.

Bytes that are not in the page cache would hold the event loop for a disk read; they are read ahead
in a worker thread first. What a filesystem does not tell about its cache counts as being there.
"""

import asyncio
import os
from concurrent.futures import Executor
from typing import Final

from streamlog.kafka.interfaces import Slice
from streamlog.kafka.net.channel import SocketChannel

CHUNK_BYTES: Final = 1024 * 1024
"""The most that one turn of the event loop gives to one connection: what most clients ask for at
once, and a fraction of a millisecond.
"""
COPY_CHUNK_BYTES: Final = 256 * 1024
"""The same where this process encrypts what it sends: a tenth of a millisecond."""

_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux


class SliceTruncated(Exception):
    """The file is shorter than its slice, and the frame has promised more."""


async def send_slice(channel: SocketChannel, part: Slice, readers: Executor) -> None:
    """All of the slice, a chunk per turn; ``readers`` are the threads that wait for the disk."""
    if part.held is not None:
        await _send_held(channel, part.held)
        return
    if channel.copies:
        await _send_copied(channel, part, readers)
        return
    out, file = channel.sock.fileno(), part.fileno()
    position = warm = part.position  # bytes before ``warm`` are known to be in the page cache
    end = position + len(part)
    while position < end:
        length = min(CHUNK_BYTES, end - position)
        if position >= warm:
            if is_cold(file, position, length):
                await _read_ahead(file, position, length, readers)
            warm = position + length
        try:
            sent = os.sendfile(out, file, position, length)
        except BlockingIOError:
            await channel.writable()
            continue
        if sent == 0:
            raise SliceTruncated(f"file ends at {position}, slice at {end}")
        position += sent
        if sent < length:
            await channel.writable()  # to try again would only tell that it is full
        elif position < end:
            await asyncio.sleep(0)


async def _send_held(channel: SocketChannel, data: bytes) -> None:
    length = COPY_CHUNK_BYTES if channel.copies else CHUNK_BYTES
    for position in range(0, len(data), length):
        if position:
            await asyncio.sleep(0)
        await channel.send(data[position : position + length], more=True)


async def _send_copied(channel: SocketChannel, part: Slice, readers: Executor) -> None:
    """Likewise, but read and handed to the channel; the disk is waited for by ``readers``."""
    file, position = part.fileno(), part.position
    end = position + len(part)
    while position < end:
        length = min(COPY_CHUNK_BYTES, end - position)
        data: bytes | bytearray | None = _read_now(file, position, length)
        if data is None:
            data = await _read_ahead(file, position, length, readers)
        if not data:
            raise SliceTruncated(f"file ends at {position}, slice at {end}")
        position += len(data)
        await channel.send(data, more=True)
        if position < end:
            await asyncio.sleep(0)


def is_cold(file: int, position: int, length: int) -> bool:
    """Would reading this range wait for the disk? One byte speaks for all.

    It is one far from both ends: where a slice begins the one before it has just been read, and
    where it ends somebody has looked for the end of a batch. It is past the middle, since what is
    read ahead there grows from the start.
    """
    if _NO_WAIT is None:
        return False
    try:
        os.preadv(file, [bytearray(1)], position + length * 3 // 4, _NO_WAIT)
    except BlockingIOError:
        return True
    except OSError:  # no such question on this filesystem
        return False
    return False


def read_warm(part: Slice) -> bytes | bytearray | None:
    """Its bytes, if they can be had without waiting for the disk."""
    if part.held is not None:
        return part.held
    data = bytearray(len(part))
    try:
        got = os.preadv(part.fileno(), [data], part.position, _NO_WAIT or 0)
    except OSError:  # the disk has to be waited for, or there is no such question
        return None
    return data if got == len(data) else None


def _read_now(file: int, position: int, length: int) -> bytearray | None:
    """As much as can be had without waiting for the disk; None: nothing, or nobody can say."""
    if _NO_WAIT is None:
        return None
    data = bytearray(length)
    try:
        got = os.preadv(file, [data], position, _NO_WAIT)
    except OSError:
        return None
    del data[got:]
    return data or None


async def _read_ahead(file: int, position: int, length: int, readers: Executor) -> bytes:
    reading = asyncio.get_running_loop().run_in_executor(readers, os.pread, file, length, position)
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await reading  # the thread still has the file; it must not be closed under it
        raise
