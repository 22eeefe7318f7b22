"""Messages whose subject matches a pattern, looked for a little at a time.

A stream may have millions of subjects and of messages, and a client that may read it asks as often as
they like: each look compares some of the subjects, or passes over some of the offsets, and others
have their turn of the event loop in between.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.errors import Overloaded
from streamlog.partition.subjects.subject_index import Subjects
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex, is_pattern

LOOKS_AT_ONCE: Final = 20_000
"""Comparisons of a pattern with a subject, of about 0.1 µs each, in one turn of the event loop."""
LOOKED_AT_ONCE: Final = 2_000_000
"""Offsets that are passed over in one turn, at about a nanosecond each."""
TRIES_MAX: Final = 8
"""The index may be rebuilt while it is used."""


class Matching:
    """Of one partition, among the messages that are committed when it is made.

    Which subjects match is noted at the first look. That holds for these messages as long as the
    index stays: a subject that is new has messages beyond them alone.
    """

    def __init__(self, subjects: Subjects, pattern: str | Sequence[str], below: int) -> None:
        """``pattern``: several match what one of them does; ``below``: the high watermark."""
        self.below = below
        self._subjects = subjects
        names = (pattern,) if isinstance(pattern, str) else pattern
        self._patterns = [name.encode() for name in names]
        self._pattern = self._patterns[0]
        self._is_wild = len(self._patterns) > 1 or is_pattern(self._pattern)
        self._index: SubjectIndex | None = None
        self._marks = bytearray()
        self._low, self._high = 0, 0

    def is_of(self, subjects: Subjects) -> bool:
        """Whether its messages are those of this partition."""
        return self._subjects is subjects

    async def next(self, offset: int) -> int:
        """The first one at or after ``offset``; NOTHING."""
        if not self._is_wild:
            return await self._next_of_one(offset)
        found, _ = await self.offsets(offset, self.below, limit=1)
        return found[0] if found else NOTHING

    async def _next_of_one(self, offset: int) -> int:
        """Of a subject without wildcards, which is found at once."""
        while True:
            index = await self._subjects.know()
            low, high = index.bounds(self._pattern)
            low, high = max(low, offset), min(high, self.below)
            upper = min(low + LOOKED_AT_ONCE, high)
            found = index.next(self._pattern, low, upper) if low < high else NOTHING
            if found != NOTHING or upper >= high:
                return found
            offset = upper
            await asyncio.sleep(0)

    async def last(self, below: int) -> int:
        """The last one below that; NOTHING."""
        high = min(below, self.below)
        while True:
            if self._is_wild:
                index = await self._known()
                first, end = self._low, self._high
            else:
                index = await self._subjects.know()
                first, end = index.bounds(self._pattern)
            high = min(high, end)
            low = max(high - LOOKED_AT_ONCE, first)
            found = self._last_between(index, low, high) if low < high else NOTHING
            if found != NOTHING or low <= first:
                return found
            high = low
            await asyncio.sleep(0)

    def _last_between(self, index: SubjectIndex, low: int, high: int) -> int:
        if self._is_wild:
            return index.last_marked(self._marks, low, high)
        return index.last(self._pattern, high, low=low)

    async def offsets(self, low: int, high: int, *, limit: int) -> tuple[list[int], int]:
        """The first ``limit`` of those in between, in order, and where to look for more of them:
        ``high`` where there are none.
        """
        while low < high:
            index = await self._known()
            start, end = max(low, self._low), min(high, self.below, self._high)
            if start >= end:
                break
            upper = min(start + LOOKED_AT_ONCE, end)
            found = index.offsets(self._marks, start, upper, limit=limit)
            low = found[-1] + 1 if len(found) == limit else upper
            await asyncio.sleep(0)
            if found:
                return found, low
        return [], high

    async def count(self, offset: int) -> int:
        """How many there are from ``offset`` on."""
        count, low = 0, offset
        while True:
            index = await self._known()
            low, high = max(low, self._low), min(self.below, self._high)
            if low >= high:
                return count
            upper = min(low + LOOKED_AT_ONCE, high)
            count += index.message_total(self._marks, low, upper)
            low = upper
            await asyncio.sleep(0)

    async def _known(self) -> SubjectIndex:
        """The index, with the subjects that match noted. Raises Overloaded where it is rebuilt
        all the time.
        """
        for _ in range(TRIES_MAX):
            index = await self._subjects.know()
            if index is self._index or await self._note(index):
                return index
        raise Overloaded("the index of subjects is rebuilt again and again")

    async def _note(self, index: SubjectIndex) -> bool:
        """False where another index has taken its place meanwhile."""
        self._marks = bytearray()
        if not self._is_wild:
            self._low, self._high = index.mark(self._pattern, self._marks)
            self._index = index
            return True
        first, end = self.below, 0
        for pattern in self._patterns:
            low = 0
            while low < index.number_end:
                upper = low + LOOKS_AT_ONCE
                bounds = index.mark(pattern, self._marks, low=low, high=upper)
                if bounds[1]:
                    first, end = min(first, bounds[0]), max(end, bounds[1])
                low = upper if is_pattern(pattern) else index.number_end
                await asyncio.sleep(0)
                if await self._subjects.know() is not index:
                    return False
        self._low, self._high, self._index = first, end, index
        return True
