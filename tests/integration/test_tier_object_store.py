"""Tiered storage with a real S3 behind a proxy that does what networks and stores do."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from streamlog.errors import (
    ConfigError,
    CorruptFile,
    CorruptObject,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreUnavailable,
)
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.manifest_store import ManifestStore
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.tier.object_store import PART_TRIES, ObjectStore, StoreLimits
from streamlog.tier.segment_cache import SegmentCache
from streamlog.tier.segment_object import SealedFiles, download_segment, upload_segment
from tests.faulty_store import FaultyStore, Kind
from tests.peers.sources import cache
from tests.segment_caches import opened
from tests.tiered_segments import INTERVAL_BYTES, content, sealed_segments
from tools.maven import MavenError
from tools.s3_server import BUCKET, S3Server, credentials, jars

QUICK = StoreLimits(request_timeout_ms=2_000, backoff_ms=5, backoff_ms_max=20)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        found = jars(cache())
    except MavenError as error:
        pytest.skip(f"no S3 server: {error}")
    with S3Server(tmp_path_factory.mktemp("s3"), found) as server:
        yield server


@pytest.fixture
async def faulty(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyStore]:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    async with FaultyStore(server.port) as faulty:
        yield faulty


@pytest.fixture
async def store(faulty: FaultyStore) -> AsyncIterator[ObjectStore]:
    """In a folder of the bucket of its own."""
    store = open_store(faulty)
    yield store
    store.close()


@pytest.fixture
def prefix() -> PartitionPrefix:
    return PartitionPrefix(StreamPrefix("cluster", uuid4()), 0)


def open_store(
    faulty: FaultyStore | S3Server, url: str | None = None, **limits: Any
) -> ObjectStore:
    return ObjectStore(
        url or f"s3://{BUCKET}/{uuid4().hex}",
        endpoint=faulty.endpoint,
        limits=StoreLimits(**{**vars(QUICK), **limits}),
    )


def small_segment(folder: Path) -> SealedFiles:
    return sealed_segments(folder / "s" / "0")[0]


def large_segment(folder: Path) -> SealedFiles:
    """Of three parts."""
    return sealed_segments(folder / "s" / "0", batches=40, value_bytes=500_000)[0]


# Conditional puts


async def test_the_store_passes_the_check(store: ObjectStore) -> None:
    await store.check("cluster")
    assert await store.list("cluster") == []


async def test_a_store_that_ignores_the_condition_is_refused(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    faulty.strike("no condition", times=2, method="PUT")
    with pytest.raises(ConfigError, match="ignores the condition of a put"):
        await store.check("cluster")
    assert await store.list("cluster") == []


async def test_an_object_is_never_overwritten(store: ObjectStore) -> None:
    await store.create("a/b", b"first")
    with pytest.raises(ObjectExists, match="a/b: there is another object"):
        await store.create("a/b", b"second")
    assert await store.read("a/b") == b"first"


async def test_of_many_that_write_a_name_one_succeeds(
    server: S3Server, faulty: FaultyStore
) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    stores = [open_store(faulty, url) for _ in range(6)]
    found = await asyncio.gather(
        *(it.create("a/b", b"of %d" % n) for n, it in enumerate(stores)), return_exceptions=True
    )
    winners = [n for n, it in enumerate(found) if it is None]
    assert len(winners) == 1
    assert {type(it) for it in found if it is not None} == {ObjectExists}
    assert await stores[0].read("a/b") == b"of %d" % winners[0]
    for it in stores:
        it.close()


async def test_a_put_whose_answer_is_lost_has_succeeded(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    fault = faulty.strike("lost answer", times=2, method="PUT")
    await store.create("a/b", b"mine")
    assert fault.struck == 2
    assert faulty.count("PUT") == 3
    assert await store.read("a/b") == b"mine"


async def test_a_lost_answer_does_not_hide_that_another_was_first(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    await store.create("a/b", b"theirs")
    faulty.strike("lost answer", method="PUT")
    with pytest.raises(ObjectExists):
        await store.create("a/b", b"mine")


# Faults that pass, and those that do not


@pytest.mark.parametrize("kind", ["unavailable", "slow down", "broken", "lost answer"])
async def test_a_fault_that_passes_is_not_seen(
    store: ObjectStore, faulty: FaultyStore, kind: Any
) -> None:
    await store.create("a/b", b"content")
    fault = faulty.strike(kind, times=3)
    assert await store.read("a/b") == b"content"
    assert (fault.struck, store.statistics.retries) == (3, 3)
    faulty.strike(kind, times=3)
    assert [it.path for it in await store.list("a")] == ["a/b"]
    faulty.strike(kind, times=3)
    await store.delete(["a/b"])
    assert await store.list("a") == []


async def test_a_fault_that_stays_is_told_with_its_remedy(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    fault = faulty.strike("unavailable", times=1_000)
    with pytest.raises(
        ObjectStoreUnavailable, match=r"503 .*; see whether the store \(tier\.url\) is reach"
    ):
        await store.create("a/b", b"content")
    assert fault.struck == QUICK.attempts_max
    assert store.statistics.failures["ObjectStoreUnavailable"] == QUICK.attempts_max


async def test_a_store_that_is_silent_is_given_up_in_time(faulty: FaultyStore) -> None:
    store = open_store(faulty, request_timeout_ms=200, attempts_max=3)
    faulty.strike("silent", times=3)
    began_s = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match="no answer in time"):
        await store.read("a/b")
    assert time.monotonic() - began_s < 5
    await store.create("a/b", b"content")
    faulty.strike("silent", times=2)
    assert await store.read("a/b") == b"content"
    store.close()


async def test_a_body_that_is_cut_is_asked_for_again(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    data = bytes(range(256)) * 8_000
    await store.create("a/b", data)
    faulty.strike("cut body", times=2, method="GET")
    assert await store.read("a/b") == data
    faulty.strike("cut body", times=2, method="GET")
    assert bytes(await store.read_range("a/b", 1_000, 1_000_000)) == data[1_000:1_001_000]
    faulty.strike("cut body", times=2, method="GET")
    assert len(await store.list("a")) == 1


async def test_a_slow_first_byte_is_waited_for(store: ObjectStore, faulty: FaultyStore) -> None:
    await store.create("a/b", b"content")
    faulty.strike("slow first byte", delay_s=1.0, method="GET")
    assert await store.read("a/b") == b"content"
    assert store.statistics.retries == 0


@pytest.mark.parametrize("secret", ["wrong", None])
async def test_wrong_credentials_are_told_at_once(
    faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    if secret is not None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        store = open_store(faulty)
    else:
        store = open_store(faulty, f"s3://no-such-bucket/{uuid4().hex}")
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.create("a/b", b""),
        lambda: store.read("a/b"),
        lambda: store.list("a"),
        lambda: store.check("cluster"),
    ]
    if secret is not None:  # the server deletes from a bucket that is not there
        calls.append(lambda: store.delete(["a/b"]))
    for call in calls:
        before = len(faulty.requests)
        with pytest.raises(ObjectStoreDenied, match=r"check the bucket \(tier\.url\)"):
            await call()
        assert len(faulty.requests) == before + 1
    store.close()


async def test_a_stopped_server_is_unavailable_until_it_is_back(
    server: S3Server, faulty: FaultyStore
) -> None:
    store = open_store(server, backoff_ms=100, backoff_ms_max=1_000, attempts_max=20)
    await store.create("a/b", b"content")
    await asyncio.to_thread(server.stop)
    reading = asyncio.create_task(store.read("a/b"))
    await asyncio.to_thread(server.start)
    assert await reading == b"content"
    store.close()


async def test_a_request_that_is_cancelled_ends_at_the_store(
    store: ObjectStore, faulty: FaultyStore
) -> None:
    faulty.strike("silent")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await store.read("a/b")
    async with asyncio.timeout(5):
        await store.create("a/b", b"content")  # the gate is free again


# Segments


@pytest.mark.parametrize("make", [small_segment, large_segment])
async def test_a_segment_goes_up_and_comes_back(
    store: ObjectStore, prefix: PartitionPrefix, tmp_path: Path, make: Any
) -> None:
    files = make(tmp_path)
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    assert [it.size_bytes for it in await store.list(prefix.segments)] == [tiered.object_bytes]
    target = tmp_path / "back"
    target.mkdir()
    await download_segment(store, prefix, tiered, str(target))
    assert content(target / Path(files.log_path).name) == content(files.log_path)


@pytest.mark.parametrize("kind", ["unavailable", "broken", "lost answer", "slow down"])
async def test_a_part_that_fails_is_sent_again_alone(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path, kind: Any
) -> None:
    files = large_segment(tmp_path)
    fault = faulty.strike(kind, times=2, method="PUT", within="partNumber=2")
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    assert fault.struck == 2
    assert faulty.count("PUT", "partNumber=1&") == 1
    target = tmp_path / "back"
    target.mkdir()
    await download_segment(store, prefix, tiered, str(target))


async def test_an_upload_that_fails_leaves_no_object(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    files = large_segment(tmp_path)
    faulty.strike("forbidden", times=1_000, method="PUT", within="partNumber=2")
    with pytest.raises(ObjectStoreDenied):
        await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    assert await store.list(prefix.segments) == []
    assert faulty.count("DELETE", "uploadId=") == 1


async def test_an_upload_in_parts_is_repeated_where_its_end_fails(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    files = large_segment(tmp_path)
    fault = faulty.strike("unavailable", times=PART_TRIES, method="POST", within="uploadId=")
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    assert (fault.struck, store.statistics.retries) == (PART_TRIES, 1)
    target = tmp_path / "back"
    target.mkdir()
    await download_segment(store, prefix, tiered, str(target))


async def test_changed_bytes_are_asked_for_again_and_never_handed_out(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    files = small_segment(tmp_path)
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    faulty.strike("changed body", times=2, method="GET", within="segments")
    target = tmp_path / "back"
    target.mkdir()
    await download_segment(store, prefix, tiered, str(target))
    assert content(target / Path(files.log_path).name) == content(files.log_path)
    faulty.strike("changed body", times=1_000, method="GET", within="segments")
    with pytest.raises(CorruptObject, match="the checksum of"):
        await download_segment(store, prefix, tiered, str(target))


# The cache


async def test_the_first_batch_comes_within_two_round_trips(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    tiered = await upload_segment(
        store, prefix, large_segment(tmp_path), leader_epoch=1, upload_id=uuid4()
    )
    cached = SegmentCache(store, str(tmp_path / "cache"), bytes_max=2**30)
    pool = FilePool(OsDisk(), 16)
    before = len(faulty.requests)
    faulty.latency_s = 1.0  # a machine may be slow by less than a third round trip
    began_s = time.monotonic()
    async with opened(cached), cached.reading(prefix, tiered) as entry:
        await entry.prepare(25, 100_000)
        with entry.opened(pool, INTERVAL_BYTES).slice(25, 100_000, 40) as found:
            assert b"25.25." in found.read()
        took_s = time.monotonic() - began_s
        assert len(faulty.requests) <= before + 2 + 4  # those of the read-ahead began after it
        assert 2 * faulty.latency_s < took_s < 3 * faulty.latency_s
        faulty.latency_s = 0.0
    pool.close()


async def test_reads_of_the_cache_go_on_through_faults(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    files = large_segment(tmp_path)
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    cached = SegmentCache(store, str(tmp_path / "cache"), bytes_max=2**30)
    kinds: tuple[Kind, ...] = ("unavailable", "cut body", "changed body", "broken")
    for kind in kinds:
        faulty.strike(kind, times=2, method="GET", within="segments")
    async with opened(cached), cached.reading(prefix, tiered) as entry:
        for offset in range(40):
            await entry.prepare(offset, 1)
        await entry.prepare_all()
        assert content(entry.log_path) == content(files.log_path)
    assert all(it.struck == it.times for it in faulty.faults)


async def test_a_store_that_is_gone_fails_a_read_and_the_next_one_succeeds(
    store: ObjectStore, faulty: FaultyStore, prefix: PartitionPrefix, tmp_path: Path
) -> None:
    files = large_segment(tmp_path)
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    cached = SegmentCache(store, str(tmp_path / "cache"), bytes_max=2**30)
    fault = faulty.strike("unavailable", times=1_000, method="GET")
    async with opened(cached):
        with pytest.raises(ObjectStoreUnavailable):
            await cached.pin(prefix, tiered)
        assert cached.statistics.used_bytes == 0
        fault.times = 0
        async with cached.reading(prefix, tiered) as entry:
            fault.times, fault.struck = 1_000, 0
            with pytest.raises(ObjectStoreUnavailable):
                await entry.prepare(0, 1)
            fault.times = 0
            await entry.prepare_all()
            assert content(entry.log_path) == content(files.log_path)


# Manifests and orphans


class Partition:
    """Its manifests as a leader writes them."""

    def __init__(self, store: ObjectStore, prefix: PartitionPrefix, folder: Path) -> None:
        self.store = store
        self.prefix = prefix
        self.manifests = ManifestStore(store, prefix.stream.cluster_id)
        self.files = sealed_segments(folder / "s" / "0", segments=4)
        self.manifest = TierManifest(stream_id=prefix.stream.stream_id, partition=prefix.number)

    async def upload(self, number: int, epoch: int = 1) -> TieredSegment:
        return await upload_segment(
            self.store, self.prefix, self.files[number], leader_epoch=epoch, upload_id=uuid4()
        )

    async def tier(self, number: int, epoch: int = 1) -> TierManifest:
        """As far as the controller, who accepts it."""
        new = self.manifest.with_segment(await self.upload(number, epoch)).next_version(epoch)
        await self.manifests.put(new)
        self.manifest = new
        return new

    async def orphans(self, epoch: int = 1, *, later_ms: int = 2 * HOUR_MS) -> list[str]:
        now_ms = time.time_ns() // 1_000_000 + later_ms
        found = await self.manifests.orphans(
            self.manifest, leader_epoch=epoch, grace_ms=HOUR_MS, now_ms=now_ms
        )
        await self.manifests.remove_orphans(found)
        return [it.path.removeprefix(self.prefix.path + "/") for it in found.removable]


@pytest.fixture
def partition(store: ObjectStore, prefix: PartitionPrefix, tmp_path: Path) -> Partition:
    return Partition(store, prefix, tmp_path)


async def test_the_newest_manifest_is_found_and_read(partition: Partition) -> None:
    assert await partition.manifests.newest(partition.prefix) is None
    for number in range(3):
        await partition.tier(number)
    assert await partition.manifests.newest(partition.prefix) == partition.manifest
    found = await partition.manifests.get(partition.prefix, partition.manifest.manifest_version)
    assert found == partition.manifest


async def test_two_leaders_never_own_one_version(partition: Partition) -> None:
    segment = await partition.upload(0)
    other = await partition.upload(0)
    first = partition.manifest.with_segment(segment).next_version(1)
    second = partition.manifest.with_segment(other).next_version(1)
    found = await asyncio.gather(
        partition.manifests.put(first), partition.manifests.put(second), return_exceptions=True
    )
    assert [type(it) for it in found if it is not None] == [ObjectExists]
    await partition.manifests.put(first if found[0] is None else second)  # again: no harm


async def test_what_no_manifest_names_is_removed_after_the_grace_time(
    partition: Partition,
) -> None:
    await partition.tier(0)
    lost = await partition.upload(1)  # and the leader crashes
    assert await partition.orphans(later_ms=0) == []
    assert await partition.orphans() == [f"segments/{lost.name}"]
    assert await partition.manifests.missing(partition.manifest) == []


async def test_retention_makes_orphans_of_segments_and_manifests(partition: Partition) -> None:
    old = await partition.tier(0)
    await partition.tier(1)
    before = partition.manifest
    partition.manifest = before.without_below(20).next_version(1)
    await partition.manifests.put(partition.manifest)
    found = await partition.orphans()
    assert found == [
        f"manifests/{old.manifest_version.name}",
        f"manifests/{before.manifest_version.name}",
        f"segments/{old.segments[0].name}",
    ]
    assert await partition.manifests.newest(partition.prefix) == partition.manifest


async def test_a_manifest_that_its_leader_may_still_propose_is_kept(partition: Partition) -> None:
    await partition.tier(0)
    proposed = partition.manifest.with_segment(await partition.upload(1)).next_version(1)
    await partition.manifests.put(proposed)  # and the controller does not answer for long
    assert await partition.orphans(epoch=1) == []
    assert await partition.manifests.missing(proposed) == []


async def test_what_a_deposed_leader_proposed_is_removed_with_its_segments(
    partition: Partition,
) -> None:
    await partition.tier(0)
    proposed = partition.manifest.with_segment(await partition.upload(1)).next_version(1)
    await partition.manifests.put(proposed)
    assert await partition.orphans(epoch=2) == [
        f"manifests/{proposed.manifest_version.name}",
        f"segments/{proposed.segments[1].name}",
    ]
    assert await partition.manifests.newest(partition.prefix) == partition.manifest


async def test_a_restore_passes_over_a_manifest_without_its_segments(partition: Partition) -> None:
    await partition.tier(0)
    whole = partition.manifest
    await partition.tier(1)
    await partition.manifests.remove_segments(partition.prefix, partition.manifest.segments[1:])
    assert await partition.manifests.newest(partition.prefix) == whole
    await partition.manifests.remove_segments(partition.prefix, whole.segments)
    with pytest.raises(ObjectNotFound, match="lacks a segment"):
        await partition.manifests.newest(partition.prefix)


async def test_a_stale_list_loses_nothing(partition: Partition, faulty: FaultyStore) -> None:
    await partition.tier(0)
    await partition.orphans(later_ms=0)  # the lists that are given again
    await partition.tier(1)
    lost = await partition.upload(2)
    faulty.strike("stale list", times=100)
    assert lost.name not in "".join(await partition.orphans())
    assert await partition.manifests.missing(partition.manifest) == []
    with pytest.raises(ObjectNotFound):  # the only one that is listed was removed
        await partition.manifests.newest(partition.prefix)
    faulty.faults.clear()
    assert await partition.manifests.newest(partition.prefix) == partition.manifest
    assert await partition.orphans() == [f"segments/{lost.name}"]


async def test_a_damaged_manifest_is_told(partition: Partition, faulty: FaultyStore) -> None:
    await partition.tier(0)
    faulty.strike("changed body", times=100, method="GET", within="/manifests/")
    with pytest.raises(CorruptFile, match=r"the checksum does not fit|not a manifest"):
        await partition.manifests.get(partition.prefix, partition.manifest.manifest_version)


async def test_a_stream_is_described_and_removed(partition: Partition) -> None:
    stream = partition.prefix.stream
    for number in range(2):
        await partition.tier(number)
    for partitions in (1, 2):
        await partition.manifests.describe(stream, {"name": "orders", "partitions": partitions})
    assert await partition.manifests.streams() == [stream]
    description = await partition.manifests.description(stream)
    assert description.config == {"name": "orders", "partitions": 2}
    assert await partition.manifests.remove_stream(stream) == 5
    assert await partition.manifests.streams() == []
    assert await partition.store.list(stream.path) == []
    with pytest.raises(ObjectNotFound):
        await partition.manifests.description(StreamPrefix("cluster", UUID(int=1)))
