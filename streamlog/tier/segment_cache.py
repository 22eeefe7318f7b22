"""Segments of the object store on the local disk, for reads below the local log start offset.

A segment in the cache is a folder with the files that a segment has in a log's folder, so that it
is read as any other, with ``sendfile``. Its ``.log`` file has its full size from the beginning and
is filled block by block, those first for which a reader waits: the first batch is there after two
requests, one for the files beside it and one for its blocks. While it is read, the rest follows.

- *Single flight.* However many readers want a block, it is asked for once.
- *Bounded.* A segment's whole size is reserved before anything is asked for. The segment that was
  not read for longest makes room, unless it is pinned. Where all are pinned, Overloaded is raised.
- *Checked.* Each block is held against its checksum before it counts as there. After a restart a
  segment is held against the manifest's checksum at its first use.
- *Crash-safe.* A folder is made under a temporary name. A segment that was not filled completely
  when the process ended is removed at the next start. Nothing is synced: what a power cut changes
  does not pass the check, and is asked for again.

A reader pins a segment while it looks for its batches. The file slice that it makes keeps the file
open by itself; a segment may then leave the cache under it.
"""

import asyncio
import contextlib
import os
import shutil
import struct
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from crc32c import crc32c

from streamlog.errors import (
    BrokenInvariant,
    ObjectStoreUnavailable,
    Overloaded,
    StreamlogError,
)
from streamlog.log.layout import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from streamlog.log.segment.index import FIRST, OFFSET_ENTRY, SECOND, TIME_ENTRY
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import HEADER_BYTES
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import PartitionPrefix
from streamlog.tier.object_store import CHUNK_BYTES, ObjectStore
from streamlog.tier.segment_object import Checksums, checksums_of, read_blocks, read_parts

REQUESTS_MAX: Final = 6
"""Of one segment at once, beside those for which a reader waits."""
READ_AHEAD_S: Final = 2.0
"""So long after it was last read a segment is filled on."""

INDEXES_MAX: Final = 32
"""Indexes in memory, of segments that are being filled: 0.5 MiB for a segment of 256 MiB."""

_WHOLE_NAME: Final = "whole"
"""A file that says that the segment is filled."""
_READ_BYTES: Final = 1024 * 1024


class CacheStatistics:
    """Counted since the start."""

    def __init__(self) -> None:
        self.hits = 0
        """Reads that found their bytes here."""
        self.misses = 0
        """Reads that waited for the store."""
        self.evictions = 0
        self.refusals = 0
        """Reads of a segment for which all others, pinned, left no room."""
        self.used_bytes = 0
        self.segments = 0


