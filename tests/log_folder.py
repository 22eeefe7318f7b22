"""A partition log on a simulated disk, and batches for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamlog.log.encryption.key_ring import KEY_BYTES, KeyRing
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.removal import Removal
from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import RecordRun

FOLDER = Path("/streams/s/0")
SMALL = LogSettings(segment_bytes=2_000, index_interval_bytes=300)


def make_batch(
    base_offset: int, values: int | list[bytes] = 1, *, timestamp_ms: int = 1_000, epoch: int = 0
) -> bytes:
    run = RecordRun()
    for value in [b"value"] * values if isinstance(values, int) else values:
        run.append(None, value)
    return run.seal(base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)


def open_log(
    disk: Disk,
    settings: LogSettings = SMALL,
    *,
    folder: Path = FOLDER,
    removal: Removal | None = None,
    **known: Any,
) -> PartitionLog:
    """``known``: log_start_offset, recovery_point."""
    files = FilePool(disk, 16, a_key_ring(), removal=removal)
    return PartitionLog.open(folder, settings, disk=disk, files=files, **known)


def a_key_ring(name: str = "k1") -> KeyRing:
    """Of one key, which its name decides."""
    return KeyRing({name: name.encode().ljust(KEY_BYTES, b".")}, name)


A_KEY = b"k1".ljust(KEY_BYTES, b".")
"""The one of ``a_key_ring``."""


def append(log: PartitionLog, values: int | list[bytes] = 1, **more: Any) -> bytes:
    """One batch at the end of the log."""
    batch = make_batch(log.log_end_offset, values, **more)
    log.append(batch, more.get("timestamp_ms", 1_000))
    return batch


def sync(log: PartitionLog) -> int:
    ticket = log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)
    return log.recovery_point


def check_end_checksums(log: PartitionLog) -> None:
    """Each sealed segment knows those of the file that it has now."""
    for segment in log.segments.sealed():
        if not segment.damages:
            assert segment.ends.is_known
            assert segment.ends == segment.read_ends()


def read_batches(
    log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20
) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches from ``offset``, or the log start, to the end."""
    at = log.log_start_offset if offset is None else offset
    while at < log.log_end_offset:
        with log.read(at, max_bytes, log.log_end_offset) as piece:
            data = piece.read()
            assert len(data) == len(piece) > 0
        for header, batch in batches(data):
            yield header, bytes(batch)
            at = header.next_offset
