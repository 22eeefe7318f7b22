"""A log whose records are erased, on a simulated disk."""

from collections.abc import Iterable

from streamlog.log.compaction.cleaner import Terms
from streamlog.log.control_batches import note_all
from streamlog.log.control_load import load
from streamlog.log.erasure.erasures_file import FILE_NAME, encode
from streamlog.log.erasure.expunging import Expunging, due_segments
from streamlog.log.settings import LogSettings
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet
from tests.compacted_log import KeyedLog
from tests.simulation.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=1_500, index_interval_bytes=200)


class ErasedLog(KeyedLog):
    """Erasures are appended, and known, as a partition's leader or follower does it."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, SETTINGS)

    def erase(self, offsets: Iterable[int], epoch: int = 0) -> None:
        batches = erasure_batches(
            OffsetSet(offsets),
            base_offset=self.log.log_end_offset,
            leader_epoch=epoch,
            timestamp_ms=1_000,
        )
        for batch in batches:
            self.log.append(batch, 1_000)
            note_all(self.log.erasures, self.log.transactions, batch)

    def fetch(self, data: memoryview) -> None:
        while data:
            size = self.log.append_fetched(data)
            note_all(self.log.erasures, self.log.transactions, data[:size])
            data = data[size:]

    def keep(self) -> None:
        """Write the file."""
        self.log.beside.write(FILE_NAME, encode(self.log.erasures, b"s/0"))
        self.log.erasures.kept_end = self.log.erasures.latest_offset + 1
        self.log.erasures.unkept_offset = None

    @property
    def checkpoint(self) -> int:
        """The recovery point as it is written to the checkpoint."""
        unkept = self.log.erasures.unkept_offset
        point = self.log.recovery_point
        return point if unkept is None else min(point, unkept)

    def come_back(self, checkpoint: int, high_watermark: int) -> None:
        self.open(recovery_point=checkpoint)
        known_offset = self.log.recovery_limit.bound(checkpoint)
        self.log.erasures, self.log.transactions = load(self.log, known_offset=known_offset)
        self.log.erasures.commit(high_watermark)

    def expunge(self, upper: int, *, overdue: bool = True, **terms: object) -> Expunging:
        unremoved = self.log.erasures.unremoved
        segments = due_segments(
            self.log.segments.sealed(),
            unremoved,
            unremoved if overdue else OffsetSet(),
            upper_offset=min(upper, self.log.recovery_point),
            before_ms=10_000,
        )
        expunging = Expunging(
            self.log,
            segments,
            Terms(10_000, **terms),  # type: ignore[arg-type]
            disk=self.disk,
            pool=self.pool,
        )
        while expunging.left:
            swap = expunging.clean()
            if swap is not None and swap.run():
                expunging.swapped(swap)
        expunging.finish()
        return expunging
