"""A sealed segment becomes an object of a store, and the same files again."""

import time
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.errors import BrokenInvariant, CorruptObject, ObjectNotFound, StorageFailed
from streamlog.tier import segment_object
from streamlog.tier.object_store import MIB, ObjectStore, StoreLimits
from streamlog.tier.segment_object import (
    Checksums,
    SealedFiles,
    download_segment,
    read_parts,
    upload_segment,
)
from tests.tiered_segments import PREFIX, change, content, cut, delete, sealed_segments

SIZES = {"small": (20, 1000), "large": (40, 500_000)}
"""Below one chunk, and above two."""


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore((tmp_path / "store").as_uri())


@pytest.fixture(params=SIZES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> SealedFiles:
    batches, value_bytes = SIZES[request.param]
    (found,) = sealed_segments(tmp_path / "s" / "0", batches=batches, value_bytes=value_bytes)
    return found


def object_path(tmp_path: Path, name: str) -> Path:
    return tmp_path / "store" / PREFIX.segment(name)


async def test_object_is_the_log_file_and_then_its_parts(
    store: ObjectStore, files: SealedFiles, tmp_path: Path
) -> None:
    tiered = await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())
    log = content(files.log_path)
    stored = content(object_path(tmp_path, tiered.name))
    assert stored.startswith(log)
    assert len(stored) == tiered.object_bytes
    assert [it.name for it in tiered.parts] == [".index", ".timeindex", "producers", "checksums"]
    index = tiered.part(".index")
    assert index is not None
    assert stored[index.position : index.end_position] == content(files.files[".index"])
    assert (tiered.base_offset, tiered.end_offset) == (files.base_offset, files.end_offset)
    assert store.statistics.uploaded_bytes == tiered.object_bytes


async def test_download_gives_the_same_files(
    store: ObjectStore, files: SealedFiles, tmp_path: Path
) -> None:
    tiered = await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())
    target = tmp_path / "restored"
    target.mkdir()
    await download_segment(store, PREFIX, tiered, str(target))
    for path in [files.log_path, *files.files.values()]:
        assert content(target / Path(path).name) == content(path)
    assert content(target / "producers") == b"producers of 0"


async def test_changed_byte_is_never_handed_out(
    store: ObjectStore, files: SealedFiles, tmp_path: Path
) -> None:
    tiered = await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())
    path = object_path(tmp_path, tiered.name)
    size_bytes = len(content(path))
    for at in (5, size_bytes // 2, tiered.size_bytes + 3, size_bytes - 1):
        change(path, at)
        with pytest.raises(CorruptObject, match="restore the object"):
            await download_segment(store, PREFIX, tiered, str(tmp_path))
        change(path, at)
    cut(path, size_bytes - 1)
    with pytest.raises(CorruptObject, match="it ends at"):
        await read_parts(store, PREFIX, tiered)
    delete(path)
    with pytest.raises(ObjectNotFound, match="no such object"):
        await read_parts(store, PREFIX, tiered)


async def test_segment_that_is_shorter_than_it_should_be_is_not_uploaded(
    store: ObjectStore, files: SealedFiles, tmp_path: Path
) -> None:
    cut(files.log_path, files.size_bytes - 1)
    with pytest.raises(StorageFailed, match="shorter than"):
        await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())
    assert await store.list(PREFIX.segments) == []


async def test_missing_index_is_a_fault_of_the_disk(store: ObjectStore, files: SealedFiles) -> None:
    delete(files.files[".index"])
    with pytest.raises(StorageFailed, match=r"\.index"):
        await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())


async def test_parts_of_one_name_are_refused(store: ObjectStore, files: SealedFiles) -> None:
    twice = SealedFiles(**{**vars(files), "states": {".index": b""}})
    with pytest.raises(BrokenInvariant):
        await upload_segment(store, PREFIX, twice, leader_epoch=3, upload_id=uuid4())


@pytest.mark.parametrize("limited", [False, True])
async def test_each_direction_keeps_below_its_bandwidth(tmp_path: Path, limited: bool) -> None:
    (files,) = sealed_segments(tmp_path / "s" / "0", batches=40, value_bytes=500_000)
    rate = 6 * MIB if limited else None
    limits = StoreLimits(upload_bytes_per_s=rate, download_bytes_per_s=rate)
    store = ObjectStore("memory:///", limits=limits)
    times = [time.monotonic()]
    tiered = await upload_segment(store, PREFIX, files, leader_epoch=3, upload_id=uuid4())
    times.append(time.monotonic())
    await download_segment(store, PREFIX, tiered, str(tmp_path))
    times.append(time.monotonic())
    # One second's worth is free.
    least_s = (files.size_bytes - 6 * MIB) / (6 * MIB)
    assert [b - a > least_s for a, b in pairwise(times)] == [limited, limited]
    store.close()


def test_checksums_are_of_blocks_and_of_the_whole() -> None:
    from crc32c import crc32c

    data = bytes(range(256)) * 20_000
    checksums = Checksums()
    size = segment_object.BLOCK_BYTES
    checksums.add(data[: 2 * size])
    checksums.add(data[2 * size :])
    assert checksums.whole == crc32c(data)
    assert len(checksums.blocks) == -(-len(data) // size)
    decoded = Checksums.decode(checksums.encode(), len(data), "here")
    assert decoded.blocks == checksums.blocks
    assert decoded.fit(memoryview(data)[size : 3 * size], 1)
    assert not decoded.fit(memoryview(data)[size + 1 : 3 * size], 1)
    assert len(checksums.encode()) == checksums.encoded_bytes(len(data))
    with pytest.raises(CorruptObject):
        Checksums.decode(checksums.encode(), len(data) + size, "here")
    with pytest.raises(CorruptObject):
        Checksums.decode(b"", 10, "here")
