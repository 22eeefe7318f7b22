import asyncio
from pathlib import Path

import pytest

from streamlog.config import GroupsSection
from streamlog.errors import NoController, StreamlogError
from streamlog.groups.offsets_stream import OffsetsStream, config_of, host_count
from streamlog.metadata.image import StreamImage
from streamlog.metadata.stream import OFFSETS_STREAM, StreamConfig
from streamlog.model import NodeId
from tests.kafka_node import NODE, FakeMetadata, until

SETTINGS = GroupsSection(offsets_partitions=2)


@pytest.fixture
def metadata(tmp_path: Path) -> FakeMetadata:
    made = FakeMetadata({}, tmp_path)
    made.register(9092)
    return made


def config_in(metadata: FakeMetadata) -> StreamConfig:
    return metadata.image.stream(OFFSETS_STREAM).config


@pytest.mark.parametrize(
    ("nodes", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)]
)
def test_one_node_may_be_lost(nodes: int, replicas: int, min_isr: int) -> None:
    config = config_of(SETTINGS, nodes)
    assert (config.replicas, config.min_isr, config.subjects) == (replicas, min_isr, ())
    assert (config.sync, config.is_compacted) == ("commit", True)


async def test_it_is_made_once(metadata: FakeMetadata) -> None:
    stream = OffsetsStream(metadata, SETTINGS, NODE)
    assert stream.stream is None
    await asyncio.gather(stream.make(), stream.make())
    made = metadata.image.stream(OFFSETS_STREAM)
    assert (len(made.partitions), made.config.replicas) == (2, 1)
    other = OffsetsStream(metadata, GroupsSection(offsets_partitions=7), NodeId(1))
    await other.make()
    assert metadata.image.stream(OFFSETS_STREAM) == made


async def test_another_node_may_be_quicker(metadata: FakeMetadata) -> None:
    stream = OffsetsStream(metadata, GroupsSection(offsets_partitions=7), NODE)
    wanted = metadata.create_stream

    async def late(config: StreamConfig) -> tuple[StreamImage, bool]:
        await wanted(config_of(SETTINGS, 1))
        return await wanted(config)

    metadata.create_stream = late  # type: ignore[method-assign, assignment]
    await stream.make()
    assert config_in(metadata).partitions == 2


async def test_fewer_replicas_where_the_controller_has_fewer_nodes(metadata: FakeMetadata) -> None:
    for number in (1, 2):
        metadata.register(9092, NodeId(number))
    assert host_count(metadata.image) == 3
    wanted = metadata.create_stream

    async def refused(config: StreamConfig) -> tuple[StreamImage, bool]:
        return await wanted(config, ((NODE,), (NODE,)) if config.replicas == 1 else ())

    metadata.create_stream = refused  # type: ignore[method-assign, assignment]
    metadata.fence(NodeId(1))
    metadata.fence(NodeId(2))
    await OffsetsStream(metadata, SETTINGS, NODE)._made(3)
    assert config_in(metadata).replicas == 1


async def test_without_a_controller_there_is_none(metadata: FakeMetadata) -> None:
    async def nobody(_config: StreamConfig) -> tuple[StreamImage, bool]:
        raise NoController("nobody decides")

    metadata.create_stream = nobody  # type: ignore[method-assign, assignment]
    with pytest.raises(StreamlogError):
        await OffsetsStream(metadata, SETTINGS, NODE).make()


@pytest.mark.parametrize("controller", [NODE, NodeId(1)])
async def test_it_grows_with_the_cluster(metadata: FakeMetadata, controller: NodeId) -> None:
    """One node alone asks for it: the one whose controller decides."""
    metadata.controller_id = controller
    stream = OffsetsStream(metadata, SETTINGS, NODE)
    await stream.make()
    growing = asyncio.create_task(stream.grow())
    for number in (1, 2):
        metadata.register(9092, NodeId(number))
    stream.look()
    if controller == NODE:
        await until(lambda: config_in(metadata).replicas == 3)
        assert config_in(metadata).min_isr == 2
        assert all(len(it.replicas) == 3 for it in metadata.image.stream(OFFSETS_STREAM).partitions)
    else:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert config_in(metadata).replicas == 1
    growing.cancel()
    await asyncio.wait([growing])
