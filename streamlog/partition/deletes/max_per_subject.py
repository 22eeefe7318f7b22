"""Messages of a subject beyond the newest N that its stream keeps: found, and foreseen to go.

The rule looks at what is committed and at nothing else, so every leader comes to the same.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.state import PartitionState
from streamlog.partition.subjects.subject_index import Subjects
from streamlog.record.compiled.subjects import SubjectIndex
from streamlog.record.offset_set import OffsetSet

WAITED_FOR_BYTES: Final = 32 * 1024 * 1024
"""A log of so much is read while a caller waits; the index of a larger one is made meanwhile."""
FOUND_AT_ONCE: Final = 20_000
"""Messages, before others have their turn of the event loop."""


class MaxPerSubject:
    """Of one partition. On the event loop.

    What is found is taken out of the index as well, so that counts by subject are right at once.
    """

    __slots__ = ("_config", "_erasing", "_looked_at", "_state", "_subjects")

    def __init__(
        self,
        state: PartitionState,
        subjects: Subjects,
        erasing: MessageDeletes,
        config: Callable[[], StreamConfig],
    ) -> None:
        self._state = state
        self._subjects = subjects
        self._erasing = erasing
        self._config = config
        self._looked_at: tuple[SubjectIndex, int, int] | None = None
        """There is none in that index, by that limit, below that offset."""

    @property
    def kept(self) -> int | None:
        """How many messages of each subject stay; None: all of them. An erasure takes an offset, and those of a
        mirror are its origin's.
        """
        config = self._config()
        limit = config.max_messages_per_subject
        return None if limit == NO_LIMIT or config.sealed or config.mirror else limit

    async def settle(self) -> None:
        """Have all that is committed now looked at, unless a large log must be read for it first.

        Raises as ``Subjects.know``.
        """
        if self.kept is None or not self._state.is_leader:
            return
        if self._subjects.at_hand() is None and self._state.log.size_bytes <= WAITED_FOR_BYTES:
            await self._subjects.know()
        more = self.find()
        while more:
            await asyncio.sleep(0)
            more = self.find()

    def find(self) -> bool:
        """Some of them; whether there may be more. Raises as ``Subjects.at_hand``."""
        kept = self.kept
        if kept is None or not self._state.is_leader:
            return False
        index = self._subjects.at_hand()
        if index is None:
            self._subjects.want()
            return False
        end = self._state.stable_offset
        if self._looked_at == (index, kept, end):
            return False
        found = index.trim(kept, end, limit=FOUND_AT_ONCE)
        if found:
            self._erasing.foresee(OffsetSet.in_order(found))
        is_all = len(found) < FOUND_AT_ONCE
        self._looked_at = (index, kept, end) if is_all else None
        return not is_all
