import asyncio
from functools import partial
from pathlib import Path

import pytest

from streamlog.errors import NoController, StreamlogError
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream import internal_stream
from streamlog.metadata.stream.internal_stream import InternalStream, host_count, min_isr_of
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.model import NodeId
from tests.fake_metadata import FakeMetadata
from tests.fake_partition import NODE
from tests.kafka_node import until


def config_of(nodes: int, partitions: int = 2) -> StreamConfig:
    replicas = min(3, nodes)
    return StreamConfig.of(
        name=OFFSETS_STREAM,
        partitions=partitions,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
    )


def stream_of(
    metadata: FakeMetadata, node_id: NodeId = NODE, *, partitions: int = 2, unasked: bool = False
) -> InternalStream:
    config = partial(config_of, partitions=partitions)
    return InternalStream(metadata, node_id, OFFSETS_STREAM, config, unasked=unasked)


@pytest.fixture
def metadata(tmp_path: Path) -> FakeMetadata:
    made = FakeMetadata({}, tmp_path)
    made.register(9092)
    return made


def config_in(metadata: FakeMetadata) -> StreamConfig:
    return metadata.image.stream(OFFSETS_STREAM).config


async def test_it_is_made_once(metadata: FakeMetadata) -> None:
    stream = stream_of(metadata)
    assert stream.stream is None
    await asyncio.gather(stream.make(), stream.make())
    made = metadata.image.stream(OFFSETS_STREAM)
    assert (len(made.partitions), made.config.replicas) == (2, 1)
    other = stream_of(metadata, NodeId(1), partitions=7)
    await other.make()
    assert metadata.image.stream(OFFSETS_STREAM) == made


async def test_another_node_may_be_quicker(metadata: FakeMetadata) -> None:
    stream = stream_of(metadata, partitions=7)
    wanted = metadata.create_stream

    async def late(config: StreamConfig) -> tuple[StreamImage, bool]:
        await wanted(config_of(1))
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
    await stream_of(metadata)._made(3)
    assert config_in(metadata).replicas == 1


async def test_without_a_controller_there_is_none(metadata: FakeMetadata) -> None:
    async def nobody(_config: StreamConfig) -> tuple[StreamImage, bool]:
        raise NoController("nobody decides")

    metadata.create_stream = nobody  # type: ignore[method-assign, assignment]
    with pytest.raises(StreamlogError):
        await stream_of(metadata).make()


@pytest.mark.parametrize("controller", [NODE, NodeId(1)])
async def test_it_grows_with_the_cluster(metadata: FakeMetadata, controller: NodeId) -> None:
    """One node alone asks for it: the one whose controller decides."""
    metadata.controller_id = controller
    stream = stream_of(metadata)
    await stream.make()
    growing = asyncio.create_task(stream.keep())
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


async def test_it_is_made_unasked_once_there_is_a_node_for_it(
    metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asked for again where that has failed."""
    monkeypatch.setattr(internal_stream, "RETRY_S", 0.0)
    metadata.fence(NODE)
    stream, wanted, tried = stream_of(metadata, unasked=True), metadata.create_stream, list[int]()

    async def nobody_at_first(config: StreamConfig) -> tuple[StreamImage, bool]:
        tried.append(config.replicas)
        if len(tried) == 1:
            raise NoController("nobody decides")
        return await wanted(config)

    metadata.create_stream = nobody_at_first  # type: ignore[method-assign, assignment]
    keeping = asyncio.create_task(stream.keep())
    stream.look()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tried == []
    metadata.register(9092)
    stream.look()
    await until(lambda: stream.stream is not None)
    assert tried == [1, 1]
    keeping.cancel()
    await asyncio.wait([keeping])
