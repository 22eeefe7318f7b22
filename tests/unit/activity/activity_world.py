"""Metadata that is decided by the real controller, and its log in memory, for ``activity``."""

from collections.abc import Sequence
from uuid import UUID

from streamlog.errors import OffsetOutOfRange
from streamlog.metadata.controller import Decision, batches
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataLogBegun, MetadataRecord
from streamlog.metadata.quorum.store import StoredBatch
from tests.controller_world import World


class LoggedWorld(World):
    """What is decided is in ``log``. A ``publisher.History`` of it, two batches at a time."""

    def __init__(self, count: int = 0) -> None:
        self.log: list[StoredBatch] = []
        self.images: list[MetadataImage] = [MetadataImage("c")]
        """All there ever were, by offset."""
        self.start_offset = 0
        self.reads = 0
        super().__init__(count)

    def apply(self, decision: Decision) -> None:
        for batch in batches(decision, 2):
            self.write(batch)

    def write(self, records: Sequence[MetadataRecord]) -> None:  # type: ignore[override]
        """As one batch."""
        offset = self.image.offset
        self.log.append(StoredBatch(offset, 1, tuple(records), time_ms=1_000 + offset))
        self.image = self.image.apply_all(records, offset=offset, epoch=1)
        self.images.append(self.image)

    def begin_log(self, number: int) -> None:
        """From here on it is another metadata log."""
        record = MetadataLogBegun(log_id=UUID(int=number), begun_ms=1, first_producer_id=0)
        self.write([record])

    def let_go(self) -> None:
        """Of all of the log so far, for a snapshot."""
        self.start_offset = self.image.offset

    @property
    def records(self) -> list[MetadataRecord]:
        return [record for batch in self.log for record in batch.records]

    @property
    def end(self) -> MetadataImage:
        return self.image

    async def begin(self, offset: int) -> MetadataImage:
        held = [it for it in self.images if it.offset >= self.start_offset]
        return next((it for it in reversed(held) if it.offset <= offset), held[0])

    async def read(self, offset: int) -> list[StoredBatch]:
        self.reads += 1
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.image.offset)
        return [batch for batch in self.log if batch.base_offset >= offset][:2]
