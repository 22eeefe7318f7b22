"""Reads of files that do not wait for the disk, and what to do where a read would: another thread."""

import asyncio
import os
from concurrent.futures import Executor
from typing import Final

from streamlog.log.segment.file_slice import FileSlice

_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux


def is_cold(file: int, position: int, length: int) -> bool:
    """Would reading this range wait for the disk? One byte speaks for all.

    It is one far from both ends: where a slice begins the one before it has just been read, and
    where it ends the end of a batch was looked for. It is past the middle, since what is
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


def read_warm(part: FileSlice) -> bytes | bytearray | None:
    """Its bytes, if they can be had without waiting for the disk."""
    if part.held is not None:
        return part.held
    data = bytearray(len(part))
    try:
        got = os.preadv(part.fileno(), [data], part.position, _NO_WAIT or 0)
    except OSError:  # the disk has to be waited for, or there is no such question
        return None
    return data if got == len(data) else None


def read_now(file: int, position: int, length: int) -> bytearray | None:
    """As much as can be had without waiting for the disk; None: nothing, or that cannot be known."""
    if _NO_WAIT is None:
        return None
    data = bytearray(length)
    try:
        got = os.preadv(file, [data], position, _NO_WAIT)
    except OSError:
        return None
    del data[got:]
    return data or None


async def read_ahead(file: int, position: int, length: int, readers: Executor) -> bytes:
    """By one of ``readers``, threads; from then on the bytes are in the page cache."""
    reading = asyncio.get_running_loop().run_in_executor(readers, os.pread, file, length, position)
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await reading  # the thread still has the file; it must not be closed under it
        raise