class CachedSegment:
    """A pinned segment. Its files beside the ``.log`` file are there."""

    def __init__(
        self,
        cache: "SegmentCache",
        prefix: PartitionPrefix,
        segment: TieredSegment,
        directory: str,
    ) -> None:
        self.segment = segment
        self.directory = directory
        self.stem_path = f"{directory}/{segment_stem(segment.base_offset)}"
        self.log_path = self.stem_path + LOG_SUFFIX
        self.pins = 0
        self.is_whole = False
        self.is_ahead = False
        """It is to be filled as soon as it is loaded, though it was not read yet."""
        self.following: TieredSegment | None = None
        """What a reader wants next; it is asked for when all of this one is."""
        self._cache = cache
        self._prefix = prefix
        self._checksums = Checksums()
        self._there: set[int] = set()
        """Blocks that are filled."""
        self._asked: set[int] = set()
        """Blocks of requests that are under way."""
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """Readers, by the block."""
        self._requests: set[asyncio.Task[None]] = set()
        self._urgent = 0
        """Requests for which a reader waits since before they began."""
        self._ahead = 0
        """The block at which the filling goes on where no reader waits."""
        self._ahead_blocks = 1
        """How many the next request for them has; it doubles, so that the first ones come soon."""
        self._read_s = 0.0
        """When it was last read."""
        self._has_failed = False
        """A request failed since it was last read: none is made for which no reader waits."""
        self._is_stopped = False

    def opened(self, pool: FilePool, interval_bytes: int, *, is_hidden: bool = False) -> Segment:
        """As a log reads it; its blocks count as verified, for they were checked.

        The caller binds the folder to the log's scope where batches are encrypted
        (``FilePool.bind_keys``), and prepares what it reads.
        """
        tiered = self.segment
        segment = Segment(
            pool,
            self.stem_path,
            base_offset=tiered.base_offset,
            next_offset=tiered.end_offset,
            size_bytes=tiered.size_bytes,
            interval_bytes=interval_bytes,
            has_key=tiered.part(KEY_SUFFIX) is not None,
            is_hidden=is_hidden,
        )
        segment.unverified_bytes = 0
        segment.max_timestamp_ms = tiered.max_timestamp_ms
        return segment

    async def prepare(self, offset: int, max_bytes: int) -> None:
        """Have there what ``Segment.slice(offset, max_bytes, ...)`` reads.

        Raises CorruptObject, ObjectNotFound, ObjectStoreUnavailable, StorageFailed and its kin.
        """
        if self.is_whole:
            self._cache.statistics.hits += 1
            self._read_s = time.monotonic()
            self._ask_for_more()
            return
        entries = await self._index(INDEX_SUFFIX, OFFSET_ENTRY)
        await self._fill(*self._extent(entries, offset, offset, max_bytes))

    async def prepare_time(self, timestamp_ms: int, max_bytes: int = 0) -> None:
        """Have there what a search for the first record of that time or later reads, and
        ``max_bytes`` more. Where the times of records go back the search may read further, and
        finds a batch damaged that is not there: then ``prepare_all`` is needed. Raises as above.
        """
        if self.is_whole:
            return
        base_offset, entries = (
            self.segment.base_offset,
            await self._index(INDEX_SUFFIX, OFFSET_ENTRY),
        )
        times = await self._index(TIME_INDEX_SUFFIX, TIME_ENTRY)
        at = times.count_up_to(FIRST, timestamp_ms)
        offset = base_offset + (times.at(at - 1)[SECOND] if at else 0)
        last_offset = self.segment.end_offset - 1
        if at < len(times):
            last_offset = base_offset + times.at(at)[SECOND]
        await self._fill(*self._extent(entries, offset, last_offset, max_bytes))

    async def prepare_all(self) -> None:
        """Raises as above."""
        if not self.is_whole:
            await self._fill(0, self.segment.size_bytes)

    def part(self, name: str) -> bytes:
        """A part that is no file of a segment, such as the state of producers; b"": there is none.

        Blocking. Raises StorageFailed and its kin.
        """
        if self.segment.part(name) is None:
            return b""
        path = self.path_of(name)
        with storage_errors(path):
            return Path(path).read_bytes()

    @property
    def paths(self) -> tuple[str, ...]:
        """All its files."""
        return (self.log_path, *(self.path_of(it.name) for it in self.segment.parts))

    def path_of(self, name: str) -> str:
        """Of the file with a part."""
        return self.stem_path + name if name.startswith(".") else f"{self.directory}/{name}"

    async def load(self) -> None:
        """The files beside it, and room for the blocks. Raises as ``prepare``."""
        store = self._cache.store
        if self.is_whole:
            if await store.run(self._is_what_was_stored):
                return
            self.is_whole = False
        parts = await read_parts(store, self._prefix, self.segment)
        self._checksums = checksums_of(parts, self.segment)
        await store.run(self._make, parts)

    async def stop(self) -> None:
        """Nothing is written from now on."""
        self._is_stopped = True
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        self._resolve(list(self._waiting), ObjectStoreUnavailable("the node stops"))

    async def _fill(self, start: int, end: int) -> None:
        """Return when the bytes ``[start, end)`` are there."""
        size = self._checksums.block_bytes
        wanted = range(start // size, -(-min(end, self.segment.size_bytes) // size))
        missing = [it for it in wanted if it not in self._there]
        self._read_s, self._has_failed, self._ahead = time.monotonic(), False, wanted.stop
        loop = asyncio.get_running_loop()
        futures = [self._waiting.setdefault(it, loop.create_future()) for it in missing]
        self._ask_for_more()
        if not futures:
            self._cache.statistics.hits += 1
            return
        self._cache.statistics.misses += 1
        await asyncio.wait(futures)
        error = next((it.exception() for it in futures if it.exception() is not None), None)
        if error is not None:
            raise error

    def _ask_for_more(self) -> None:
        """Make the requests that are due: at once where a reader waits, else a few at a time."""
        while not self._is_stopped and (blocks := self._urgent_blocks()):
            self._ahead_blocks = 1
            self._urgent += 1
            self._begin(blocks, is_urgent=True)
        while not self._urgent and len(self._requests) < REQUESTS_MAX:
            blocks = self._blocks_ahead()
            if not blocks:
                break
            self._begin(blocks, is_urgent=False)
        is_asked_for = len(self._there | self._asked) == len(self._checksums.blocks)
        if self.following is not None and is_asked_for and not self._is_idle():
            following, self.following = self.following, None
            self._cache.fetch_ahead(self, self._prefix, following)

    def fill_ahead(self) -> None:
        """As if it had been read below its first batch."""
        self._read_s = time.monotonic()
        self._ask_for_more()

    def _begin(self, blocks: range, *, is_urgent: bool) -> None:
        self._asked.update(blocks)
        request = self._cache.tasks.create_task(self._ask(blocks, is_urgent=is_urgent))
        self._requests.add(request)
        request.add_done_callback(self._ended)

    def _ended(self, request: "asyncio.Task[None]") -> None:
        self._requests.discard(request)
        if not request.cancelled() and request.exception() is None:
            self._ask_for_more()

    @property
    def _per_request(self) -> int:
        return max(CHUNK_BYTES // self._checksums.block_bytes, 1)

    def _urgent_blocks(self) -> range:
        """For which a reader waits, and no request is under way."""
        waiting = self._waiting.keys() - self._asked
        if not waiting:
            return range(0)
        first = stop = min(waiting)
        while stop in waiting and stop < first + self._per_request:
            stop += 1
        return range(first, stop)

    def _blocks_ahead(self) -> range:
        """What follows the bytes that were read last, and then what is before them."""
        if self._is_stopped or self._has_failed or self._is_idle():
            return range(0)
        total, known = len(self._checksums.blocks), self._there | self._asked
        for first in (*range(self._ahead, total), *range(self._ahead)):
            if first in known:
                continue
            stop = first + 1
            while stop < min(first + self._ahead_blocks, total) and stop not in known:
                stop += 1
            self._ahead_blocks = min(2 * self._ahead_blocks, self._per_request)
            return range(first, stop)
        return range(0)

    def _is_idle(self) -> bool:
        return time.monotonic() - self._read_s > self._cache.read_ahead_s

    async def _ask(self, blocks: range, *, is_urgent: bool) -> None:
        store = self._cache.store
        try:
            await read_blocks(
                store, self._prefix, self.segment, self._checksums, blocks, into=self.log_path
            )
            self._there.update(blocks)
            if len(self._there) == len(self._checksums.blocks):
                await store.run(_mark_whole, self.directory)
                self.is_whole = True
            self._resolve(blocks, None)
        except Exception as error:
            self._has_failed = True
            self._resolve(blocks, error)
            if not isinstance(error, StreamlogError):
                raise
        finally:
            self._urgent -= is_urgent
            self._asked.difference_update(blocks)

    def _resolve(self, blocks: Iterable[int], error: Exception | None) -> None:
        for it in blocks:
            future = self._waiting.pop(it, None)
            if future is None:
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # its reader may have been cancelled, which is no fault

    def _make(self, parts: dict[str, bytes]) -> None:
        """Blocking. Raises StorageFailed and its kin."""
        directory, temporary = self.directory, self.directory + TEMPORARY_SUFFIX
        with storage_errors(directory):
            shutil.rmtree(directory, ignore_errors=True)  # not what was stored
            Path(temporary).mkdir(parents=True)
            for name, data in parts.items():
                Path(temporary, Path(self.path_of(name)).name).write_bytes(data)
            with Path(temporary, Path(self.log_path).name).open("wb") as file:
                _allocate(file.fileno(), self.segment.size_bytes)
            Path(temporary).rename(directory)

    def _is_what_was_stored(self) -> bool:
        """All files, by the manifest's checksums. Blocking."""
        try:
            for it in self.segment.parts:
                if crc32c(Path(self.path_of(it.name)).read_bytes()) != it.crc32c:
                    return False
            crc, size_bytes = 0, 0
            with Path(self.log_path).open("rb", buffering=0) as file:
                while data := file.read(_READ_BYTES):
                    crc, size_bytes = crc32c(data, crc), size_bytes + len(data)
        except OSError:
            return False
        return (crc, size_bytes) == (self.segment.crc32c, self.segment.size_bytes)

    async def _index(self, suffix: str, entry: struct.Struct) -> "_Entries":
        """Raises StorageFailed and its kin."""
        return await self._cache.index(self.stem_path + suffix, entry)

    def _extent(
        self, entries: "_Entries", offset: int, last_offset: int, max_bytes: int
    ) -> tuple[int, int]:
        """The bytes in which a reader finds the batches with ``offset`` and ``last_offset``, and
        ``max_bytes`` from where the latter begins. The batch behind a floor entry of the index
        begins at the next entry at the latest, and ends before the one after that.
        """
        first = entries.count_up_to(FIRST, offset - self.segment.base_offset)
        last = entries.count_up_to(FIRST, last_offset - self.segment.base_offset)
        start = entries.at(first - 1)[SECOND] if first else 0
        end = self.segment.size_bytes
        if last + 1 < len(entries):
            begins = entries.at(last)[SECOND]
            end = max(begins + max_bytes, entries.at(last + 1)[SECOND]) + HEADER_BYTES
        return start, min(end, self.segment.size_bytes)


class SegmentCache:
    """Of one node, in a folder of its own. Of one event loop."""

    def __init__(
        self,
        store: ObjectStore,
        directory: str,
        *,
        bytes_max: int,
        forget: Callable[[str], None] | None = None,
        read_ahead_s: float = READ_AHEAD_S,
    ) -> None:
        """``forget``: called with the path of each file that goes, such as ``FilePool.forget``."""
        self.store = store
        self.directory = directory
        self.bytes_max = bytes_max
        self.read_ahead_s = read_ahead_s
        self.statistics = CacheStatistics()
        self._forget = forget
        self._entries: OrderedDict[str, CachedSegment] = OrderedDict()
        """By the name of the object; what was not read for longest comes first."""
        self._found: OrderedDict[str, FoundSegment] = OrderedDict()
        """What an earlier process has left and was not read since, by the name of the object."""
        self._indexes: OrderedDict[str, _Entries] = OrderedDict()
        """By path; what was not used for longest comes first."""
        self._used_bytes = 0
        self._group: asyncio.TaskGroup | None = None
        self._loads: dict[CachedSegment, _Load] = {}
        self._removals: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> asyncio.TaskGroup:
        if self._group is None:
            raise BrokenInvariant("the cache is not open")
        return self._group

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Take over what an earlier process has left. Tasks run in ``group`` until ``close``.

        Raises StorageFailed and its kin.
        """
        self._group = group
        for it in await self.store.run(_scan, self.directory):
            self._found[it.name] = it
            self._count(it.size_bytes)
        self._make_room(0)

    async def close(self) -> None:
        """Stop filling; nothing is read from now on."""
        loads = [it.task for it in self._loads.values()]
        for load in loads:
            load.cancel()
        for it in self._entries.values():
            await it.stop()
        if ending := [*loads, *self._removals]:
            await asyncio.wait(ending)
        self._group = None

    @contextlib.asynccontextmanager
    async def reading(
        self,
        prefix: PartitionPrefix,
        segment: TieredSegment,
        following: TieredSegment | None = None,
    ) -> AsyncIterator[CachedSegment]:
        """The segment, pinned in there. ``following``: the next one, for a reader that goes on.

        Raises as ``CachedSegment.prepare``, and Overloaded.
        """
        entry = await self.pin(prefix, segment, following)
        try:
            yield entry
        finally:
            self.unpin(entry)

    async def pin(
        self,
        prefix: PartitionPrefix,
        segment: TieredSegment,
        following: TieredSegment | None = None,
    ) -> CachedSegment:
        """As ``reading``, until ``unpin``."""
        try:
            entry = self._entries.get(segment.name) or self._add(prefix, segment)
        except Overloaded:
            self.statistics.refusals += 1
            raise
        self._entries.move_to_end(segment.name)
        entry.pins += 1
        if following is not None and not self._has(following):
            entry.following = following
        load = self._loads.get(entry)
        try:
            if load is not None:
                await asyncio.wait([load.done])
                load.done.result()
        except BaseException:
            self.unpin(entry)
            raise
        return entry

    def unpin(self, entry: CachedSegment) -> None:
        entry.pins -= 1
        if not entry.pins and self._entries.get(entry.segment.name) is not entry:
            self._remove(entry.directory, entry)

    def is_whole(self, segment: TieredSegment) -> bool:
        """All of it is here, and may be read without waiting for the store."""
        entry = self._entries.get(segment.name)
        return entry is not None and entry.is_whole and entry not in self._loads

    def drop(self, segments: Iterable[TieredSegment]) -> None:
        """Segments that the store has no more. A reader that has one pinned keeps its files."""
        for it in segments:
            self._evict(it.name)

    def fetch_ahead(
        self, entry: CachedSegment, prefix: PartitionPrefix, following: TieredSegment
    ) -> None:
        """The segment after ``entry``, which must not make room for it."""
        if self._group is None or self._has(following):
            return
        entry.pins += 1
        try:
            self._add(prefix, following).is_ahead = True
        except Overloaded:
            pass  # its reader will ask for it
        finally:
            entry.pins -= 1

    def _has(self, segment: TieredSegment) -> bool:
        return segment.name in self._entries or segment.name in self._found

    async def index(self, path: str, entry: struct.Struct) -> "_Entries":
        """An index file of a segment that is being filled. Raises StorageFailed and its kin."""
        entries = self._indexes.get(path)
        if entries is None:
            entries = _Entries(await self.store.run(_read, path), entry)
            self._indexes[path] = entries
            while len(self._indexes) > INDEXES_MAX:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end(path)
        return entries

    def _add(self, prefix: PartitionPrefix, segment: TieredSegment) -> CachedSegment:
        """Raises Overloaded."""
        found = self._found.pop(segment.name, None)
        if found is not None:
            self._count(-found.size_bytes)
            directory = found.directory
        else:
            partition = f"{prefix.stream.stream_id.hex}-{prefix.number}"
            # Each has a folder of its own, since an earlier one may still be being removed.
            directory = f"{self.directory}/{partition}/{segment.name}.{uuid4().hex[:8]}"
        entry = CachedSegment(self, prefix, segment, directory)
        entry.is_whole = found is not None
        try:
            self._make_room(segment.object_bytes)
        except Overloaded:
            if found is not None:
                self._remove(directory, None)
            raise
        self._entries[segment.name] = entry
        self._count(segment.object_bytes)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loads[entry] = _Load(self.tasks.create_task(self._load(entry, done)), done)
        return entry

    async def _load(self, entry: CachedSegment, done: "asyncio.Future[None]") -> None:
        try:
            await entry.load()
            done.set_result(None)
            if entry.is_ahead:
                entry.fill_ahead()
        except StreamlogError as error:
            self._fail_load(entry, done, error)
        except BaseException:
            self._fail_load(entry, done, ObjectStoreUnavailable("the node stops"))
            raise
        finally:
            del self._loads[entry]

    def _fail_load(
        self, entry: CachedSegment, done: "asyncio.Future[None]", error: StreamlogError
    ) -> None:
        if self._entries.get(entry.segment.name) is entry:
            self._evict(entry.segment.name)
        done.set_exception(error)
        done.exception()  # its readers may have been cancelled, which is no fault

    def _count(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes
        self.statistics.used_bytes = self._used_bytes
        self.statistics.segments = len(self._entries) + len(self._found)

    def _make_room(self, size_bytes: int) -> None:
        """Raises Overloaded where what is pinned leaves no room, and takes nothing out then."""
        lacking = self._used_bytes + size_bytes - self.bytes_max
        if lacking <= 0:
            return
        free = [(name, it.size_bytes) for name, it in self._found.items()]
        free += [
            (name, it.segment.object_bytes) for name, it in self._entries.items() if not it.pins
        ]
        if sum(freed for _, freed in free) < lacking:
            raise Overloaded(
                f"the cache of tiered segments has no room for {size_bytes} bytes: it has"
                f" {self.bytes_max}, and the rest is being read; raise tier.cache_bytes_max"
            )
        for name, freed in free:
            if lacking <= 0:
                break
            lacking -= freed
            self.statistics.evictions += 1
            self._evict(name)

    def _evict(self, name: str) -> None:
        """It is not found from now on; its files go when it is not pinned any more."""
        found = self._found.pop(name, None)
        if found is not None:
            self._count(-found.size_bytes)
            self._remove(found.directory, None)
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._count(-entry.segment.object_bytes)
            if not entry.pins:
                self._remove(entry.directory, entry)

    def _remove(self, directory: str, entry: CachedSegment | None) -> None:
        if self._group is None:  # closed; what is of no use goes at the next start
            return
        task = self.tasks.create_task(self._remove_files(directory, entry))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove_files(self, directory: str, entry: CachedSegment | None) -> None:
        if entry is not None:
            if load := self._loads.get(entry):
                load.task.cancel()
                await asyncio.wait([load.task])
            await entry.stop()
            if self._forget is not None:
                for it in entry.paths:
                    self._forget(it)
        await self.store.run(_remove_folder, directory)


class _Load(NamedTuple):
    """Of the files beside a segment."""

    task: asyncio.Task[None]
    done: asyncio.Future[None]


class FoundSegment(NamedTuple):
    """A whole segment that an earlier process has left."""

    name: str
    directory: str
    size_bytes: int
    filled_s: float


class _Entries:
    """What is in an index file."""

    def __init__(self, data: bytes, entry: struct.Struct) -> None:
        self._data = data
        self._entry = entry

    def __len__(self) -> int:
        return len(self._data) // self._entry.size

    def at(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self._data, number * self._entry.size)
        return first, second

    def count_up_to(self, field: int, bound: int) -> int:
        """How many entries have a ``field`` of at most ``bound``."""
        return bisect_right(range(len(self)), bound, key=lambda it: self.at(it)[field])


def _mark_whole(directory: str) -> None:
    """Where that fails, the segment is not kept over a restart. Blocking."""
    with contextlib.suppress(OSError):
        Path(directory, _WHOLE_NAME).touch()


def _read(path: str) -> bytes:
    with storage_errors(path):
        return Path(path).read_bytes()


def _allocate(fd: int, size_bytes: int) -> None:
    """Room for a file; to fill it later is faster, and does not fail for want of room."""
    if hasattr(os, "posix_fallocate"):  # macOS has none
        os.posix_fallocate(fd, 0, size_bytes)
    else:
        os.ftruncate(fd, size_bytes)


def _scan(directory: str) -> list[FoundSegment]:
    """Whole segments, what was filled first coming first; all else is removed. Blocking.

    Raises StorageFailed and its kin.
    """
    found: dict[str, FoundSegment] = {}
    with storage_errors(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
        for partition in Path(directory).iterdir():
            for folder in partition.iterdir():
                name = folder.name.partition(".")[0]
                whole = folder / _WHOLE_NAME
                if folder.suffix == TEMPORARY_SUFFIX or not whole.exists() or name in found:
                    _remove_folder(str(folder))
                    continue
                size_bytes = sum(it.stat().st_size for it in folder.iterdir())
                filled_s = whole.stat().st_mtime
                found[name] = FoundSegment(name, str(folder), size_bytes, filled_s)
            with contextlib.suppress(OSError):  # there is something in it
                partition.rmdir()
    return sorted(found.values(), key=lambda it: it.filled_s)


def _remove_folder(directory: str) -> None:
    """Blocking. What cannot be removed goes at the next start."""
    shutil.rmtree(directory + TEMPORARY_SUFFIX, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
