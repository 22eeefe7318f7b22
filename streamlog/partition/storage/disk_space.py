"""Whether the node's disk has room: one answer for all partitions, for they share the disk."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.config import LogSection
from streamlog.errors import StorageFull
from streamlog.log.layout import TEMPORARY_SUFFIX
from streamlog.log.storage.disk import Disk, is_full, write_all
from streamlog.log.storage.removal import Removal
from streamlog.metadata.nodes.node_condition import DISK_FULL

logger = logging.getLogger(__name__)

SPACE_NOT_CHECKED: Final = Condition(
    "SL-0302",
    "room on the disk not looked for",
    CORRECT_THEN_RESTART,
    meaning="The node could not try whether a full disk has room again.",
)

RELAPSE_MS: Final = 60_000
"""A disk that is full again so soon has to wait longer each time ..."""
HOLD_MS_MAX: Final = 30_000
"""... but no longer than this."""
FREED_S: Final = 10.0
"""For so long files that are being removed are waited for, before it is tried what fits."""
_PIECE_BYTES: Final = 1024 * 1024


class DiskReserve(Protocol):
    """``log.storage.reserve.Reserve``."""

    @property
    def is_kept(self) -> bool: ...
    def keep(self) -> None: ...
    def give_up(self) -> bool: ...


class Spells:
    """How long a full disk counts as full at least, so that nodes which are nearly full do not hand
    leaderships back and forth. Pure.
    """

    def __init__(self, hold_ms_min: int) -> None:
        self.hold_ms = self._hold_ms_min = hold_ms_min
        self._until_ms = 0
        self._ended_ms: int | None = None

    def began(self, now_ms: int) -> None:
        """The disk is full."""
        is_relapse = self._ended_ms is not None and now_ms - self._ended_ms < RELAPSE_MS
        longer_ms = min(2 * self.hold_ms, HOLD_MS_MAX)
        self.hold_ms = max(longer_ms, self._hold_ms_min) if is_relapse else self._hold_ms_min
        self._until_ms = now_ms + self.hold_ms

    def may_end(self, now_ms: int) -> bool:
        """It is worth looking whether there is room."""
        return now_ms >= self._until_ms

    def ended(self, now_ms: int) -> None:
        """There is room."""
        self._ended_ms = now_ms


class DiskSpace:
    """Full from the first write that finds no room, until as much as ``metadata_reserve_bytes`` fits.

    Nothing is written to a log meanwhile: what little room there is is for the metadata. ``run`` as
    a task: it looks for room by itself, for there may be no publisher to try.
    """

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        settings: LogSection,
        *,
        reserve: DiskReserve | None,
        changed: Callable[[], None],
        removal: Removal | None = None,
    ) -> None:
        """``changed`` is called on the event loop, when ``is_full`` is another. ``removal``: by
        which files go whose room counts.
        """
        self.is_full = False
        self._path = str(data_dir / f"space{TEMPORARY_SUFFIX}")
        self._disk = disk
        self._size_bytes = settings.metadata_reserve_bytes
        self._interval_s = settings.disk_check_interval_ms / 1000
        self._reserve = reserve
        self._changed = changed
        self._removal = removal
        self._spells = Spells(settings.disk_check_interval_ms)

    def ran_out(self, error: StorageFull | OSError) -> None:
        """A write has found no room."""
        if self.is_full:
            return
        self.is_full = True
        self._spells.began(_clock_ms())
        logger.error(DISK_FULL, extra={"error": str(error), "hold_ms": self._spells.hold_ms})
        self._changed()

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval_s)

    async def look(self) -> None:
        """Whether there is room again; and whether the reserve is in its place."""
        if self.is_full:
            if not self._spells.may_end(_clock_ms()):
                return
        elif self._reserve is None or self._reserve.is_kept:
            return
        await self._freed()
        try:
            await asyncio.to_thread(self._try)
        except OSError as error:
            if is_full(error):
                self.ran_out(error)
                return
            logger.warning(SPACE_NOT_CHECKED, extra={"error": str(error)})
        if self.is_full:  # else a disk that fails says so where it is written
            self.is_full = False
            self._spells.ended(_clock_ms())
            logger.info("disk has room")
            self._changed()

    async def _freed(self) -> None:
        """Files that were removed by now have given back their room, or the disk is slow."""
        if self._removal is not None:
            await asyncio.wait([asyncio.wrap_future(self._removal.flushed())], timeout=FREED_S)

    def _try(self) -> None:
        """Raises OSError where there is no room."""
        try:
            file = self._disk.create(self._path)
            try:
                for start in range(0, self._size_bytes, _PIECE_BYTES):
                    length = min(_PIECE_BYTES, self._size_bytes - start)
                    write_all(file, os.urandom(length), start)
            finally:
                file.close()
        finally:
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path)
        if self._reserve is not None:
            self._reserve.keep()


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000
