from uuid import UUID

from streamlog.metadata.controller import Decision, batches
from streamlog.metadata.image.records import (
    MetadataRecord,
    NodeDraining,
    PartitionChanged,
    StreamCreated,
    StreamUpdated,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId

ONE = NodeId(1)
NODE = NodeDraining(node_id=ONE, draining=True)


def partition(stream: str, number: int) -> MetadataRecord:
    return PartitionChanged(
        stream=stream, partition=number, replicas=(ONE,), leader=ONE, leader_epoch=0, isr=(ONE,),
        partition_epoch=0,
    )  # fmt: skip


def created(stream: str) -> MetadataRecord:
    config = StreamConfig.of(name=stream)
    return StreamCreated(stream_id=UUID(int=1), config=config, created_ms=0)


def sizes(*records: MetadataRecord) -> list[int]:
    cut = list(batches(Decision(records), 2))
    assert [record for batch in cut for record in batch] == list(records)
    return [len(batch) for batch in cut]


def test_nothing_is_no_batch() -> None:
    assert sizes() == []
    assert not Decision().changes


def test_what_is_not_about_a_new_stream_is_cut_anywhere() -> None:
    assert sizes(NODE) == [1]
    assert sizes(NODE, NODE) == [2]
    assert sizes(*[partition("s", 0)] * 5) == [2, 2, 1]


def test_a_stream_comes_whole() -> None:
    whole = [created("s"), *(partition("s", i) for i in range(4))]
    assert sizes(*whole) == [5]
    assert sizes(NODE, *whole, NODE) == [6, 1]
    assert sizes(NODE, NODE, *whole) == [2, 5]
    assert sizes(*whole, created("t"), partition("t", 0), partition("t", 1)) == [5, 3]
    assert sizes(*whole, partition("u", 0)) == [5, 1]
    updated = StreamUpdated(config=StreamConfig.of(name="s"))
    assert sizes(updated, *whole[1:]) == [5]
