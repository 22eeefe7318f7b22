"""Reads of a cached segment, block by block, against reads of the segment that was uploaded."""

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import first_record_since
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.tier.object_store import ObjectStore
from streamlog.tier.segment_cache import SegmentCache
from streamlog.tier.segment_object import SealedFiles, upload_segment
from tests.log_folder import make_batch
from tests.segment_caches import opened
from tests.tiered_segments import PREFIX

INTERVAL_BYTES = 300


class Read(NamedTuple):
    offset: int
    max_bytes: int
    is_timed: bool


READS = st.lists(
    st.builds(Read, st.integers(0, 120), st.integers(1, 2_000), st.booleans()), max_size=6
)
BATCHES = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 10, 200, 900])), min_size=1, max_size=40
)


def sealed(folder: Path, pool: FilePool, batches: list[tuple[int, int]]) -> Segment:
    """One segment; the time of a batch is its base offset."""
    log_settings = LogSettings(segment_bytes=2**30, index_interval_bytes=INTERVAL_BYTES)
    log = PartitionLog.open(folder, log_settings, disk=OsDisk(), files=pool)
    for records, value_bytes in batches:
        at = log.log_end_offset
        log.append(make_batch(at, [b"v" * value_bytes] * records, timestamp_ms=at), at)
    log.roll()
    (found,) = log.segments.sealed()
    return found


async def compare(
    folder: Path, batches: list[tuple[int, int]], reads: list[Read], block_bytes: int
) -> None:
    pool, store = FilePool(OsDisk(), 16), ObjectStore((folder / "store").as_uri())
    log_folder = folder / "s" / "0"
    log_folder.mkdir(parents=True)
    segment = sealed(log_folder, pool, batches)
    end = segment.next_offset
    files = SealedFiles(
        base_offset=0,
        end_offset=end,
        max_timestamp_ms=end - 1,
        size_bytes=segment.size_bytes,
        log_path=segment.path,
        leader_epochs=(),
        files={".index": segment.index_path, ".timeindex": segment.time_index_path},
    )
    tiered = await upload_segment(
        store, PREFIX, files, leader_epoch=0, upload_id=uuid4(), block_bytes=block_bytes
    )
    cache = SegmentCache(store, str(folder / "cache"), bytes_max=2**30, read_ahead_s=-1.0)
    async with opened(cache), cache.reading(PREFIX, tiered) as cached:
        for read in reads:
            offset = read.offset % end
            here = cached.opened(pool, INTERVAL_BYTES)  # it knows nothing of earlier reads
            if read.is_timed:
                await cached.prepare_time(offset)
                found = first_record_since([here], offset, 0, end, verify=lambda _: None)
                assert found == first_record_since([segment], offset, 0, end, verify=Segment.verify)
                continue
            await cached.prepare(offset, read.max_bytes)
            with (
                here.slice(offset, read.max_bytes, end) as got,
                segment.slice(offset, read.max_bytes, end) as expected,
            ):
                assert got.read() == expected.read()
    pool.close()
    store.close()


@settings(max_examples=60)
@given(BATCHES, READS, st.sampled_from([64, 256, 1024]))
def test_a_cached_segment_gives_what_was_uploaded(
    batches: list[tuple[int, int]], reads: list[Read], block_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder), batches, reads, block_bytes))
