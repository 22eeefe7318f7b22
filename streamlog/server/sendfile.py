"""A slice of a segment file into a socket, without a copy in this process.

Bytes that are not in the page cache would hold the event loop for a disk read; they are read ahead
in a worker thread first. What a filesystem does not tell about its cache counts as being there.
"""

import asyncio
import os
from concurrent.futures import Executor
from typing import Final

from streamlog.server.channel import Channel
from streamlog.server.context import Slice

CHUNK_BYTES: Final = 1024 * 1024
"""The most that one turn of the event loop gives to one connection: what most clients ask for at
once, and a fraction of a millisecond.
"""

_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux


class SliceTruncated(Exception):
    """The file is shorter than its slice, and the frame has promised more."""


async def send_slice(channel: Channel, part: Slice, readers: Executor) -> None:
    """All of the slice, a chunk per turn; ``readers`` are the threads that wait for the disk."""
    out, file = channel.sock.fileno(), part.fileno()
    position, end = part.position, part.position + len(part)
    warm = position  # bytes before it are known to be in the page cache
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
        if position < end:
            await asyncio.sleep(0)


def is_cold(file: int, position: int, length: int) -> bool:
    """Would reading this range wait for the disk? Its ends speak for the middle."""
    if _NO_WAIT is None:
        return False
    probe = bytearray(1)
    try:
        for at in (position, position + length - 1):
            os.preadv(file, [probe], at, _NO_WAIT)
    except BlockingIOError:
        return True
    except OSError:  # no such question on this filesystem
        return False
    return False


async def _read_ahead(file: int, position: int, length: int, readers: Executor) -> None:
    reading = asyncio.get_running_loop().run_in_executor(readers, os.pread, file, length, position)
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        await reading  # the thread still has the file; it must not be closed under it
        raise
