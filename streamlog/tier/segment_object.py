"""One sealed segment as one object of the store, up and down.

The object begins with the bytes of the ``.log`` file as they lie: what is encrypted stays
encrypted. The files beside it follow (indexes, the key of an encrypted segment, the state of
transactions and producers), and at the end a table of checksums: a CRC-32C for each block of
BLOCK_BYTES of the ``.log`` file. So a reader gets all it needs to find a batch with one request for
the end of the object, and can check each block that it reads after that, without the rest.

Checksums are made from what is read from the local disk, and every byte that comes back is held
against them. They do not show that the file was good when it was uploaded: its batches have their
own checksums for that, which the caller checks before the upload (``Segment.recheck``).
"""

import os
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from crc32c import crc32c

from streamlog.errors import BrokenInvariant, CorruptObject, StorageFailed
from streamlog.log.layout import LOG_SUFFIX, segment_stem
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.storage.disk import storage_errors
from streamlog.tier.manifest import SegmentPart, TieredSegment
from streamlog.tier.object_layout import PartitionPrefix, segment_name
from streamlog.tier.object_store import CHUNK_BYTES, MIB, ObjectStore

CHECKSUMS_PART: Final = "checksums"
WRONG_CHECKSUM_TRIES: Final = 3
"""So often bytes with a wrong checksum are asked for: they may have been changed on the way."""

BLOCK_BYTES: Final = MIB
"""What a reader waits for before it gets its first batch. A request may ask for several blocks."""

_BLOCK_BYTES: Final = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True)
class SealedFiles:
    """A sealed segment on the local disk, as it is to be uploaded."""

    base_offset: int
    end_offset: int
    max_timestamp_ms: int
    size_bytes: int
    log_path: str
    leader_epochs: tuple[EpochStart, ...]
    """Those of its batches; the first one begins at the base offset or later."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths of the files beside it, by suffix: ``.index``, ``.timeindex``, ``.key``."""
    states: Mapping[str, bytes] = field(default_factory=dict)
    """What else is kept with it, by the name of the part, such as the state of producers."""


