"""A process that fills a cache of tiered segments is killed at any moment; the next one reads on."""

import random
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.tier.manifest import TierManifest
from streamlog.tier.object_store import ObjectStore
from streamlog.tier.segment_cache import SegmentCache
from streamlog.tier.segment_object import upload_segment
from tests.segment_caches import opened
from tests.tiered_segments import INTERVAL_BYTES, PREFIX, content, sealed_segments

KILLS = 6
PROGRAM = """
import asyncio, sys
from pathlib import Path
from streamlog.tier.manifest import TierManifest
from streamlog.tier.object_store import ObjectStore
from streamlog.tier.segment_cache import SegmentCache
from tests.segment_caches import opened
from tests.tiered_segments import PREFIX

async def main(folder):
    manifest = TierManifest.decode((folder / "manifest").read_bytes(), "manifest")
    cache = SegmentCache(
        ObjectStore((folder / "store").as_uri()), str(folder / "cache"), bytes_max=2**25
    )
    async with opened(cache):
        print("open", flush=True)
        while True:
            for it in manifest.segments:
                async with cache.reading(PREFIX, it) as cached:
                    await cached.prepare_all()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_killed_cache_hands_out_nothing_wrong(tmp_path: Path) -> None:
    store = ObjectStore((tmp_path / "store").as_uri())
    files = sealed_segments(tmp_path / "s" / "0", segments=3, batches=30, value_bytes=500_000)
    manifest = TierManifest(stream_id=PREFIX.stream.stream_id, partition=0)
    for it in files:
        tiered = await upload_segment(store, PREFIX, it, leader_epoch=0, upload_id=uuid4())
        manifest = manifest.with_segment(tiered)
    (tmp_path / "manifest").write_bytes(manifest.encode())
    chosen = random.Random(7)
    for _ in range(KILLS):
        fill_and_kill(tmp_path, chosen.uniform(0.0, 0.3))
        pool = FilePool(OsDisk(), 16)
        cache = SegmentCache(store, str(tmp_path / "cache"), bytes_max=2**25, forget=pool.forget)
        async with opened(cache):
            assert cache.statistics.used_bytes <= cache.bytes_max
            for tiered, it in zip(manifest.segments, files, strict=True):
                async with cache.reading(PREFIX, tiered) as cached:
                    await cached.prepare_all()
                    assert content(cached.log_path) == content(it.log_path)
                    segment = cached.opened(pool, INTERVAL_BYTES)
                    with segment.slice(tiered.end_offset - 1, 1, tiered.end_offset) as found:
                        assert len(found) > 0
        pool.close()
    store.close()


def fill_and_kill(folder: Path, after_s: float) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        time.sleep(after_s)
        process.kill()
