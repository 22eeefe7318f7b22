"""What was read of a stream and is not ordered yet; who reads waits while it is full."""

import asyncio
from typing import Final

from streamlog.ledger.consumer import Run
from streamlog.record.codec import Record

INBOX_BYTES_MAX: Final = 8 * 1024 * 1024
TAKEN_BYTES: Final = 512 * 1024
"""What is taken at once, and so what becomes durable in one go; one run may be larger. Nothing else
runs while it is cut, some 20 ms."""


class Inbox:
    """One task puts, another takes."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._size_bytes = 0
        self._changed = asyncio.Event()

    @property
    def has_more(self) -> bool:
        """``take`` would not wait."""
        return bool(self._runs)

    async def put(self, run: Run) -> None:
        """Waits for room; a run that is larger than that all is let in by itself."""
        while self._runs and self._size_bytes + run.size_bytes > INBOX_BYTES_MAX:
            await self._wait()
        self._runs.append(run)
        self._size_bytes += run.size_bytes
        self._changed.set()

    async def take(self) -> list[Record]:
        """Waits for some."""
        while not self._runs:
            await self._wait()
        count = taken_bytes = 0
        while count < len(self._runs) and (not count or taken_bytes < TAKEN_BYTES):
            taken_bytes += self._runs[count].size_bytes
            count += 1
        taken, self._runs = self._runs[:count], self._runs[count:]
        self._size_bytes -= taken_bytes
        self._changed.set()
        return [record for run in taken for record in run.records]

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
