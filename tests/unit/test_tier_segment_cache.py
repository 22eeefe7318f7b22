"""Segments of a store on the local disk: bounded, checked, asked for once."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.errors import CorruptObject, ObjectNotFound, Overloaded, StorageFull
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.segment.time_search import first_record_since
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import batches as batches_of
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_store import ObjectStore
from streamlog.tier.segment_cache import CachedSegment, SegmentCache
from streamlog.tier.segment_object import SealedFiles, upload_segment
from tests.log_folder import a_key_ring
from tests.segment_caches import opened
from tests.tiered_segments import (
    INTERVAL_BYTES,
    PREFIX,
    change,
    content,
    delete,
    exists,
    sealed_segments,
)

LARGE = {"batches": 40, "value_bytes": 500_000}
"""Twenty blocks."""


class World:
    """Uploaded segments and a cache of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ObjectStore((folder / "store").as_uri())
        self.pool = FilePool(OsDisk(), 16)
        self.files: list[SealedFiles] = []
        self.tiered: list[TieredSegment] = []
        self.cache: SegmentCache

    @contextlib.asynccontextmanager
    async def caching(self, bytes_max: int = 2**30) -> AsyncIterator[None]:
        """A cache is open in there."""
        self.cache = SegmentCache(
            self.store, str(self.folder / "cache"), bytes_max=bytes_max, forget=self.pool.forget
        )
        async with opened(self.cache):
            yield

    async def upload(
        self, segments: int = 1, *, batches: int = 20, value_bytes: int = 1000
    ) -> None:
        self.files = sealed_segments(
            self.folder / "s" / "0", segments=segments, batches=batches, value_bytes=value_bytes
        )
        self.tiered = [
            await upload_segment(self.store, PREFIX, it, leader_epoch=3, upload_id=uuid4())
            for it in self.files
        ]

    async def read(self, number: int, offset: int, max_bytes: int = 1) -> list[int]:
        """The base offsets of the batches of one read."""
        tiered = self.tiered[number]
        async with self.cache.reading(PREFIX, tiered) as cached:
            return await self.read_from(cached, offset, max_bytes)

    async def read_from(self, cached: CachedSegment, offset: int, max_bytes: int = 1) -> list[int]:
        await cached.prepare(offset, max_bytes)
        segment = cached.opened(self.pool, INTERVAL_BYTES)
        with segment.slice(offset, max_bytes, cached.segment.end_offset) as found:
            return [header.base_offset for header, _ in batches_of(found.read())]

    async def read_all(self, number: int) -> CachedSegment:
        """By a process of its own."""
        async with self.caching(), self.cache.reading(PREFIX, self.tiered[number]) as cached:
            await cached.prepare_all()
        return cached

    def object_path(self, number: int) -> Path:
        return self.folder / "store" / PREFIX.segment(self.tiered[number].name)

    def gets(self) -> int:
        return self.store.statistics.requests["read"]

    def cached_files(self) -> list[str]:
        return sorted(it.name for it in (self.folder / "cache").rglob("*") if it.is_file())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.pool.close()
    world.store.close()


async def test_first_batch_is_there_before_the_rest(world: World) -> None:
    await world.upload(**LARGE)
    async with world.caching():
        assert await world.read(0, 30) == [30]
        assert world.cache.statistics.misses == 1
        assert world.store.statistics.downloaded_bytes < world.tiered[0].size_bytes


async def test_every_batch_is_read_as_it_was_written(world: World) -> None:
    await world.upload(batches=200, value_bytes=30_000)
    written = content(world.files[0].log_path)
    async with world.caching(), world.cache.reading(PREFIX, world.tiered[0]) as cached:
        for offset in (199, 0, 100, 57):
            assert await world.read_from(cached, offset) == [offset]
        await cached.prepare_all()
        assert content(cached.log_path) == written
        assert cached.part("producers") == b"producers of 0"
        assert cached.part("nothing") == b""


