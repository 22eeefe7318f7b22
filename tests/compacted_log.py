"""A log with keys on a simulated disk, and what should be in it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from streamlog.log.compaction.blocking import clean
from streamlog.log.compaction.cleaner import Cleaning, Terms
from streamlog.log.encryption.key_file import scope_of
from streamlog.log.log import PartitionLog
from streamlog.log.settings import CompactionSettings, LogSettings
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.codec import RecordRun, iter_records
from tests.log_folder import FOLDER, a_key_ring, read_batches
from tests.simulation.disk import SimDisk

RULES = CompactionSettings(delete_retention_ms=1_000)
COMPACTED = LogSettings(segment_bytes=1_500, index_interval_bytes=200, compaction=RULES)

SCOPE = scope_of(UUID(int=7), 0)

Pair = tuple[bytes, bytes | None]


class Kept(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: bytes
    value: bytes | None


def sealed(
    base_offset: int,
    pairs: Sequence[Pair],
    *,
    epoch: int = 0,
    timestamp_ms: int = 1_000,
    compression: int = 0,
) -> bytes:
    run = RecordRun()
    for key, value in pairs:
        run.append(key, value, [(b"h", b"x")])
    return run.seal(
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
        compression=compression,
    )


class KeyedLog:
    """A log in a folder of its own, that may be opened again."""

    def __init__(self, disk: SimDisk, settings: LogSettings = COMPACTED) -> None:
        self.disk = disk
        self.settings = settings
        self.open()

    def open(self, recovery_point: int = 0, first_dirty: int = 0) -> None:
        self.pool = FilePool(self.disk, 16, a_key_ring())
        self.log = PartitionLog.open(
            FOLDER,
            self.settings,
            disk=self.disk,
            files=self.pool,
            recovery_point=recovery_point,
            key_scope=SCOPE,
        )
        self.log.first_dirty_offset = min(first_dirty, self.log.log_end_offset)

    def encrypt(self, encrypts: bool) -> None:
        """What is written from now on, or not any more."""
        self.log.settings = self.settings = replace(self.settings, encrypts=encrypts)

    def append(
        self, *pairs: Pair, epoch: int = 0, timestamp_ms: int = 1_000, codec: int = 0
    ) -> None:
        batch = sealed(
            self.log.log_end_offset,
            pairs,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            compression=codec,
        )
        self.log.append(batch, timestamp_ms)

    def sync(self) -> int:
        ticket = self.log.begin_sync()
        if ticket is not None:
            ticket.run()
            self.log.finish_sync(ticket)
        return self.log.recovery_point

    def clean(self, now_ms: int = 10_000, *, upper: int | None = None, **terms: Any) -> Cleaning:
        upper = self.log.log_end_offset if upper is None else upper
        return clean(
            self.log,
            Terms(now_ms, **terms),
            upper_offset=upper,
            disk=self.disk,
            pool=self.pool,
        )

    def seal_and_clean(self, now_ms: int = 10_000, **terms: Any) -> Cleaning:
        self.log.roll()
        self.sync()
        return self.clean(now_ms, **terms)

    def kept(self) -> list[Kept]:
        """All records, once it is seen that the batches are dense."""
        found = []
        at = self.log.log_start_offset
        for header, batch in read_batches(self.log):
            assert header.base_offset == at
            at = header.next_offset
            records = list(iter_records(batch))
            assert len(records) == header.record_count or header.is_control
            found += [Kept(it.offset, it.key or b"", it.value) for it in records]
        assert at == self.log.log_end_offset
        assert [it.offset for it in found] == sorted({it.offset for it in found})
        return found


def view(records: Iterable[Kept]) -> dict[bytes, bytes]:
    """The last value of each key that has one."""
    last = {it.key: it.value for it in records}
    return {key: value for key, value in last.items() if value is not None}
