"""Messages of some subjects, from an offset on, against a list of all of them."""

import asyncio
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.control.messages import matching, ordered_read
from streamlog.control.messages.ordered_read import count_from, messages_from, read_run
from streamlog.record.compression import Compression
from streamlog.record.offset_set import OffsetSet
from tests.oracles.subjects import matches
from tests.readable_partition import FakePartition

subjects = st.sampled_from(["a", "b", "c.1", "c.2"])
logs = st.lists(st.lists(subjects, min_size=1, max_size=5), min_size=1, max_size=8)
patterns = st.sampled_from(["", "a", "c.*", ">", "d"])
offsets = st.integers(0, 45)


@settings(max_examples=300, deadline=None)
@given(
    log=logs,
    compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    pattern=patterns,
    first=offsets,
    start=offsets,
    high_watermark=offsets,
    erased=st.sets(offsets),
    limits=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 4)),
)
def test_what_matches_comes_once_and_in_order(
    log: list[list[str]],
    compression: int,
    pattern: str,
    first: int,
    start: int,
    high_watermark: int,
    erased: set[int],
    limits: tuple[int, int, int],
) -> None:
    partition = FakePartition(log, compression)
    end = partition.high_watermark
    partition.high_watermark = min(end, high_watermark)
    partition.log_start_offset = min(start, partition.high_watermark)
    partition.subjects.index.forget_below(partition.log_start_offset)
    partition.erased = OffsetSet(erased)
    for offset in erased:
        partition.subjects.index.erase(offset)
    expected = [
        offset + 1
        for offset, subject in enumerate(it for batch in log for it in batch)
        if max(first, partition.log_start_offset) <= offset < partition.high_watermark
        and offset not in erased
        and (not pattern or matches(pattern.encode(), subject.encode()))
    ]
    named, looked, near = limits
    with (
        patch.multiple(ordered_read, NAMED_AT_ONCE=named, NEAR=near),
        patch.object(matching, "LOOKED_AT_ONCE", looked),
    ):
        found, count = asyncio.run(asked(partition, pattern, first))
    assert (found, count) == (expected, len(expected))


async def asked(partition: Any, pattern: str, first: int) -> tuple[list[int], int]:
    found = [it.sequence async for it in messages_from(partition, pattern, first)]
    return found, await count_from(partition, pattern, first)


@settings(max_examples=300, deadline=None)
@given(
    log=logs,
    compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    first=offsets,
    picked=st.none() | st.sets(offsets, min_size=1),
    chosen=st.sampled_from([(), (b"a",), (b"c.*", b"b")]),
    bytes_max=st.integers(1, 200),
)
def test_runs_bring_what_is_wanted_once_and_in_order(
    log: list[list[str]],
    compression: int,
    first: int,
    picked: set[int] | None,
    chosen: tuple[bytes, ...],
    bytes_max: int,
) -> None:
    """Each is as large as it may be, or larger by a part of one message, and brings something, if it is there."""
    partition: Any = FakePartition(log, compression)
    subjects = [it for batch in log for it in batch]
    end = len(subjects)
    wanted: Any = range(min(first, end), end)
    if picked is not None:
        wanted = sorted(it for it in picked if it < end)
    expected = [
        it
        for it in wanted
        if not chosen or any(matches(pattern, subjects[it].encode()) for pattern in chosen)
    ]

    async def read() -> list[int]:
        found: list[int] = []
        rest = wanted
        while rest:
            run, upper = await read_run(partition, rest, chosen, bytes_max=bytes_max)
            assert upper > rest[0]
            last_bytes = len(run.message(run.count - 1)[4]) + 3 if run.count else 0
            assert run.size_bytes < bytes_max + max(last_bytes, 1)
            found += run.offsets(0, run.count)
            rest = [it for it in rest if it >= upper]
            if isinstance(wanted, range):
                rest = range(min(upper, end), end)
        return found

    assert asyncio.run(read()) == expected