@pytest.mark.parametrize("max_bytes", [1, 5_000, 700_000, 3_000_000])
async def test_a_read_finds_as_much_as_it_may_have(world: World, max_bytes: int) -> None:
    await world.upload(**LARGE)
    size = world.tiered[0].size_bytes // 40
    async with world.caching():
        for offset in (3, 39, 20):
            count = max(1, min(max_bytes // size, 40 - offset))
            assert await world.read(0, offset, max_bytes) == list(range(offset, offset + count))


async def test_a_batch_is_found_by_its_time(world: World) -> None:
    await world.upload(**LARGE)
    async with world.caching(), world.cache.reading(PREFIX, world.tiered[0]) as cached:
        await cached.prepare_time(17)
        segment = cached.opened(world.pool, INTERVAL_BYTES)
        found = first_record_since([segment], 17, 0, 40, verify=lambda _: None)
        assert found == (17, 17)


async def test_many_readers_ask_once(world: World) -> None:
    await world.upload(**LARGE)
    async with world.caching():
        found = await asyncio.gather(*(world.read(0, 5) for _ in range(20)))
        assert found == [[5]] * 20
        async with world.cache.reading(PREFIX, world.tiered[0]) as cached:
            await cached.prepare_all()
    assert world.store.statistics.downloaded_bytes == world.tiered[0].object_bytes


async def test_the_next_segment_is_there_before_its_reader(world: World) -> None:
    await world.upload(2, **LARGE)
    first, second = world.tiered
    async with world.caching():
        async with world.cache.reading(PREFIX, first, second) as cached:
            await cached.prepare_all()
        downloaded_bytes = first.object_bytes + second.object_bytes
        async with asyncio.timeout(10):
            while world.store.statistics.downloaded_bytes < downloaded_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with world.cache.reading(PREFIX, second) as cached:
            await cached.prepare_all()
            assert content(cached.log_path) == content(world.files[1].log_path)
    assert world.store.statistics.downloaded_bytes == downloaded_bytes


async def test_the_next_segment_waits_where_it_would_take_the_room_of_the_first(
    world: World,
) -> None:
    await world.upload(2)
    first, second = world.tiered
    async with world.caching(int(1.5 * first.object_bytes)):
        async with world.cache.reading(PREFIX, first, second) as cached:
            await cached.prepare_all()
        asked = world.gets()
        assert await world.read(0, 3) == [3]
        assert world.gets() == asked
        assert await world.read(1, second.base_offset) == [second.base_offset]


async def test_a_segment_that_was_not_read_for_longest_makes_room(world: World) -> None:
    await world.upload(3)
    async with world.caching(int(2.5 * world.tiered[0].object_bytes)):
        for number in (0, 1, 0, 2):
            await world.read(number, world.tiered[number].base_offset)
        asked = world.gets()
        await world.read(0, 0)
        assert world.gets() == asked  # it was read after the second one, which has gone
        await world.read(1, world.tiered[1].base_offset)
        assert world.gets() > asked
        assert world.cache.statistics.used_bytes <= world.cache.bytes_max
        assert world.cache.statistics.evictions == 2


async def test_pinned_segments_are_never_taken_out(world: World) -> None:
    await world.upload(3)
    async with world.caching(int(2.5 * world.tiered[0].object_bytes)):
        async with (
            world.cache.reading(PREFIX, world.tiered[0]) as first,
            world.cache.reading(PREFIX, world.tiered[1]),
        ):
            with pytest.raises(Overloaded, match=r"raise tier\.cache_bytes_max"):
                await world.read(2, world.tiered[2].base_offset)
            assert await world.read_from(first, 7) == [7]
            assert world.cache.statistics.refusals == 1
        assert await world.read(2, world.tiered[2].base_offset) == [world.tiered[2].base_offset]


async def test_a_slice_outlives_its_segment(world: World) -> None:
    await world.upload(2)
    async with world.caching(int(1.5 * world.tiered[0].object_bytes)):
        async with world.cache.reading(PREFIX, world.tiered[0]) as cached:
            await cached.prepare(3, 1)
            held = cached.opened(world.pool, INTERVAL_BYTES).slice(3, 1, 20)
        await world.read(1, world.tiered[1].base_offset)
    assert not exists(cached.log_path)
    assert [header.base_offset for header, _ in batches_of(held.read())] == [3]
    held.close()


async def test_a_whole_segment_survives_a_restart(world: World) -> None:
    await world.upload()
    await world.read_all(0)
    asked = world.gets()
    async with world.caching():
        assert world.cache.statistics.segments == 1
        assert await world.read(0, 7) == [7]
    assert world.gets() == asked


@pytest.mark.parametrize("suffix", [".log", ".index"])
async def test_a_changed_file_is_found_after_a_restart(world: World, suffix: str) -> None:
    await world.upload()
    cached = await world.read_all(0)
    change(cached.stem_path + suffix, 10)
    asked = world.gets()
    async with world.caching():
        assert await world.read(0, 7) == [7]
    assert world.gets() > asked


async def test_a_segment_that_was_not_whole_goes_at_a_restart(world: World) -> None:
    await world.upload(**LARGE)
    async with world.caching():
        await world.read(0, 3)
    assert world.cached_files() != []
    async with world.caching():
        assert world.cached_files() == []
        assert world.cache.statistics.used_bytes == 0


async def test_too_much_of_an_earlier_process_goes_at_the_start(world: World) -> None:
    await world.upload(3)
    for number in range(3):
        await world.read_all(number)
    async with world.caching(int(1.5 * world.tiered[0].object_bytes)):
        assert world.cache.statistics.segments == 1
    assert world.cache.statistics.evictions == 2


async def test_a_missing_object_is_told_to_each_reader_and_costs_no_room(world: World) -> None:
    await world.upload()
    delete(world.object_path(0))
    async with world.caching():
        found = await asyncio.gather(*(world.read(0, 5) for _ in range(3)), return_exceptions=True)
        assert [type(it) for it in found] == [ObjectNotFound] * 3
        assert world.cache.statistics.used_bytes == 0
    assert world.cached_files() == []


async def test_a_damaged_block_fails_the_reads_that_need_it_and_no_others(world: World) -> None:
    await world.upload(**LARGE)
    change(world.object_path(0), 10 * 2**20 + 7)
    async with world.caching():
        assert await world.read(0, 3) == [3]
        with pytest.raises(CorruptObject):
            await world.read(0, 20, 2_000_000)
        assert await world.read(0, 39) == [39]
        change(world.object_path(0), 10 * 2**20 + 7)
        assert await world.read(0, 20) == [20]


async def test_a_dropped_segment_stays_for_those_that_read_it(world: World) -> None:
    await world.upload()
    async with world.caching(), world.cache.reading(PREFIX, world.tiered[0]) as cached:
        world.cache.drop(world.tiered)
        assert world.cache.statistics.used_bytes == 0
        assert await world.read_from(cached, 5) == [5]
    assert world.cached_files() == []


async def test_a_reader_that_gives_up_disturbs_no_other(world: World) -> None:
    await world.upload(**LARGE)
    async with world.caching():
        first = asyncio.create_task(world.read(0, 5))
        second = asyncio.create_task(world.read(0, 6))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [6]


async def test_a_disk_that_is_full_fails_a_read_and_costs_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.upload()

    def full(fd: int, position: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with world.caching():
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            with pytest.raises(StorageFull):
                await world.read(0, 5)
        assert world.cache.statistics.used_bytes == 0
        assert await world.read(0, 5) == [5]


async def test_an_encrypted_segment_stays_encrypted(tmp_path: Path) -> None:
    keys: KeyRing = a_key_ring()
    folder = tmp_path / "s" / "0"
    (files,) = sealed_segments(folder, keys=keys, encrypts=True)
    assert ".key" in files.files
    store = ObjectStore((tmp_path / "store").as_uri())
    tiered = await upload_segment(store, PREFIX, files, leader_epoch=0, upload_id=uuid4())
    stored = content(tmp_path / "store" / PREFIX.segment(tiered.name))
    assert b"7.7.7." not in stored
    cache = SegmentCache(store, str(tmp_path / "cache"), bytes_max=2**20)
    pool = FilePool(OsDisk(), 16, keys)
    async with opened(cache), cache.reading(PREFIX, tiered) as cached:
        await cached.prepare(7, 1)
        with cached.opened(pool, INTERVAL_BYTES).slice(7, 1, 20) as found:
            assert b"7.7.7." in found.read()
    pool.close()
    store.close()
