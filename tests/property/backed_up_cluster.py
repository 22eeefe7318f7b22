"""A cluster in memory that goes on while a backup of it is taken.

Streams are read by their names, as from real nodes: what has a name may be another stream by then.
"""

from collections.abc import AsyncGenerator, Callable
from uuid import UUID

from streamlog.backup.source import BackupExtent, Batch
from streamlog.errors import OffsetOutOfRange, StreamNotFound
from streamlog.groups.records import (
    CommittedOffset,
    KeptGroup,
    OffsetKey,
    group_record,
    offset_record,
)
from streamlog.metadata import commands as c
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import ProducerIdsAllocated
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NO_LEADER, TopicPartition
from streamlog.record.batch import read_header
from streamlog.record.codec import RecordRun
from tests.controller_world import World

GROUP = "g"
Log = list[bytes]


class BackedUpCluster(World):
    """One node, and what its clients do."""

    def __init__(self) -> None:
        super().__init__(1)
        self.logs: dict[tuple[UUID, int], Log] = {}
        """Of all streams there ever were, with what was purged since."""
        self.starts: dict[tuple[UUID, int], int] = {}
        self.producer_id = 0
        """The next one."""
        self.create(OFFSETS_STREAM)

    def publish(self, name: str, number: int) -> None:
        """One record by a new producer."""
        place = self._place(name, number)
        producer_id = self.producer_id
        self.producer_id += 1
        if self.producer_id > self.image.producer_ids_end:
            record = ProducerIdsAllocated(node_id=NO_LEADER, end=self.producer_id + 2)
            self.image = self.image.apply(record, offset=self.image.offset, epoch=1)
        value = b"%s/%d@%d" % (place[0].hex.encode(), number, self.end(place))
        self._append(place, (None, value), producer=(producer_id, 0, 0))

    def commit(self, name: str, number: int) -> None:
        """A group has read all of a partition; it has a member of generation 7."""
        place = self._place(name, number)
        committed = CommittedOffset(self.end(place), 0, "", 1, topic_id=place[0])
        offsets = self._place(OFFSETS_STREAM, 0)
        for record in (
            group_record(GROUP, KeptGroup("consumer", 7, None, None, 1, ())),
            offset_record(OffsetKey(GROUP, name, number), committed),
        ):
            self._append(offsets, record)

    def purge(self, name: str, number: int) -> None:
        place = self._place(name, number)
        self.starts[place] = self.end(place)

    def delete(self, name: str) -> None:
        self.ask(c.DeleteStream(name=name))

    def end(self, place: tuple[UUID, int]) -> int:
        log = self.logs.get(place)
        return read_header(log[-1]).next_offset if log else 0

    def _place(self, name: str, number: int) -> tuple[UUID, int]:
        return self.image.stream(name).stream_id, number

    def _append(
        self,
        place: tuple[UUID, int],
        record: tuple[bytes | None, bytes | None],
        *,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> None:
        run = RecordRun()
        run.append(*record)
        base_offset, log = self.end(place), self.logs.setdefault(place, [])
        batch = run.seal(
            base_offset=base_offset, leader_epoch=0, timestamp_ms=1_000, producer=producer
        )
        log.append(batch)

    def named(self, name: str, number: int) -> tuple[UUID, int]:
        """Raises StreamNotFound, PartitionNotFound."""
        stream = self.image.stream(name)
        stream.partition(number)
        return stream.stream_id, number


class Watched:
    """The cluster as a ``Source``, which calls ``meanwhile`` before each answer."""

    def __init__(self, cluster: BackedUpCluster, meanwhile: Callable[[], None]) -> None:
        self._cluster = cluster
        self._meanwhile = meanwhile

    async def image(self) -> MetadataImage:
        self._meanwhile()
        return self._cluster.image

    async def is_sealed(self, stream: StreamImage) -> bool:
        return False

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent:
        self._meanwhile()
        place = self._cluster.named(tp.stream, tp.partition)
        return BackupExtent(self._cluster.starts.get(place, 0), self._cluster.end(place))

    async def confirm(self, stream: StreamImage) -> None:
        self._meanwhile()
        if self._cluster.image.stream(stream.name).stream_id != stream.stream_id:
            raise StreamNotFound(f"{stream.name} was deleted")

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        self._meanwhile()
        return self._cluster.end(self._cluster.named(tp.stream, tp.partition))

    async def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        while start < stop:
            self._meanwhile()
            found = self._at(self._cluster.named(stream.name, number), start)
            if found is None:
                return
            yield found
            start = found[0].next_offset

    def _at(self, place: tuple[UUID, int], offset: int) -> Batch | None:
        if offset < self._cluster.starts.get(place, 0):
            raise OffsetOutOfRange(offset, self._cluster.starts[place], self._cluster.end(place))
        for batch in self._cluster.logs.get(place, []):
            header = read_header(batch)
            if header.next_offset > offset:
                return header, batch
        return None
