"""Which streams watch a subject: what STREAM.NAMES and STREAM.LIST look for."""

import asyncio
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.verbs import streams as module
from streamlog.jetstream.verbs.streams import SortedNames, Streams
from streamlog.metadata.stream.config import StreamConfig
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX, overlap

TOKENS = ("a", "b", "c", "1", "2", "01", "*", ">")


def image(*configs: StreamConfig) -> Any:
    streams = {
        it.name: SimpleNamespace(config=it, partitions=[None] * it.partitions) for it in configs
    }
    return SimpleNamespace(streams=streams)


def page(image: Any, **fields: Any) -> Any:
    streams: Any = object.__new__(Streams)
    streams._names = SortedNames()
    return streams._page(fields, 1_024, image)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("partition_by", ["subject", "key"])
def test_partitions_are_watched_as_if_each_were_looked_at(
    partitions: int, partition_by: str
) -> None:
    config = StreamConfig.of(
        name="s", subjects=("a", "c.b", "b.*"), partitions=partitions, partition_by=partition_by
    )
    every = [it for number in range(partitions) for it in config.subjects_of(number)]
    for length in (1, 2, 3):
        for tokens in product(TOKENS, repeat=length):
            pattern = ".".join(tokens)
            if ">" in tokens[:-1]:
                continue
            assert config.hears(pattern) == any(overlap(it, pattern) for it in every), pattern


async def test_a_pattern_that_no_subject_is_as_long_as_is_refused() -> None:
    known = image(StreamConfig.of(name="s"))
    names, _ = await page(known, subject="s")
    assert names == ["s"]
    with pytest.raises(ApiRefused):
        await page(known, subject="x." * SUBJECT_BYTES_MAX)


async def test_many_streams_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT_ONCE", 10)
    known = image(*(StreamConfig.of(name=f"s{n:03}", partitions=100) for n in range(200)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    names, told = await page(known, subject="s*.7")
    assert names == []
    names, told = await page(known, subject="*.7", offset=190)
    running.cancel()
    assert (names[0], told["total"]) == ("s190", 200)
    assert turns >= 40


async def test_names_are_sorted_again_only_where_there_are_others() -> None:
    known, names = image(*(StreamConfig.of(name=it) for it in "bca")), SortedNames()
    found = await names.of(known.streams)
    assert found == ["a", "b", "c"]
    assert await names.of(known.streams) is found
    others = image(*(StreamConfig.of(name=it) for it in ("z", "__consumer_offsets", "c")))
    assert await names.of(others.streams) == ["c", "z"]
