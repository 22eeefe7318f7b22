"""The publisher behind a real metadata log, with its snapshots."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamlog.activity.service import ActivityWriter
from streamlog.metadata.stream.stream_config import ACTIVITY_STREAM, StreamConfig
from streamlog.model import NodeId
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from tests.offsets_partition import OffsetsPartition
from tests.quorum_member import HOST, Member, until
from tools.nodes.ports import free_port

PARTITIONS = 1_100


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    port = free_port()
    made = Member(tmp_path, 1, port, [f"1@{HOST}:{port}"])
    await made.start()
    await made.register()
    await until(lambda: not made.service.image.nodes[NodeId(1)].fenced)
    yield made
    await made.kill()


def offsets(partition: OffsetsPartition) -> list[int]:
    return [
        int(json.loads(record.value or b"")["metadata_offset"])
        for _, batch in batches(partition.data)
        for record in iter_records(batch)
    ]


async def told(member: Member, partition: OffsetsPartition) -> None:
    """All of it, by a publisher that ends then."""
    publisher = ActivityWriter(partition, partition.leader_epoch, member.service.history)  # type: ignore[arg-type]
    telling = asyncio.create_task(publisher.run())
    await until(lambda: publisher.told_offset == member.service.image.offset)
    telling.cancel()
    await asyncio.wait([telling])


async def test_snapshots_take_what_was_not_told(member: Member) -> None:
    partition = OffsetsPartition(stream=ACTIVITY_STREAM)
    store = member.service._quorum.replica.store
    await told(member, partition)
    known = member.service.image.offset
    assert offsets(partition) == list(range(known))
    ends = []
    for name in ("a", "b", "c"):
        await member.service.create_stream(StreamConfig.of(name=name, partitions=PARTITIONS))
        ends.append(member.service.image.offset)
        await until(lambda: store.snapshot is not None and store.snapshot.end_offset == ends[-1])
    await until(lambda: store.start_offset == ends[1])
    start = ends[1]
    await told(member, partition)
    after = offsets(partition)[known:]
    assert after == list(range(start - 1, ends[2])), "the gap, and then each one"
    await member.service.create_stream(StreamConfig.of(name="d"))
    await told(member, partition)
    assert offsets(partition)[known:] == list(range(start - 1, ends[2] + 2))
