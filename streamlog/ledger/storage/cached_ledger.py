"""The blocks of a channel as the tasks of a process share them: one appends, many read and wait."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from streamlog.condition import REPAIR_DISK, Condition
from streamlog.errors import BlockNotReady, CorruptBatch, StreamlogError, Unavailable
from streamlog.ledger.storage.store import READ_BYTES, BlockStore, StoredBlock, blocks_in
from streamlog.log.segment.segment import Segment

logger = logging.getLogger(__name__)

LEDGER_FILE_NOT_CHECKED: Final = Condition(
    "SL-0710",
    "ledger file cannot be checked",
    REPAIR_DISK,
    meaning="A file of blocks could not be read for a check.",
)

RECENT_BYTES: Final = 8 * 1024 * 1024
"""Of the newest blocks, kept in memory for those who wait for each; older ones are read."""


class CachedLedger:
    """One owner appends and repairs. Readers see a block when it is on the disk, not before."""

    def __init__(self, store: BlockStore) -> None:
        self.store = store
        self.height = store.height
        """The count of blocks that may be told of."""
        self.damage_found = asyncio.Event()
        """A block could not be read: the owner is to ``repair``."""
        self._recent: deque[StoredBlock] = deque()
        self._recent_bytes = 0
        self._grown = asyncio.Event()
        self._repairing = asyncio.Event()  # set when it is done, and replaced
        self._suspect = 0  # the block that could not be read

    async def append(self, number: int, blocks: Sequence[bytes]) -> None:
        """The blocks from ``number`` on, which is the next; durable, and told of, when it returns.

        Raises Unavailable. ``settle`` before the next one if it did, or was cancelled.
        """
        self.store.append(number, blocks)
        await self._sync()
        for data in blocks:
            self._remember(StoredBlock(number, data))
            number += 1
        self._tell_height()
        if self.store.wants_checkpoint:
            await asyncio.to_thread(self.store.write_checkpoint)

    async def settle(self) -> None:
        """What was appended and not told of is durable, and is told of. Raises Unavailable."""
        await self._sync()
        self._tell_height()

    async def _sync(self) -> None:
        """One that has begun is waited for, come what may: there is one at a time."""
        ticket = self.store.begin_sync()
        if ticket is None:
            return
        run = asyncio.get_running_loop().run_in_executor(None, ticket.run)
        try:
            await asyncio.shield(run)
        except asyncio.CancelledError:
            await asyncio.wait([run])
            if run.exception() is None:
                self.store.finish_sync(ticket)
            raise
        self.store.finish_sync(ticket)

    def _remember(self, block: StoredBlock) -> None:
        self._recent.append(block)
        self._recent_bytes += len(block.data)
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= len(self._recent.popleft().data)

    def _tell_height(self) -> None:
        self._take_height()
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def wait_for(self, number: int) -> None:
        """Until there is a block of that number."""
        while number >= self.height:
            await self._grown.wait()

    async def read(self, number: int, *, max_bytes: int = READ_BYTES) -> list[StoredBlock]:
        """Blocks from ``number`` on, one at least, about ``max_bytes`` of them.

        Raises BlockNotReady where there is none yet, or where it was damaged and is being cut again;
        Unavailable where the disk fails.
        """
        if not 0 <= number < self.height:
            raise BlockNotReady(f"there is no block {number} yet; the height is {self.height}")
        if self._recent and number >= self._recent[0].number:
            return self._recalled(number, max_bytes)
        while True:
            try:
                with self.store.slice(number, max_bytes, verify=_unverified) as part:
                    return list(blocks_in(await asyncio.to_thread(part.read)))
            except _Unverified as error:
                await asyncio.to_thread(error.segment.verify)
            except CorruptBatch as error:
                self._suspect = number
                self.damage_found.set()
                problem = f"block {number} was found damaged, and is being cut again"
                raise BlockNotReady(problem) from error

    def _recalled(self, number: int, max_bytes: int) -> list[StoredBlock]:
        found: list[StoredBlock] = []
        size_bytes = 0
        for block in islice(self._recent, number - self._recent[0].number, None):
            size_bytes += len(block.data)
            if found and size_bytes > max_bytes:
                break
            found.append(block)
        return found

    async def check(self) -> None:
        """Read once what was not read at the start, piece by piece, in a thread."""
        for segment in self.store.unchecked():
            try:
                await asyncio.to_thread(segment.verify)
            except StreamlogError as error:
                extra = {"file": segment.path, "problem": str(error)}
                logger.warning(LEDGER_FILE_NOT_CHECKED, extra=extra)
        if self.store.damaged_from is not None:
            self.damage_found.set()

    def repair(self) -> int:
        """Cut back to the last good block; the height then. Blocking, some 100 ms. Raises
        Unavailable.
        """
        if self.store.damaged_from is None:
            self.store.recheck(self._suspect)
        self.store.cut_damage()
        self._forget_from(self.store.height)
        self._mended()
        return self.height

    def _mended(self) -> None:
        self.damage_found.clear()
        repaired, self._repairing = self._repairing, asyncio.Event()
        repaired.set()

    async def wait_for_mended(self) -> None:
        """Until what was found damaged is cut off."""
        if self.damage_found.is_set():
            await self._repairing.wait()

    def truncate(self, height: int) -> None:
        """Forget the blocks from this number on. Raises Unavailable."""
        self.store.truncate(height)
        self._forget_from(height)

    def _forget_from(self, height: int) -> None:
        while self._recent and self._recent[-1].number >= height:
            self._recent_bytes -= len(self._recent.pop().data)
        self._take_height()

    def _take_height(self) -> None:
        """The newest blocks are in memory without a gap, or none are: what was appended by others
        who was stopped before it was remembered is read from the disk.
        """
        self.height = self.store.height
        if self._recent and self._recent[-1].number + 1 != self.height:
            self._recent.clear()
            self._recent_bytes = 0

    def replace(self, open_store: Callable[[], BlockStore]) -> None:
        """Open the files again, after a failure of the disk. Blocking. Raises Unavailable."""
        self.store.close()
        self.store = open_store()
        self._forget_from(self.store.height)

    def close(self) -> None:
        self.store.close()


class _Unverified(Unavailable):
    """To be checked first, which blocks."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path} is not checked yet")
        self.segment = segment


def _unverified(segment: Segment) -> None:
    raise _Unverified(segment)
