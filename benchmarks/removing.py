"""How long the event loop stands still while a log is purged: ``python -m benchmarks.removing``.

A log of segments of 256 MiB, as much of it in the page cache as there is memory for, loses all of
them at once, as a purge or retention has it: unlinked by the loop itself, or by a node's thread for
removed files, while a task of the loop looks at the clock every millisecond.
"""

import asyncio
import os
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.removal import Removal
from streamlog.record.codec import RecordRun

LOG_GIB: Final = 20
SEGMENT_BYTES: Final = 256 << 20
VALUE_BYTES: Final = 1 << 20
TICK_S: Final = 0.001


class Stalls(NamedTuple):
    """What a purge costs."""

    segments: int
    idle_s: float
    """The longest stall in a second before, in which nothing was to be done."""
    call_s: float
    """What the purge itself takes of the loop."""
    longest_s: float
    """For so long nothing else was done by the loop, at the worst."""
    free_s: float
    """Until the room is free."""


def fill(log: PartitionLog, log_bytes: int) -> None:
    run = RecordRun()
    run.append(None, os.urandom(VALUE_BYTES))
    batch = bytearray(run.seal(base_offset=0, leader_epoch=0, timestamp_ms=1_000))
    while log.size_bytes < log_bytes:
        # A batch's checksum does not cover where it lies.
        struct.pack_into(">q", batch, 0, log.log_end_offset)
        log.append(bytes(batch), 1_000)
    log.roll()
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)


async def purged(log: PartitionLog, removal: Removal | None) -> Stalls:
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            longest = max(longest, time.perf_counter() - before - TICK_S)

    looking = asyncio.create_task(look())
    await asyncio.sleep(1.0)
    idle_s, longest, segments = longest, 0.0, log.segment_count - 1
    begun = time.perf_counter()
    log.advance_log_start(log.log_end_offset, is_kept=True)
    call_s = time.perf_counter() - begun
    if removal is not None:
        await asyncio.wrap_future(removal.flushed())
    free_s = time.perf_counter() - begun
    await asyncio.sleep(0.1)
    looking.cancel()
    return Stalls(segments, idle_s, call_s, longest, free_s)


def measured(folder: Path, log_bytes: int, removal: Removal | None) -> Stalls:
    disk = OsDisk()
    pool = FilePool(disk, 1_024, removal=removal)
    settings = LogSettings(segment_bytes=SEGMENT_BYTES)
    log = PartitionLog.open(folder, settings, disk=disk, files=pool)
    fill(log, log_bytes)
    try:
        return asyncio.run(purged(log, removal))
    finally:
        log.close()
        if removal is not None:
            removal.stop(60)


def main(log_gib: float) -> None:
    for label, removal in (
        ("unlinked by the event loop", None),
        ("renamed, and unlinked by a thread", Removal(OsDisk())),
    ):
        with tempfile.TemporaryDirectory(prefix="removing-") as folder:
            found = measured(Path(folder) / "0", int(log_gib * (1 << 30)), removal)
        print(
            f"{label:34} {found.segments:4} segments: the call {found.call_s * 1000:7.1f} ms,"
            f" the longest stall {found.longest_s * 1000:7.1f} ms"
            f" ({found.idle_s * 1000:.1f} ms before), free after {found.free_s:5.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else LOG_GIB)