class Checksums:
    """The CRC-32C of each block of a ``.log`` file, and of all of it."""

    __slots__ = ("block_bytes", "blocks", "whole")

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self.block_bytes = block_bytes
        self.blocks: list[int] = []
        self.whole = 0

    def add(self, data: bytes | memoryview) -> None:
        """What comes next: whole blocks, unless it is the end of the file."""
        self.blocks.extend(self.of(data))
        self.whole = crc32c(data, self.whole)

    def of(self, data: bytes | memoryview) -> list[int]:
        """Of each block in ``data``, which begins with one."""
        view = memoryview(data)
        return [
            crc32c(view[start : start + self.block_bytes])
            for start in range(0, len(view), self.block_bytes)
        ]

    def fit(self, data: memoryview, first: int) -> bool:
        """``data`` is what was uploaded from block ``first`` on."""
        found = self.of(data)
        return found == self.blocks[first : first + len(found)]

    def encode(self) -> bytes:
        packed = struct.pack(f">{len(self.blocks)}I", *self.blocks)
        return _BLOCK_BYTES.pack(self.block_bytes) + packed

    def encoded_bytes(self, size_bytes: int) -> int:
        """Of the table for a file of ``size_bytes``."""
        return _BLOCK_BYTES.size + 4 * -(-size_bytes // self.block_bytes)

    @classmethod
    def decode(cls, data: bytes | memoryview, size_bytes: int, where: str) -> "Checksums":
        """Of a file of ``size_bytes``. Raises CorruptObject."""
        block_bytes = _BLOCK_BYTES.unpack_from(data)[0] if len(data) >= _BLOCK_BYTES.size else 0
        count = -(-size_bytes // block_bytes) if block_bytes else 0
        if not block_bytes or len(data) != _BLOCK_BYTES.size + 4 * count:
            raise CorruptObject(f"{where}: its checksums do not fit its size")
        found = cls(block_bytes)
        found.blocks.extend(struct.unpack_from(f">{count}I", data, _BLOCK_BYTES.size))
        return found


async def upload_segment(
    store: ObjectStore,
    prefix: PartitionPrefix,
    files: SealedFiles,
    *,
    leader_epoch: int,
    upload_id: UUID,
    block_bytes: int = BLOCK_BYTES,
) -> TieredSegment:
    """Put the segment; what the manifest is to say of it. ``upload_id``: a new one.
    ``block_bytes``: CHUNK_BYTES are a multiple of it.

    An object of an upload that failed is an orphan. Raises StorageFailed and its kin for the local
    files, ObjectStoreUnavailable.
    """
    name = segment_name(files.base_offset, leader_epoch, upload_id)
    path = prefix.segment(name)
    beside = await store.run(_read_beside, files)
    checksums = Checksums(block_bytes)

    def end_of_object() -> tuple[list[SegmentPart], list[bytes]]:
        contents = {**beside, CHECKSUMS_PART: checksums.encode()}
        parts, position = [], files.size_bytes
        for part_name, data in contents.items():
            parts.append(SegmentPart(part_name, position, len(data), crc32c(data)))
            position += len(data)
        return parts, list(contents.values())

    if files.size_bytes <= CHUNK_BYTES:
        chunk = await store.run(_read_chunk, files, 0, checksums)
        await store.create(path, chunk, *end_of_object()[1])
    else:
        table_bytes = checksums.encoded_bytes(files.size_bytes)
        object_bytes = files.size_bytes + sum(map(len, beside.values())) + table_bytes

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal checksums
            # An attempt after a failure begins with the first chunk.
            checksums = Checksums(block_bytes)
            for position in range(0, files.size_bytes, CHUNK_BYTES):
                yield await store.run(_read_chunk, files, position, checksums)
            yield b"".join(end_of_object()[1])

        await store.upload(path, object_bytes, chunks)
    return TieredSegment(
        base_offset=files.base_offset,
        end_offset=files.end_offset,
        max_timestamp_ms=files.max_timestamp_ms,
        size_bytes=files.size_bytes,
        crc32c=checksums.whole,
        leader_epochs=files.leader_epochs,
        name=name,
        parts=tuple(end_of_object()[0]),
    )


async def read_parts(
    store: ObjectStore, prefix: PartitionPrefix, segment: TieredSegment
) -> dict[str, bytes]:
    """The files beside the ``.log`` file, by name, with one request.

    Raises CorruptObject, ObjectNotFound, ObjectStoreUnavailable.
    """
    return await _read_parts(store, prefix, segment, segment.parts)


async def read_part(
    store: ObjectStore, prefix: PartitionPrefix, segment: TieredSegment, name: str
) -> bytes:
    """One of them alone; b"" where there is none of that name. Raises as ``read_parts``."""
    part = segment.part(name)
    return b"" if part is None else (await _read_parts(store, prefix, segment, [part]))[name]


async def _read_parts(
    store: ObjectStore,
    prefix: PartitionPrefix,
    segment: TieredSegment,
    parts: Sequence[SegmentPart],
) -> dict[str, bytes]:
    """``parts``: those that follow each other."""
    if not parts:
        return {}
    path, start, end = prefix.segment(segment.name), parts[0].position, parts[-1].end_position
    problem = ""
    for _ in range(WRONG_CHECKSUM_TRIES):
        data = await store.read_range(path, start, end - start)
        found = {
            it.name: bytes(data[it.position - start : it.end_position - start]) for it in parts
        }
        wrong = [it.name for it in parts if crc32c(found[it.name]) != it.crc32c]
        if not wrong:
            return found
        problem = f"the checksum of its part {wrong[0]} does not fit"
    raise _corrupt(store, path, problem)


async def read_blocks(
    store: ObjectStore,
    prefix: PartitionPrefix,
    segment: TieredSegment,
    checksums: Checksums,
    blocks: range,
    *,
    into: str | None = None,
) -> memoryview:
    """Those blocks of the ``.log`` file with one request; and ``into`` a file that is there.

    Raises as ``read_parts``, and StorageFailed and its kin.
    """
    path, position = prefix.segment(segment.name), blocks.start * checksums.block_bytes
    end_position = min(blocks.stop * checksums.block_bytes, segment.size_bytes)

    def write_if_right(data: memoryview) -> bool:
        is_right = checksums.fit(data, blocks.start)
        if is_right and into is not None:
            _write_at(into, data, position)
        return is_right

    for _ in range(WRONG_CHECKSUM_TRIES):
        data = await store.read_range(path, position, end_position - position)
        if await store.run(write_if_right, data):
            return data
    raise _corrupt(store, path, f"the checksum of its bytes from {position} on does not fit")


async def download_segment(
    store: ObjectStore, prefix: PartitionPrefix, segment: TieredSegment, directory: str
) -> None:
    """All its files, into a folder that is there, synced: for a restore.

    Files of the segment get their names in a log's folder, other parts are called as they are.
    Raises as ``read_parts``, and StorageFailed and its kin.
    """
    parts = await read_parts(store, prefix, segment)
    checksums = checksums_of(parts, segment)
    stem = f"{directory}/{segment_stem(segment.base_offset)}"
    for name, data in parts.items():
        if name != CHECKSUMS_PART:
            path = stem + name if name.startswith(".") else f"{directory}/{name}"
            await store.run(_write_file, path, data)
    log_path = stem + LOG_SUFFIX
    await store.run(_write_file, log_path, b"")
    step = max(CHUNK_BYTES // checksums.block_bytes, 1)
    for first in range(0, len(checksums.blocks), step):
        blocks = range(first, min(first + step, len(checksums.blocks)))
        await read_blocks(store, prefix, segment, checksums, blocks, into=log_path)
    await store.run(_sync_file, log_path)


def checksums_of(parts: Mapping[str, bytes], segment: TieredSegment) -> Checksums:
    """Out of what ``read_parts`` gave. Raises CorruptObject."""
    return Checksums.decode(parts.get(CHECKSUMS_PART, b""), segment.size_bytes, segment.name)


def _write_at(path: str, data: memoryview, position: int) -> None:
    """Blocking. Raises StorageFailed and its kin."""
    with storage_errors(path):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(fd, data[written:], position + written)
        finally:
            os.close(fd)


def _corrupt(store: ObjectStore, path: str, problem: str) -> CorruptObject:
    return CorruptObject(f"{store.url.rstrip('/')}/{path}: {problem}; {CorruptObject.remedy}")


def _read_beside(files: SealedFiles) -> dict[str, bytes]:
    """Raises StorageFailed and its kin."""
    found = {}
    for name, path in files.files.items():
        with storage_errors(path):
            found[name] = Path(path).read_bytes()
    if CHECKSUMS_PART in files.states or files.files.keys() & files.states.keys():
        raise BrokenInvariant(f"parts of {files.log_path} have the same name")
    return {**found, **files.states}


def _read_chunk(files: SealedFiles, position: int, checksums: Checksums) -> bytes:
    """Raises StorageFailed and its kin."""
    size_bytes = min(CHUNK_BYTES, files.size_bytes - position)
    with storage_errors(files.log_path):
        fd = os.open(files.log_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, size_bytes, position)
            while len(data) < size_bytes:
                more = os.pread(fd, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        finally:
            os.close(fd)
    if len(data) != size_bytes:
        raise StorageFailed(f"{files.log_path}: shorter than {files.size_bytes} bytes")
    checksums.add(data)
    return data


def _write_file(path: str, data: bytes) -> None:
    with storage_errors(path), Path(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_file(path: str) -> None:
    with storage_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
