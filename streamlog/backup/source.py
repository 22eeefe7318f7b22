"""What a backup is taken of."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.record.batch import BatchHeader
from streamlog.record.compression import Buffer

Batch = tuple[BatchHeader, Buffer]


class BackupExtent(NamedTuple):
    """What of a partition is kept and committed: ``[log_start_offset, high_watermark)``."""

    log_start_offset: int
    high_watermark: int
    """Or where the first transaction begins that is open."""


class BackupSource(Protocol):
    """A cluster, running or not. What fails raises StreamlogError."""

    async def image(self) -> MetadataImage:
        """All metadata that is committed."""

    async def is_sealed(self, stream: StreamImage) -> bool:
        """Some of it is known to be encrypted where it lies, whatever its settings say now."""

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent: ...

    async def confirm(self, stream: StreamImage) -> None:
        """What was read by the stream's name until now was of this stream. Raises StreamNotFound
        where it is gone, or another has its name.
        """

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        """Where the records of ``epoch``, or of the last one before it, end; None: not known."""

    def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        """Whole batches with right checksums, as they were appended, dense, from the one with
        ``start`` on; the last may reach over ``stop``. Those of aborted transactions come without their records.
        """
