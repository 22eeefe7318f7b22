"""How fast a log is compacted by key, and in how much memory: ``python -m benchmarks.compacting``.

Nothing else runs, and nothing is slowed down on purpose (a node has ``compaction_bytes_per_s``).
"""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.log.compaction.blocking import clean
from streamlog.log.compaction.cleaner import Terms
from streamlog.log.log import PartitionLog
from streamlog.log.settings import CompactionSettings, LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.codec import RecordRun
from streamlog.record.compression import Compression

LOG_BYTES: Final = 256 << 20
MIB: Final = 1 << 20


class Shape(NamedTuple):
    """What a log is filled with."""

    label: str
    value_bytes: int
    batch_records: int
    keys: int
    codec: Compression = Compression.NONE


SHAPES: Final = (
    Shape("100 B in batches of 1,000, 10,000 keys", 100, 1_000, 10_000),
    Shape("100 B in batches of 1,000, a million keys", 100, 1_000, 1_000_000),
    Shape("1 KiB in batches of 100, 10,000 keys", 1_024, 100, 10_000),
    Shape("100 B in batches of 1,000, zstd", 100, 1_000, 10_000, Compression.ZSTD),
    Shape("40 B in batches of 1, 1,000 keys (committed offsets)", 40, 1, 1_000),
)


def filled(log: PartitionLog, shape: Shape, log_bytes: int) -> int:
    """How many bytes of records there are, opened."""
    chosen = random.Random(1)
    value = chosen.randbytes(shape.value_bytes // 2).hex().encode()
    total = 0
    while total < log_bytes:
        run = RecordRun()
        for _ in range(shape.batch_records):
            run.append(b"key-%08d" % chosen.randrange(shape.keys), value)
        total += run.size_bytes
        batch = run.seal(
            base_offset=log.log_end_offset,
            leader_epoch=0,
            timestamp_ms=1_000,
            compression=shape.codec,
        )
        log.append(batch, 1_000)
    log.roll()
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    return total


def measured(shape: Shape, folder: Path, log_bytes: int) -> str:
    """A line of the table."""
    disk = OsDisk()
    pool = FilePool(disk, 64)
    settings = LogSettings(segment_bytes=64 * MIB, compaction=CompactionSettings())
    log = PartitionLog.open(folder, settings, disk=disk, files=pool)
    total = filled(log, shape, log_bytes)
    before_bytes, records = log.size_bytes, log.log_end_offset
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, processor = time.perf_counter(), time.process_time()
    cleaning = clean(
        log, Terms(time.time_ns() // 1_000_000), upper_offset=records, disk=disk, pool=pool
    )
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    log.close()
    assert cleaning.upper_offset == records, "the table of keys was too small"
    read_mib = max(total, before_bytes) / MIB
    return (
        f"{shape.label:54} {before_bytes / MIB:6.0f} -> {log.size_bytes / MIB:5.0f} MiB"
        f" in {wall:5.1f} s;"
        f" for a second of processor {read_mib / processor:4.0f} MiB"
        f" or {records / processor / 1e6:4.2f} million records; {grown:3.0f} MiB more memory"
    )


def main(log_mib: int) -> None:
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="compacting-") as folder:
            print(measured(shape, Path(folder) / "0", log_mib * MIB), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else LOG_BYTES // MIB)
