"""Where each block lies: entries of one size, so that a number leads to its block at once.

Entry N, eight bytes, is of block N: which of the chain's segments, counted from the first one, and
the position in its file. A block is found without it, too, only not in the same time however long
the chain is. So nothing here has to be durable, and nothing is believed: a reader looks whether the
block that begins there has that number, and whoever had to seek it writes the entry again.
"""

import logging
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.log.storage.disk import write_all
from streamlog.log.storage.file_pool import FilePool

logger = logging.getLogger(__name__)

ENTRY: Final = struct.Struct(">II")


class BlockPlace(NamedTuple):
    """Of a block."""

    segment: int
    """The chain's ``segment``th."""
    position: int
    """In its file, in bytes."""


class BlockPositions:
    """One file, which is made when the first entry is written. Where the disk fails it is done
    without until the chain is opened again: whoever needs the disk more will say so."""

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._path = path
        self._failed = False

    def find(self, number: int) -> BlockPlace | None:
        """Where the block may be; None: nobody knows."""
        if self._failed:
            return None
        try:
            pooled = self._pool.pin(self._path)
            try:
                entry = pooled.file.pread(ENTRY.size, number * ENTRY.size)
            finally:
                self._pool.unpin(pooled)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        return BlockPlace(*ENTRY.unpack(entry)) if len(entry) == ENTRY.size else None

    def write(self, number: int, places: Sequence[BlockPlace]) -> None:
        """Of the blocks from ``number`` on."""
        if self._failed or not places:
            return
        entries = b"".join(ENTRY.pack(*place) for place in places)
        try:
            self._write(entries, number * ENTRY.size)
        except OSError as error:
            self._fail(error)

    def _write(self, entries: bytes, position: int) -> None:
        try:
            pooled = self._pool.pin(self._path)
        except FileNotFoundError:
            self._pool.create(self._path)
            pooled = self._pool.pin(self._path)
        try:
            write_all(pooled.file, entries, position)
        finally:
            self._pool.unpin(pooled)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        extra = {"file": self._path, "error": str(error)}
        logger.warning("blocks are sought, for want of their positions", extra=extra)
