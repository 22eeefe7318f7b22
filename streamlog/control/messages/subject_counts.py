"""The subjects of a stream's messages, counted: what STREAM.INFO tells of them.

Leaders tell them in parts, in no order, each small enough for one NATS message; who asks puts them
together, of all partitions, in order where they do not fit into one page.
"""

import asyncio
import heapq
import json
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from streamlog.errors import StreamlogError
from streamlog.partition.partition import Partition

SUBJECTS_MAX: Final = 100_000
"""In one page, as JetStream has it."""
PAGE_BYTES_MAX: Final = 700_000
"""... and not so many that NATS would not let the reply through."""
PART_BYTES_MAX: Final = 300_000
LOOKED_AT_ONCE: Final = 500
"""Subjects; some names are long. Then it is seen how large the part is."""
SORTED_AT_ONCE: Final = 5_000
"""Then others have their turn of the event loop."""


class Part(NamedTuple):
    """Some of a partition's subjects."""

    totals: dict[str, int]
    cursor: int | None
    """Where the next part begins; None: there is none."""


def count_subjects(partition: Partition) -> int | None:
    """How many there are, where that costs no more than a look; else None."""
    try:
        index = partition.subjects.at_hand()
    except StreamlogError:
        return None
    return None if index is None else index.subject_count(partition.stable_offset)


async def part_of(partition: Partition, pattern: str, cursor: int) -> Part:
    """From ``cursor`` on, 0 at first. Has the index made. Raises Overloaded, ..."""
    wanted, totals, size = pattern.encode(), dict[str, int](), 0
    index = await partition.subjects.know()
    while cursor < index.number_end:
        if size > PART_BYTES_MAX:
            return Part(totals, cursor)
        high, below = cursor + LOOKED_AT_ONCE, partition.stable_offset
        for name, count in index.totals(wanted, below, low=cursor, high=high):
            text = name.decode(errors="replace")
            totals[text] = totals.get(text, 0) + count
            size += len(json.dumps(text)) + 12
        cursor = high
        await asyncio.sleep(0)
    return Part(totals, None)


class SubjectPage(NamedTuple):
    """What a client is told at once."""

    total: int
    offset: int
    limit: int
    subjects: dict[str, int]

    def json(self) -> dict[str, int]:
        """Beside the subjects, as JetStream: nothing where there are none."""
        if not self.total:
            return {}
        return {"total": self.total, "offset": self.offset, "limit": self.limit}


async def page_of(totals: dict[str, int], offset: int) -> SubjectPage:
    """All of them, if they fit; else those from ``offset`` on, in order."""
    total = len(totals)
    if not offset and total <= SUBJECTS_MAX and _size(totals) <= PAGE_BYTES_MAX:
        return SubjectPage(total, 0, SUBJECTS_MAX, totals)
    offset = min(offset, total)
    chosen, size = dict[str, int](), 0
    async for name in _sorted_from(list(totals), offset):
        size += len(json.dumps(name)) + 12
        if len(chosen) == SUBJECTS_MAX or size > PAGE_BYTES_MAX:
            return SubjectPage(total, offset, len(chosen), chosen)
        chosen[name] = totals[name]
    return SubjectPage(total, offset, SUBJECTS_MAX, chosen)


def _size(totals: dict[str, int]) -> int:
    """In bytes of JSON, or more."""
    return sum(len(name) if name.isascii() else 6 * len(name) for name in totals) + 16 * len(totals)


async def _sorted_from(names: list[str], offset: int) -> AsyncIterator[str]:
    """Sorted a little at a time: a million names would hold up the event loop for a second."""
    runs: list[Iterator[str]] = []
    for start in range(0, len(names), SORTED_AT_ONCE):
        runs.append(iter(sorted(names[start : start + SORTED_AT_ONCE])))
        await asyncio.sleep(0)
    for place, name in enumerate(heapq.merge(*runs)):
        if place % SORTED_AT_ONCE == 0:
            await asyncio.sleep(0)
        if place >= offset:
            yield name
