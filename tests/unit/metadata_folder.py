"""A metadata folder on disk, and a node by itself that writes to it."""

from pathlib import Path
from uuid import UUID

from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata import controller
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.quorum.store import SEGMENT_BYTES, MetadataStore, StoredBatch
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.node_registration import started

DISK = OsDisk()


class Node:
    """A store and the image it makes, as a replica keeps them; all it writes is committed."""

    def __init__(
        self, directory: Path, disk: Disk = DISK, *, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        files = FilePool(disk, 16)
        self.store = MetadataStore(
            directory, "c", disk=disk, files=files, segment_bytes=segment_bytes
        )
        self.image = self.store.open()
        for batch in self.store.batches_from(self.image.offset):
            self.take(batch)
        self.epoch = max(self.store.last_epoch, 0) + 1

    def take(self, batch: StoredBatch) -> None:
        self.image = self.image.apply_all(
            batch.records, offset=batch.base_offset, epoch=batch.epoch
        )

    def write(self, *records: MetadataRecord) -> None:
        offset = self.store.end_offset
        assert self.store.append(records, self.epoch, 0) == offset + len(records)
        assert offset == self.image.offset
        self.store.sync()
        self.take(StoredBatch(offset, self.epoch, records))

    def snapshot(self) -> None:
        self.store.add_snapshot(self.image)

    def stop(self) -> None:
        self.store.checkpoint(self.image.offset)
        self.store.close()

    def register(self, run: int) -> None:
        self.write(*started(self.image, NodeId(1), UUID(int=run)).records)

    def create(self, name: str, partitions: int = 1) -> None:
        config = StreamConfig.of(name=name, partitions=partitions)
        stream_id = UUID(int=self.image.offset)
        self.write(
            *controller.create_stream(self.image, config, new_id=stream_id, now_ms=0).records
        )

    def delete(self, name: str) -> None:
        self.write(*controller.delete_stream(self.image, name).records)
