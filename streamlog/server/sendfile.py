import asyncio
import os
from typing import Final

from streamlog.server.channel import Channel
from streamlog.server.context import Slice

CHUNK_BYTES: Final = 512 * 1024
"""The most that one turn of the event loop gives to one connection."""


class SliceTruncated(Exception):
    """The file is shorter than its slice, and the frame has promised more."""


async def send_slice(channel: Channel, part: Slice) -> None:
    """The slice's bytes from the page cache into the socket, never into Python."""
    out, file = channel.sock.fileno(), part.fileno()
    position, end = part.position, part.position + len(part)
    while position < end:
        try:
            sent = os.sendfile(out, file, position, min(CHUNK_BYTES, end - position))
        except BlockingIOError:
            await channel.writable()
            continue
        if sent == 0:
            raise SliceTruncated(f"file ends at {position}, slice at {end}")
        position += sent
        if position < end:
            await asyncio.sleep(0)
