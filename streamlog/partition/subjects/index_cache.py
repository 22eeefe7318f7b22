"""All indexes of subjects of a node: the memory that they share, and how long each stays."""

import asyncio
import logging
import time
from typing import Final, Protocol

from streamlog.condition import FAULT, Condition
from streamlog.errors import Overloaded, StreamlogError
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

SUBJECTS_NOT_KNOWN: Final = Condition(
    "SL-0231",
    "subjects are not known",
    "raise log.subject_index_bytes, or correct what the error names",
    meaning="The index of subjects of a partition could not be built. Lookups by subject fail "
    "there, and publishers that expect a sequence of a subject are refused.",
)

INDEX_BYTES_MAX: Final = 512 * 1024 * 1024
PAUSE_S: Final = 0.2
"""Between two looks at those that are to stay up to date."""
IDLE_S: Final = 600.0
"""One that was not asked for so long is dropped."""
BUSY_S: Final = 60.0
"""One that was asked so short a time ago is not dropped for the sake of another."""
REST_S: Final = 10.0
"""One that could not be made is not tried again in the background before."""


class CachedIndex(Protocol):
    """What is needed of ``subjects.Subjects``."""

    tp: TopicPartition
    used_s: float
    """When it was asked last, by the monotonic clock."""
    is_followed: bool
    """It is to stay, and to be as new as the log."""

    @property
    def size_bytes(self) -> int: ...
    async def know(self) -> object: ...
    def forget(self) -> None: ...


class SubjectIndexCache:
    """``run`` as a task. While there is no index it does nothing at all."""

    def __init__(self, bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._sizes: dict[CachedIndex, int] = {}
        self._total = 0
        self._wanted: dict[CachedIndex, None] = {}
        self._rests: dict[CachedIndex, float] = {}
        """Until when, by the monotonic clock."""
        self._any = asyncio.Event()

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return self._total

    @property
    def count(self) -> int:
        """Partitions that have one."""
        return len(self._sizes)

    def room_for(self, kept: CachedIndex) -> int:
        """What that one may take. Where others have taken all, those that are not used any more go.

        Raises Overloaded if there is nothing to be had.
        """
        left = self._left(kept)
        if left <= 0:
            self._drop_idle(kept)
            left = self._left(kept)
        if left <= 0:
            raise Overloaded(
                f"indexes of subjects take all of log.subject_index_bytes ({self._bytes_max})"
            )
        return left

    def holds(self, kept: CachedIndex, size_bytes: int) -> None:
        """It has an index of that size; 0: none any more."""
        self._total += size_bytes - self._sizes.pop(kept, 0)
        if size_bytes:
            self._sizes[kept] = size_bytes
            self._any.set()

    def want(self, kept: CachedIndex) -> None:
        """Have it made or brought up to date soon."""
        self._wanted[kept] = None
        self._any.set()

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await self._any.wait()
            await self.look()
            if not self._sizes and not self._wanted:
                self._any.clear()
            await asyncio.sleep(PAUSE_S)

    async def look(self) -> None:
        """What is wanted or followed is brought up to date; what is idle goes."""
        wanted, self._wanted = self._wanted, {}
        now = time.monotonic()
        self._rests = {kept: until_s for kept, until_s in self._rests.items() if until_s > now}
        for kept in self._rests:
            wanted.pop(kept, None)
        for kept in [*wanted, *(it for it in self._sizes if it not in wanted)]:
            if kept in wanted or kept.is_followed:
                await self._bring_up_to_date(kept)
            elif now - kept.used_s > IDLE_S:
                kept.forget()

    async def _bring_up_to_date(self, kept: CachedIndex) -> None:
        """What fails is tried again when it is asked for."""
        tp = kept.tp
        extra = {"stream": tp.stream, "partition": tp.partition}
        try:
            await kept.know()
            return
        except StreamlogError as error:
            logger.warning(SUBJECTS_NOT_KNOWN, extra={**extra, "error": str(error)})
        except Exception:
            logger.exception(FAULT.logged_as("subjects could not be read"), extra=extra)
        self._rests[kept] = time.monotonic() + REST_S

    def _left(self, kept: CachedIndex) -> int:
        return self._bytes_max - self._total + self._sizes.get(kept, 0)

    def _drop_idle(self, kept: CachedIndex) -> None:
        """All that are not in use, the longest unused first, until a part is free."""
        since_s = time.monotonic() - BUSY_S
        others = [it for it in self._sizes if it.used_s < since_s and not it.is_followed]
        for other in sorted(others, key=lambda it: it.used_s):
            if self._left(kept) > self._bytes_max // 4:
                return
            if other is not kept:
                other.forget()
