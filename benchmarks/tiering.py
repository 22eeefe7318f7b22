"""What tiered storage costs and how fast it is read back: ``python -m benchmarks.tiering``.

Segments of 256 MiB go up as one object each, to a local folder and to an S3 on the same machine
(S3Proxy, which Maven brings), and come back through the cache. Processor time is this process's
alone: reading, checksums, signatures, and putting. The S3 server takes a core for itself.

- *Up*: as many segments at once as a node uploads. MiB for a second of processor.
- *The store's own rate*: the same bytes by obstore alone, in one request and in requests of 8 MiB,
  four at a time, each dropped as soon as it is here; the better of the two.
- *Into a file*: the same, streamed in one request into a new file, with no check.
- *Cold read*: a reader that takes a MiB at a time from the first offset of each segment on, as fast
  as it can, through the cache.
- *A line*: the same through a proxy that gives all answers together LINE_BYTES_PER_S, as a network
  does, and makes every request take ROUND_TRIP_S. Here processors are no limit.
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import obstore

from benchmarks.removing import fill
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.tier.object_store import CHUNK_BYTES, MIB, ObjectStore
from streamlog.tier.segment_cache import REQUESTS_MAX, SegmentCache
from streamlog.tier.segment_object import SealedFiles, upload_segment
from tests.faulty_store import FaultyStore
from tests.peers.sources import cache as archive_cache
from tests.segment_caches import opened
from tools.maven import MavenError
from tools.s3_server import BUCKET, S3Server, jars, set_credentials

SEGMENT_BYTES: Final = 256 * MIB
SEGMENTS: Final = 3
ROUNDS: Final = 3
ROUND_TRIP_S: Final = 0.05
LINE_BYTES_PER_S: Final = 48 * MIB
READ_BYTES: Final = MIB
INTERVAL_BYTES: Final = 4096
PREFIX: Final = PartitionPrefix(StreamPrefix("cluster", UUID(int=1)), 0)


class Rate(NamedTuple):
    """Of one measurement."""

    mib_per_s: float
    mib_per_cpu_s: float


@contextmanager
def measuring(size_bytes: int, found: list[Rate]) -> Iterator[None]:
    before, began_s = processor_s(), time.perf_counter()
    yield
    wall_s, used_s = time.perf_counter() - began_s, processor_s() - before
    found.append(Rate(size_bytes / MIB / wall_s, size_bytes / MIB / used_s))


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sealed(folder: Path, segments: int) -> list[SealedFiles]:
    """A log of so many sealed segments."""
    disk = OsDisk()
    pool = FilePool(disk, 64)
    settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INTERVAL_BYTES)
    log = PartitionLog.open(folder, settings, disk=disk, files=pool)
    fill(log, segments * SEGMENT_BYTES)
    found = [
        SealedFiles(
            base_offset=it.base_offset,
            end_offset=it.next_offset,
            max_timestamp_ms=1_000,
            size_bytes=it.size_bytes,
            log_path=it.path,
            leader_epochs=tuple(log.epochs.between(it.base_offset, it.next_offset)),
            files={".index": it.index_path, ".timeindex": it.time_index_path},
        )
        for it in log.segments.sealed()[:segments]
    ]
    log.close()
    pool.close()
    return found


async def up(store: ObjectStore, files: list[SealedFiles]) -> tuple[Rate, list[TieredSegment]]:
    found: list[Rate] = []
    with measuring(sum(it.size_bytes for it in files), found):
        tiered = await asyncio.gather(
            *(upload_segment(store, PREFIX, it, leader_epoch=0, upload_id=uuid4()) for it in files)
        )
    return found[0], tiered


async def own_rate(store: ObjectStore, tiered: list[TieredSegment]) -> Rate:
    """Of the store, by obstore alone."""
    found: list[Rate] = []
    backend = store._backend
    size_bytes = sum(it.size_bytes for it in tiered)
    with measuring(size_bytes, found):
        for it in tiered:
            answer = await obstore.get_async(backend, PREFIX.segment(it.name))
            async for _ in answer.stream(min_chunk_size=MIB):
                pass
    with measuring(size_bytes, found):
        gate = asyncio.Semaphore(REQUESTS_MAX)

        async def read(path: str, start: int, end: int) -> None:
            async with gate:
                await obstore.get_range_async(backend, path, start=start, end=end)

        await asyncio.gather(
            *(
                read(PREFIX.segment(it.name), start, min(start + CHUNK_BYTES, it.size_bytes))
                for it in tiered
                for start in range(0, it.size_bytes, CHUNK_BYTES)
            )
        )
    return max(found)


async def into_file(store: ObjectStore, tiered: list[TieredSegment], folder: Path) -> Rate:
    """By obstore alone, as it comes."""
    found: list[Rate] = []
    await asyncio.to_thread(folder.mkdir)
    with measuring(sum(it.size_bytes for it in tiered), found):
        for it in tiered:
            fd = os.open(folder / it.name, os.O_CREAT | os.O_WRONLY)
            answer = await obstore.get_async(store._backend, PREFIX.segment(it.name))
            async for chunk in answer.stream(min_chunk_size=MIB):
                await store.run(os.write, fd, chunk)
            os.close(fd)
    return found[0]


async def cold(store: ObjectStore, tiered: list[TieredSegment], folder: Path) -> Rate:
    """Through the cache, from the first offset to the last."""
    found: list[Rate] = []
    pool = FilePool(OsDisk(), 64)
    segments = SegmentCache(store, str(folder), bytes_max=2**33, forget=pool.forget)
    size_bytes = sum(it.size_bytes for it in tiered)
    with measuring(size_bytes, found):
        async with opened(segments):
            for it, following in zip(tiered, [*tiered[1:], None], strict=True):
                async with segments.reading(PREFIX, it, following) as cached:
                    segment = cached.opened(pool, INTERVAL_BYTES)
                    offset = it.base_offset
                    while offset < it.end_offset:
                        await cached.prepare(offset, READ_BYTES)
                        with segment.slice(offset, READ_BYTES, it.end_offset) as part:
                            offset = part.end_offset
    pool.close()
    return found[0]


async def first_byte_s(store: ObjectStore, tiered: list[TieredSegment], folder: Path) -> float:
    """The median of the cold reads in the middle of each segment."""
    pool = FilePool(OsDisk(), 64)
    segments = SegmentCache(store, str(folder), bytes_max=2**33)
    times = []
    async with opened(segments):
        for it in tiered:
            began_s = time.perf_counter()
            async with segments.reading(PREFIX, it) as cached:
                offset = (it.base_offset + it.end_offset) // 2
                await cached.prepare(offset, READ_BYTES)
                segment = cached.opened(pool, INTERVAL_BYTES)
                with segment.slice(offset, READ_BYTES, it.end_offset) as one:
                    os.pread(one.fileno(), 1, one.position)
                times.append(time.perf_counter() - began_s)
    pool.close()
    return median(times)


def share(rates: list[Rate], others: list[Rate]) -> float:
    """The median of the rounds."""
    return median(a.mib_per_s / b.mib_per_s for a, b in zip(rates, others, strict=True))


async def measured(
    name: str, new_store: Callable[[], ObjectStore], files: list[SealedFiles], folder: Path
) -> list[TieredSegment]:
    ups, owns, written, colds = [], [], [], []
    tiered: list[TieredSegment] = []
    for number in range(ROUNDS):
        store = new_store()
        rate, tiered = await up(store, files)
        ups.append(rate)
        owns.append(await own_rate(store, tiered))
        written.append(await into_file(store, tiered, folder / f"file-{name}-{number}"))
        colds.append(await cold(store, tiered, folder / f"cache-{name}-{number}"))
        if number < ROUNDS - 1:
            await store.delete([PREFIX.segment(it.name) for it in tiered])
        store.close()
    labels = ("up", "the store's own rate", "the same into a file", "cold read")
    for label, rates in zip(labels, (ups, owns, written, colds), strict=True):
        middle = median(it.mib_per_s for it in rates)
        of_cpu = median(it.mib_per_cpu_s for it in rates)
        low, high = min(rates).mib_per_s, max(rates).mib_per_s
        print(
            f"{name:14} {label:22} {middle:6.0f} MiB/s ({low:.0f}-{high:.0f}),"
            f" for a second of processor {of_cpu:6.0f} MiB",
            flush=True,
        )
    print(
        f"{name:14} a cold read has {share(colds, owns):.0%} of the store's own rate,"
        f" {share(colds, written):.0%} of that into a file",
        flush=True,
    )
    return tiered


async def run(segments: int, folder: Path, server: S3Server | None) -> None:
    files = await asyncio.to_thread(sealed, folder / "log" / "0", segments)
    url = (folder / "store").as_uri()
    await measured("local folder", lambda: ObjectStore(url), files, folder)
    if server is None:
        return
    bucket, endpoint = f"s3://{BUCKET}/bench", server.endpoint
    tiered = await measured("S3", lambda: ObjectStore(bucket, endpoint=endpoint), files, folder)
    async with FaultyStore(server.port, latency_s=ROUND_TRIP_S) as line:
        store = ObjectStore(bucket, endpoint=line.endpoint)
        took_s = await first_byte_s(store, tiered, folder / "cache-first")
        line.bytes_per_s = LINE_BYTES_PER_S
        owns, colds = [], []
        for number in range(ROUNDS):
            owns.append(await own_rate(store, tiered))
            colds.append(await cold(store, tiered, folder / f"cache-line-{number}"))
        store.close()
    print(
        f"S3 by a line   first byte after {took_s * 1000:.0f} ms, with round trips of"
        f" {ROUND_TRIP_S * 1000:.0f} ms; a cold read has"
        f" {median(it.mib_per_s for it in colds):.0f} of"
        f" {median(it.mib_per_s for it in owns):.0f} MiB/s, {share(colds, owns):.0%}"
    )


def main(segments: int) -> None:
    set_credentials()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiering-")))
        server = None
        try:
            (folder / "s3").mkdir()
            server = stack.enter_context(S3Server(folder / "s3", jars(archive_cache())))
        except MavenError as error:
            print(f"no S3 server: {error}", file=sys.stderr)
        asyncio.run(run(segments, folder, server))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else SEGMENTS)
