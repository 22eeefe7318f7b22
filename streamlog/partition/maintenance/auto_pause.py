"""Auto-pause: what was not written to for a while lets go of its files and indexes.

Each replica rests by itself, and no node is told: the leader goes on listening, and the first append
ends it. So there is nothing to be resumed, kept, or agreed on; after a restart, or with another
leader, the time of the last record tells how long it has been idle.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from streamlog.clock import wall_ms
from streamlog.condition import NO_ACTION, Condition
from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.partition.partition import Partition
from streamlog.partition.stream_limits import auto_pause_ms

logger = logging.getLogger(__name__)

NOT_AUTO_PAUSED: Final = Condition(
    "SL-0227",
    "not auto-paused",
    NO_ACTION,
    meaning="A stream without traffic keeps its files open. The node tries again.",
)

NEVER: Final = 0
TURN_S: Final = 0.002
"""After so long others have their turn of the event loop."""


class _Seen(NamedTuple):
    end_offset: int
    since_ms: int
    """Nothing was appended, or read while it rested, since then."""
    has_rested: bool
    """... and it has let go of all since then."""


class AutoPause:
    """``run`` as a task."""

    def __init__(
        self,
        settings: LogSection,
        partitions: Callable[[], Iterable[Partition]],
        *,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._now_ms = now_ms
        self._seen: dict[Partition, _Seen] = {}
        """Those that may rest, as they were at the last look."""

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """At all of them."""
        before, self._seen = self._seen, {}
        turn = time.monotonic()
        for partition in tuple(self._partitions()):
            pause_ms = auto_pause_ms(partition.config, self._settings)
            if pause_ms != NEVER and not partition.closed:
                self._seen[partition] = self._look_at(partition, before.get(partition), pause_ms)
            if time.monotonic() - turn > TURN_S:
                await asyncio.sleep(0)
                turn = time.monotonic()

    def _look_at(self, partition: Partition, before: _Seen | None, pause_ms: int) -> _Seen:
        end_offset, now_ms = partition.log_end_offset, self._now_ms()
        reader = partition.reader
        was_read, reader.was_read = reader.was_read, False
        if before is None:
            before = _Seen(end_offset, min(now_ms, _last_time(partition, now_ms)), False)
        elif before.end_offset != end_offset or (before.has_rested and was_read):
            return _Seen(end_offset, now_ms, False)
        if before.has_rested or now_ms - before.since_ms < pause_ms:
            return before
        return before._replace(has_rested=self._rest(partition))

    def _rest(self, partition: Partition) -> bool:
        """False: not now. What has yet to be synced is, for the next time."""
        state = partition.state
        if state.failure is not None or state.cutting or not state.has_room:
            return False
        try:
            rests = state.log.rest()
        except StreamlogError as error:
            logger.warning(NOT_AUTO_PAUSED, extra=partition.place(error))
            return False
        if not rests:
            partition.sync_soon()
        return rests


def _last_time(partition: Partition, now_ms: int) -> int:
    """Of the last record; now, where that cannot be told."""
    try:
        last_ms = partition.state.log.last_timestamp_ms()
    except StreamlogError:
        last_ms = None
    return now_ms if last_ms is None else last_ms
