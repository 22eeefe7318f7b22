import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from streamlog.activity.service import ACTIVITY, ActivityService, config_of
from streamlog.config import ActivitySection
from streamlog.errors import StorageFailed
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import ACTIVITY_STREAM
from streamlog.model import NodeId, TopicPartition
from tests.fake_metadata import FakeMetadata
from tests.fake_partition import NODE
from tests.local_node import until
from tests.offsets_partition import OffsetsPartition, OffsetsPartitions
from tests.unit.activity.activity_world import LoggedWorld

DAY_MS = 86_400_000


class ActiveMetadata(FakeMetadata):
    """With a history, of some other metadata."""

    def __init__(self, directory: Path) -> None:
        super().__init__({}, directory)
        self.history = LoggedWorld(1)


class Host:
    """A node on which the service runs."""

    def __init__(self, directory: Path) -> None:
        self.metadata = ActiveMetadata(directory)
        self.metadata.register(9092)
        self.partitions = OffsetsPartitions()
        self.service = ActivityService(
            node_id=NODE,
            settings=ActivitySection(enabled=True, replicas=2),
            metadata=self.metadata,  # type: ignore[arg-type]
            partitions=self.partitions,  # type: ignore[arg-type]
        )
        self._seen = MetadataImage("c")

    @property
    def partition(self) -> OffsetsPartition:
        return self.partitions.partition(ACTIVITY)

    async def reconcile(self) -> None:
        image = self.metadata.image
        stream = image.streams.get(ACTIVITY_STREAM)
        if stream is not None:
            partition = stream.partition(0)
            self.partition.is_leader = partition.leader == NODE
            self.partition.leader_epoch = partition.leader_epoch
            self.partition.changed()
        self.service.apply(self._seen, image)
        self._seen = image

    async def lead(self, leader: NodeId) -> None:
        epoch = self.metadata.image.stream(ACTIVITY_STREAM).partition(0).leader_epoch
        self.metadata.change(ACTIVITY_STREAM, 0, leader=leader, leader_epoch=epoch + 1)
        await self.reconcile()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    running = asyncio.create_task(made.service.run())
    yield made
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_it_is_made_and_told_by_who_leads_it(host: Host) -> None:
    assert host.service.told_offset is None
    await host.reconcile()
    await until(lambda: ACTIVITY_STREAM in host.metadata.image.streams)
    config = host.metadata.image.stream(ACTIVITY_STREAM).config
    assert (config.replicas, config.subjects, config.allow_direct) == (1, (), True)
    await host.reconcile()
    end = host.metadata.history.image.offset
    await until(lambda: host.service.told_offset == end)
    await host.lead(NodeId(9))
    await until(lambda: host.service.told_offset is None)
    host.metadata.history.create("orders")
    await host.lead(NODE)
    await until(lambda: host.service.told_offset == end + 2)
    assert host.partition.high_watermark == end + 2


async def test_more_metadata_is_told_at_once(host: Host) -> None:
    await host.reconcile()
    await until(lambda: ACTIVITY_STREAM in host.metadata.image.streams)
    await host.reconcile()
    await until(lambda: host.service.told_offset == host.metadata.history.image.offset)
    host.metadata.history.create("orders")
    await host.reconcile()
    await until(lambda: host.service.told_offset == host.metadata.history.image.offset)


async def test_it_ends_with_a_stop(host: Host) -> None:
    await host.reconcile()
    await until(lambda: ACTIVITY_STREAM in host.metadata.image.streams)
    await host.reconcile()
    await until(lambda: bool(host.service.told_offset))
    await host.service.stop()
    await until(lambda: host.service.told_offset is None)
    await host.reconcile()
    assert host.service.told_offset is None


async def test_a_partition_that_is_offline_is_told_of(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    await host.reconcile()
    await until(lambda: ACTIVITY_STREAM in host.metadata.image.streams)

    def offline(tp: TopicPartition) -> OffsetsPartition:
        raise StorageFailed(f"{tp} cannot be opened")

    host.partitions.partition = offline  # type: ignore[method-assign]
    host.service.apply(MetadataImage("c"), host.metadata.image)
    await until(lambda: "activity cannot be told here" in caplog.text)


@pytest.mark.parametrize(
    ("retention_ms", "segment_age_ms"), [(-1, DAY_MS), (60_000, 60_000), (30 * DAY_MS, DAY_MS)]
)
def test_how_it_is_kept(retention_ms: int, segment_age_ms: int) -> None:
    """In segments no older than what is kept."""
    config = config_of(ActivitySection(retention_ms=retention_ms), 5)
    assert (config.retention_ms, config.segment_age_ms) == (retention_ms, segment_age_ms)
    assert (config.partitions, config.replicas, config.min_isr) == (1, 3, 2)


@pytest.mark.parametrize("retention_ms", [0, 59_999, -2])
def test_a_retention_that_keeps_nothing_is_refused(retention_ms: int) -> None:
    with pytest.raises(ValidationError):
        ActivitySection(retention_ms=retention_ms)
