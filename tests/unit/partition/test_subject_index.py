"""A partition's index of subjects follows its log."""

import asyncio
from pathlib import Path

import pytest

from streamlog.errors import NotLeader, Overloaded
from streamlog.partition.partition import Partition
from streamlog.partition.subjects import subject_index as subjects_module
from streamlog.partition.subjects.index_cache import IDLE_S
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.subjects import SubjectIndex
from tests.partition_world import Told, World, tp
from tests.unit.partition.replica_world import until

ALL = 1 << 40


async def put(partition: Partition, *subjects: str, value: bytes = b"v") -> int:
    run = RecordRun()
    for subject in subjects:
        run.append(None, value, [(b"subject", subject.encode())])
    told = Told()
    partition.append(run, told)
    return await told.answer


def seen(index: SubjectIndex) -> list[str | None]:
    """By offset, from the start on."""
    found = [index.subject_at(at) for at in range(index.start_offset, index.next_offset)]
    return [None if subject is None else subject.decode() for subject in found]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_what_is_in_the_log_is_known_when_it_is_asked_for(tmp_path: Path, codec: str) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", compression=codec)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "b")
        assert partition.subjects.size_bytes == 0, "nobody has asked"
        index = await partition.subjects.know()
        assert seen(index) == ["a", "b"]
        await put(partition, "a")
        assert await partition.subjects.know() is index
        assert seen(index) == ["a", "b", "a"]
        assert index.last(b"a", ALL) == 2
        assert index.count(b"a") == 2
        assert partition.subjects.at_hand() is index


async def test_a_large_log_is_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects_module, "READ_BYTES", 4096)
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", segment_bytes=64 << 10)
        partition = registry.partition(tp("s"))
        for number in range(100):
            await put(partition, *(f"o.{number}.{i}" for i in range(10)), value=bytes(2000))
        assert partition.subjects.at_hand() is None
        first, second = await asyncio.gather(partition.subjects.know(), partition.subjects.know())
        assert first is second
        assert (len(first), first.message_count) == (1000, 1000)
        for number in range(100):
            await put(partition, *(f"o.{number}.{i}" for i in range(10)), value=bytes(2000))
        assert partition.subjects.at_hand() is None, "too much is new"
        assert await partition.subjects.know() is first
        assert (len(first), first.message_count) == (1000, 2000)


async def test_what_retention_and_purges_take_is_not_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", segment_bytes=4096)
        partition = registry.partition(tp("s"))
        for _ in range(3):
            await put(partition, "a", "b", value=bytes(1500))
        index = await partition.subjects.know()
        assert index.count(b"a") == 3
        await world.update("s", retention_messages=3)
        await until(lambda: partition.log_start_offset == 3)
        assert seen(await partition.subjects.know()) == ["b", "a", "b"]
        await partition.purge(partition.high_watermark - 1)
        assert seen(await partition.subjects.know()) == ["b"]
        await partition.purge(partition.high_watermark)
        assert len(await partition.subjects.know()) == 0


async def test_a_log_that_is_cut_takes_its_messages_along(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await put(partition, "a", "b")
        await put(partition, "a", "c")
        index = await partition.subjects.know()
        partition.state.log.truncate_to(2)
        partition.was_cut()
        assert seen(index) == ["a", "b"]
        assert index.last(b"a", ALL) == 0
        await put(partition, "d")
        assert seen(await partition.subjects.know()) == ["a", "b", "d"]
        partition.state.log.truncate_fully_to(100)
        partition.was_cut()
        await put(partition, "e")
        assert seen(await partition.subjects.know()) == ["e"]


async def test_an_index_is_idle_wanted_and_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    registry = await world.started()
    try:
        await world.create("s", sync="os")
        partition = registry.partition(tp("s"))
        keeping, subjects = registry._context.indexes, partition.subjects
        run = RecordRun()
        run.append(None, b"", [(b"subject", b"a")])
        partition.append(run, Told())
        subjects.want()
        await keeping.look()
        assert (keeping.count, keeping.size_bytes) == (1, subjects.size_bytes)
        subjects.used_s -= 2 * IDLE_S
        await keeping.look()
        assert keeping.count == 1, "followed"
        subjects.used_s -= 2 * IDLE_S
        subjects.let_go()
        await keeping.look()
        assert (keeping.count, keeping.size_bytes, subjects.size_bytes) == (0, 0, 0)
        await subjects.know()
        await world.delete("s")
        assert keeping.size_bytes == 0
        with pytest.raises(NotLeader):
            await subjects.know()
    finally:
        await registry.close()


async def test_memory_is_shared_and_bounded(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node(subject_index_bytes=200_000) as registry:
        await world.create("one")
        await world.create("two")
        one, two = registry.partition(tp("one")), registry.partition(tp("two"))
        await put(one, *(f"a.{i}" for i in range(1000)))
        await put(two, *(f"a.{i}" for i in range(1000)))
        assert len(await one.subjects.know()) == 1000
        assert len(await two.subjects.know()) == 1000, "the other one gave way or there was room"
        await put(two, *(f"b.{i}" for i in range(10_000)))
        with pytest.raises(Overloaded, match="subject_index_bytes"):
            await two.subjects.know()
        assert two.subjects.size_bytes == 0
        assert len(await one.subjects.know()) == 1000
        await two.purge(two.high_watermark - 10)
        assert len(await two.subjects.know()) == 10


async def test_what_compaction_takes_is_not_counted(tmp_path: Path) -> None:
    """Of a key the last record is kept, whatever their subjects are."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create(
            "s", cleanup_policy="compact", duplicate_window_ms=100, min_cleanable_dirty_ratio=0
        )
        partition = registry.partition(tp("s"))
        for key, subject in ((b"k", b"a"), (b"k", b"b"), (b"l", b"a")):
            run = RecordRun()
            run.append(key, b"v", [(b"subject", subject)])
            told = Told()
            partition.append(run, told)
            await told.answer
        index = await partition.subjects.know()
        assert seen(index) == ["a", "b", "a"]
        await asyncio.sleep(0.2)  # a record younger than the duplicate window is left alone
        partition.state.log.roll()
        partition.sync_soon()
        await partition.wait_synced()
        await put_keyed(partition)
        await registry._log_cleaner.clean_all()
        index = await partition.subjects.know()
        assert seen(index) == [None, "b", "a", "z"]
        assert index.count(b"a") == 1


async def put_keyed(partition: Partition) -> None:
    run = RecordRun()
    run.append(b"z", b"v", [(b"subject", b"z")])
    told = Told()
    partition.append(run, told)
    await told.answer
