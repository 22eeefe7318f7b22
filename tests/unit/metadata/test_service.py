import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamlog.errors import (
    Overloaded,
    StorageFailed,
    StorageFull,
    StreamExists,
    StreamNotFound,
    Unavailable,
)
from streamlog.log.disk import OsDisk
from streamlog.log.files import FilePool
from streamlog.metadata import service
from streamlog.metadata.image import Image
from streamlog.metadata.records import MetadataRecord
from streamlog.metadata.service import MetadataService
from streamlog.metadata.store import MetadataStore
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId


class Store(MetadataStore):
    """One whose appends can be made to fail."""

    error: Unavailable | None = None

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        if self.error is not None:
            raise self.error
        return super().append(records, now_ms)


def store_at(directory: Path) -> Store:
    disk = OsDisk()
    return Store(directory, "c", disk=disk, files=FilePool(disk, 16))


Running = Callable[[], "asyncio._AsyncGeneratorContextManager[MetadataService]"]


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[MetadataService]:
    metadata = MetadataService(store, "c")
    await metadata.open()
    await metadata.register(NodeId(1), host="h", port=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(metadata.run())
        yield metadata
        await metadata.close()


async def test_create_update_delete_and_again_after_a_restart(tmp_path: Path) -> None:
    async with running(store_at(tmp_path)) as metadata:
        stream, created = await metadata.create_stream(StreamConfig.of(name="s"))
        assert created
        assert metadata.image.stream("s") is stream
        again, created = await metadata.create_stream(StreamConfig.of(name="s"))
        assert (again, created) == (stream, False)
        with pytest.raises(StreamExists):
            await metadata.create_stream(StreamConfig.of(name="s", retention_ms=500))
        wider = await metadata.update_stream(StreamConfig.of(name="s", subjects=("s", "t")))
        assert wider.config.subjects == ("s", "t")
        await metadata.create_stream(StreamConfig.of(name="gone"))
        await metadata.delete_stream("gone")
        with pytest.raises(StreamNotFound):
            await metadata.delete_stream("gone")
    async with running(store_at(tmp_path)) as metadata:
        assert set(metadata.image.streams) == {"s"}
        partition = metadata.image.stream("s").partition(0)
        assert partition.leader_epoch == 1, "a new start, a new leader epoch"


async def test_listeners_have_acted_before_the_caller_is_answered(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []

    def listener(name: str) -> service.Listener:
        async def listen(old: Image, new: Image) -> None:
            await asyncio.sleep(0)
            heard.append((name, len(old.streams), len(new.streams)))

        return listen

    async with running(store_at(tmp_path)) as metadata:
        metadata.add_listener(listener("a"))
        metadata.add_listener(listener("b"))
        await metadata.create_stream(StreamConfig.of(name="s"))
        assert heard == [("a", 0, 1), ("b", 0, 1)]
        await metadata.create_stream(StreamConfig.of(name="s"))
        assert len(heard) == 2, "no change, no call"


async def test_requests_are_served_one_at_a_time(tmp_path: Path) -> None:
    inside = 0

    async def listen(_old: Image, _new: Image) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1

    async with running(store_at(tmp_path)) as metadata:
        metadata.add_listener(listen)
        creations = [metadata.create_stream(StreamConfig.of(name=f"s{i}")) for i in range(20)]
        await asyncio.gather(*creations)
        assert len(metadata.image.streams) == 20


async def test_two_who_create_the_same_stream_both_succeed(tmp_path: Path) -> None:
    async with running(store_at(tmp_path)) as metadata:
        config = StreamConfig.of(name="s")
        answers = await asyncio.gather(*(metadata.create_stream(config) for _ in range(3)))
        assert [created for _, created in answers] == [True, False, False]


async def test_a_caller_who_goes_away_stops_nothing(tmp_path: Path) -> None:
    async with running(store_at(tmp_path)) as metadata:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await metadata.create_stream(StreamConfig.of(name="s"))
        await metadata.create_stream(StreamConfig.of(name="t"))
        assert "t" in metadata.image.streams


async def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    async with running(store) as metadata:
        store.error = StorageFull("full")
        with pytest.raises(StorageFull):
            await metadata.create_stream(StreamConfig.of(name="s"))
        assert not metadata.image.streams
        store.error = None
        await metadata.create_stream(StreamConfig.of(name="s"))


async def test_a_failed_disk_ends_all_changes_and_no_reads(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    async with running(store) as metadata:
        await metadata.create_stream(StreamConfig.of(name="s"))
        store.error = StorageFailed("broken")
        with pytest.raises(StorageFailed):
            await metadata.delete_stream("s")
        store.error = None
        with pytest.raises(StorageFailed):
            await metadata.delete_stream("s")
        assert metadata.failure is not None
        assert "s" in metadata.image.streams


async def test_what_a_listener_raises_stops_the_node(tmp_path: Path) -> None:
    async def listen(_old: Image, _new: Image) -> None:
        raise LookupError("a fault of ours")

    with pytest.raises(ExceptionGroup) as raised:
        async with running(store_at(tmp_path)) as metadata:
            metadata.add_listener(listen)
            with pytest.raises(Overloaded):
                await metadata.create_stream(StreamConfig.of(name="s"))
    assert raised.group_contains(LookupError)


async def test_too_many_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REQUESTS_MAX", 3)
    async with running(store_at(tmp_path)) as metadata:
        creations = [metadata.create_stream(StreamConfig.of(name=f"s{i}")) for i in range(10)]
        answers = await asyncio.gather(*creations, return_exceptions=True)
        assert sum(isinstance(answer, Overloaded) for answer in answers) == 7


async def test_close_refuses_what_waits_and_what_comes(tmp_path: Path) -> None:
    metadata = MetadataService(store_at(tmp_path), "c")
    await metadata.open()
    waiting = asyncio.ensure_future(metadata.create_stream(StreamConfig.of(name="s")))
    await asyncio.sleep(0)
    await metadata.close()
    await metadata.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await metadata.create_stream(StreamConfig.of(name="s"))
